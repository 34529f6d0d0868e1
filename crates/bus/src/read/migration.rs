//! The dry run of a migration: what lifting every event of a topic would give.

use std::collections::BTreeMap;

use promethean_jq::Lane;
use promethean_model::{Offset, TopicName};
use serde::Serialize;

use crate::bus::Bus;
use crate::error::BusError;
use crate::rows::StartPosition;
use crate::schemas::{self, LiftOutcome, lift, version_of};

/// Events and bytes lifted at once.
const PAGE_EVENTS: usize = 500;
const PAGE_BYTES: usize = 4 << 20;
/// Failures that the answer lists.
const FAILURES_MAX: usize = 100;
/// Versions that are counted by number.
const VERSIONS_MAX: usize = 2 * schemas::VERSIONS_MAX;

/// What lifting every event of a topic would give.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Migration {
    /// Events read.
    pub events: u64,
    /// Events of each version; 0 stands for events from before the first schema.
    pub versions: BTreeMap<u32, u64>,
    /// Events that would change.
    pub lifted: u64,
    /// Events that stay as they are.
    pub same: u64,
    /// Events that could not be lifted.
    pub failed: u64,
    /// The first 100 of them.
    pub failures: Vec<LiftFailure>,
    /// The end of the topic when it began; later events were not read.
    pub end: Offset,
}

/// An event that could not be lifted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiftFailure {
    /// Where it is.
    pub offset: Offset,
    /// Its version.
    pub version: u32,
    /// Why.
    pub reason: String,
}

impl Bus {
    /// Lifts every event of a topic and writes nothing. Failures count in the metrics like those of any reader.
    pub async fn migrate_dry_run(&self, topic: &TopicName) -> Result<Migration, BusError> {
        let mut scan = self.scan(topic, StartPosition::Earliest).await?;
        let mut migration = Migration { end: scan.end(), ..Migration::default() };
        while let Some(page) = scan.next_page(PAGE_EVENTS, PAGE_BYTES).await? {
            for event in &page.events {
                let version = version_of(event).unwrap_or(0);
                if migration.versions.len() < VERSIONS_MAX || migration.versions.contains_key(&version) {
                    *migration.versions.entry(version).or_default() += 1;
                }
            }
            for lifted in lift(&self.groups.schemas, page.events, Lane::Bulk).await {
                migration.add(lifted.event.offset, lifted.outcome);
            }
        }
        Ok(migration)
    }
}

impl Migration {
    fn add(&mut self, offset: Offset, outcome: LiftOutcome) {
        self.events += 1;
        match outcome {
            LiftOutcome::Same => self.same += 1,
            LiftOutcome::Lifted { .. } => self.lifted += 1,
            LiftOutcome::Failed { from, reason } => {
                self.failed += 1;
                if self.failures.len() < FAILURES_MAX {
                    self.failures.push(LiftFailure { offset, version: from, reason });
                }
            }
        }
    }
}
