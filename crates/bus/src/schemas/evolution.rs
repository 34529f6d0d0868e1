//! What the configuration sets for a topic's versions: which there are, and the programs between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use promethean_jq::Program;
use promethean_model::{IgnorePoison, TopicName};

use super::Schemas;
use super::catalog::{SchemaCatalog, TopicVersions};
use crate::error::BusError;

/// A program that makes a payload of one version one of a later version.
#[derive(Debug, Clone, PartialEq)]
pub struct Upcaster {
    /// The version it takes; 0 stands for events from before the first schema.
    pub from: u32,
    /// The version it gives.
    pub to: u32,
    /// From payload to payload.
    pub program: Program,
}

/// Dual-write: every event is published in its old form too, to `<topic>.v<version>`, in the same commit.
#[derive(Debug, Clone, PartialEq)]
pub struct DualWrite {
    /// The version that the program takes. Events of the old version are published as they are, and events of
    /// any other version are refused.
    pub from: u32,
    /// The old version.
    pub version: u32,
    /// From a payload of the latest version to one of the old.
    pub program: Program,
}

/// What the configuration sets for a topic.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Evolution {
    pub(super) upcasters: BTreeMap<u32, Upcaster>,
    pub(super) dual: Option<DualWrite>,
    /// Versions that the configuration has. They are not deleted while it has them: its programs need them.
    pub(super) configured: BTreeSet<u32>,
}

/// How an event of a version becomes one of the latest version.
#[derive(Debug, PartialEq)]
pub(super) enum LiftPath {
    /// It stays as it is.
    Same,
    /// It goes through these programs, in order.
    Through(Vec<Program>),
    /// It cannot, for this reason.
    None(String),
}

impl Schemas {
    /// Does the work of [`crate::Bus::set_upcasters`].
    pub(crate) fn set_upcasters(&self, topic: &TopicName, upcasters: Vec<Upcaster>) -> Result<(), BusError> {
        let mut by_version = BTreeMap::new();
        for upcaster in upcasters {
            let Upcaster { from, to, .. } = upcaster;
            let refuse = |fix| {
                Err(BusError::BadOption { option: "upcaster", given: format!("from {from} to {to}"), fix })
            };
            if to <= from {
                return refuse("an upcaster goes from a version to a later one");
            }
            if by_version.insert(from, upcaster).is_some() {
                return refuse("give one upcaster for each version");
            }
        }
        self.catalog.change_evolution(topic, |evolution| evolution.upcasters = by_version);
        Ok(())
    }

    /// Does the work of [`crate::Bus::set_dual_write`].
    pub(crate) fn set_dual_write(&self, topic: &TopicName, dual: Option<DualWrite>) -> Result<(), BusError> {
        if let Some(dual) = &dual {
            // The name may be too long with its suffix.
            topic.versioned(dual.version)?;
        }
        self.catalog.change_evolution(topic, |evolution| evolution.dual = dual);
        Ok(())
    }
}

impl SchemaCatalog {
    pub(super) fn evolution(&self, topic: &TopicName) -> Option<Arc<Evolution>> {
        self.evolutions.read().ignore_poison().get(topic).cloned()
    }

    /// Whether events of this topic are published in an old form too.
    pub(crate) fn is_dual(&self, topic: &TopicName) -> bool {
        self.dual(topic).is_some()
    }

    pub(super) fn dual(&self, topic: &TopicName) -> Option<DualWrite> {
        if !self.any_dual.load(Ordering::Acquire) {
            return None;
        }
        self.evolution(topic)?.dual.clone()
    }

    /// The versions of a topic that the configuration has.
    pub(crate) fn configured(&self, topic: &TopicName) -> BTreeSet<u32> {
        self.evolution(topic).map(|evolution| evolution.configured.clone()).unwrap_or_default()
    }

    pub(super) fn change_evolution(&self, topic: &TopicName, change: impl FnOnce(&mut Evolution)) {
        let mut all = self.evolutions.write().ignore_poison();
        let mut evolution = all.remove(topic).map(Arc::unwrap_or_clone).unwrap_or_default();
        change(&mut evolution);
        if evolution != Evolution::default() {
            all.insert(topic.clone(), Arc::new(evolution));
        }
        self.any_dual.store(all.values().any(|evolution| evolution.dual.is_some()), Ordering::Release);
    }
}

/// Finds how an event of version `from` becomes one of the latest version.
pub(super) fn lift_path(versions: &TopicVersions, evolution: Option<&Evolution>, from: u32) -> LiftPath {
    let latest = versions.latest().map_or(0, |known| known.info.version);
    let upcaster = |version: u32| evolution.and_then(|evolution| evolution.upcasters.get(&version));
    if from == latest || (from == 0 && upcaster(0).is_none()) {
        return LiftPath::Same;
    }
    if from != 0 && versions.find(from).is_none() {
        return LiftPath::None(format!("schema version {from} is unknown; the latest is {latest}"));
    }
    let (mut at, mut programs) = (from, Vec::new());
    while at < latest {
        match upcaster(at) {
            Some(upcaster) => {
                programs.push(upcaster.program.clone());
                at = upcaster.to;
            }
            None => at = versions.after(at).unwrap_or(latest),
        }
    }
    if at == latest {
        LiftPath::Through(programs)
    } else {
        LiftPath::None(format!("the upcasters lead to version {at}, but the latest is {latest}"))
    }
}
