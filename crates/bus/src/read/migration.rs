//! A dry run that lifts all events of a topic.

use std::collections::BTreeMap;

use promethean_jq::Lane;
use promethean_model::{Offset, TopicName};
use serde::Serialize;

use crate::bus::Bus;
use crate::error::BusError;
use crate::rows::StartPosition;
use crate::schemas::{self, LiftOutcome, lift, version_of};

/// The most events and bytes read at once.
const PAGE_EVENTS: usize = 500;
const PAGE_BYTES: usize = 4 << 20;
/// The most failures that the report lists.
const FAILURES_MAX: usize = 100;
/// The most versions that the report counts separately.
const VERSIONS_MAX: usize = 2 * schemas::VERSIONS_MAX;

/// The report of a dry run that lifts all events of a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Migration {
    /// How many events were read.
    pub events: u64,
    /// How many events each version has; 0 stands for events from before the first schema.
    pub versions: BTreeMap<u32, u64>,
    /// How many events lifting would change.
    pub lifted: u64,
    /// How many events lifting would leave as they are.
    pub same: u64,
    /// How many events could not be lifted.
    pub failed: u64,
    /// The first 100 events that could not be lifted.
    pub failures: Vec<LiftFailure>,
    /// The end of the topic when the run began: events at or after it were not read.
    pub end: Offset,
}

/// An event that could not be lifted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiftFailure {
    /// Its offset.
    pub offset: Offset,
    /// Its schema version.
    pub version: u32,
    /// Why it could not be lifted.
    pub reason: String,
}

impl Bus {
    /// Lifts every event of a topic and writes nothing. Failures count in the metrics, as for any reader.
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
