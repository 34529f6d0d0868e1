//! The check of payloads that are published.

use std::sync::Arc;

use promethean_model::{SchemaRule, TopicSettings};
use promethean_schema::VERSION_HEADER;

use super::catalog::{self, TopicVersions};
use crate::core::Core;
use crate::error::BusError;
use crate::publish::{Checked, Prepared};

/// The payload of a deletion.
pub(super) const TOMBSTONE: &str = "null";

/// The version that an event on its way is stamped with. While it is held, the version is not deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The version.
    pub version: u32,
    /// Whether the payload is still to be held against it, because the schema was not at hand.
    pub(crate) unchecked: bool,
    /// Never looked at.
    pub(crate) uses: Arc<()>,
}

/// Holds a payload against its topic's schema and notes the version. Never waits: a schema that must be read first is
/// left to [`finish`].
pub(crate) fn stamp(
    core: &Core,
    checked: &mut Checked,
    settings: &TopicSettings,
) -> Result<Option<SchemaVersion>, BusError> {
    // Whatever the rule is: readers take it for ours.
    let named = checked.take_header(VERSION_HEADER);
    if settings.schema == SchemaRule::Off {
        return Ok(None);
    }
    let versions = core.schemas.get(checked.topic());
    if checked.payload() == TOMBSTONE {
        return Ok(None);
    }
    let Some(versions) = versions else {
        return match (named, settings.schema) {
            (Some(version), _) => {
                Err(BusError::UnknownSchema { topic: checked.topic().clone(), version, latest: None })
            }
            (None, SchemaRule::Required) => Err(BusError::SchemaRequired { topic: checked.topic().clone() }),
            (None, _) => Ok(None),
        };
    };
    let Some(known) = choose(&versions, named.as_deref()) else {
        let latest = versions.latest().map(|known| known.info.version);
        let version = named.unwrap_or_default();
        return Err(BusError::UnknownSchema { topic: checked.topic().clone(), version, latest });
    };
    let compiled = core.schemas.cache.get(checked.topic(), &known.info.fingerprint, known.info.version);
    if let Some(compiled) = &compiled {
        compiled.check(checked.payload()).inspect_err(|error| count(core, error))?;
    }
    let version = known.info.version;
    checked.set_header(VERSION_HEADER, version.to_string());
    Ok(Some(SchemaVersion { version, unchecked: compiled.is_none(), uses: Arc::clone(&known.uses) }))
}

/// Checks what [`stamp`] could not.
pub(crate) async fn finish(core: &Core, prepared: &mut Prepared) -> Result<(), BusError> {
    let Some(stamp) = &mut prepared.stamp else { return Ok(()) };
    let topic = &prepared.event.topic;
    let versions = core.schemas.get(topic);
    let known = versions.as_ref().and_then(|versions| versions.find(stamp.version));
    // The topic, and its schemas with it, can be deleted meanwhile, and others be registered.
    let known = known.filter(|known| Arc::ptr_eq(&known.uses, &stamp.uses));
    let known = known.ok_or_else(|| BusError::TopicDeleted { topic: topic.clone() })?;
    if !stamp.unchecked {
        return Ok(());
    }
    let info = known.info.clone();
    let compiled = catalog::compiled(core, topic, &info).await?;
    compiled.check(&prepared.event.payload).inspect_err(|error| count(core, error))?;
    stamp.unchecked = false;
    Ok(())
}

fn choose<'a>(versions: &'a TopicVersions, named: Option<&str>) -> Option<&'a catalog::VersionEntry> {
    let Some(named) = named else { return versions.latest() };
    versions.find(named.parse().ok()?)
}

fn count(core: &Core, error: &BusError) {
    if let BusError::SchemaRejected(rejected) = error {
        core.metrics.topic(&rejected.topic).schema_rejected.inc();
    }
}
