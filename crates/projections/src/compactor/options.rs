//! The options of a compactor.

use std::collections::BTreeSet;
use std::time::Duration;

use promethean_bus::BusError;
use promethean_jq::Program;
use promethean_model::TopicName;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::ProjectionError;
use crate::time_travel::Reducer;

/// The options of a compactor.
#[derive(Debug, Clone)]
pub struct CompactorOptions {
    /// The topic it reads.
    pub topic: TopicName,
    /// The topic it writes snapshots to. Default: `<topic>.snapshot`.
    pub snapshot_topic: Option<TopicName>,
    /// How long it waits between rounds. Default: 30 s.
    pub every: Duration,
    /// How state follows from events. Default: the latest event.
    pub reducer: Reducer,
    /// A program from the event to a key, in place of the event's own; `null`, `false` and `""` pass the
    /// event over. Only with the reducer `latest`, since events cannot be looked up by such a key. Default:
    /// none.
    pub key: Option<Program>,
    /// The keys that get snapshots. Default: all.
    pub keys: Option<BTreeSet<String>>,
    /// The number of offsets between two moves of its cursor. A key that changes all the time gets one
    /// snapshot in each. Default: 50,000.
    pub span: u64,
}

impl CompactorOptions {
    /// The default options.
    pub fn new(topic: TopicName) -> Self {
        Self {
            topic,
            snapshot_topic: None,
            every: Duration::from_secs(30),
            reducer: Reducer::Latest,
            key: None,
            keys: None,
            span: 50_000,
        }
    }

    pub(super) fn snapshot_topic(&self) -> Result<TopicName, ProjectionError> {
        match &self.snapshot_topic {
            Some(topic) => Ok(topic.clone()),
            None => self.topic.snapshot().map_err(|error| BusError::Name(error).into()),
        }
    }

    /// Refuses options that cannot work.
    pub(super) fn check(&self, snapshots: &TopicName) -> Result<(), ProjectionError> {
        let refuse = |reason: &str| {
            let what = format!("the compactor of topic `{}`", self.topic);
            Err(ProjectionError::BadDeclaration { what, reason: reason.to_owned() })
        };
        if self.topic == *snapshots {
            return refuse("it cannot write to the topic it reads; give it another snapshot topic");
        }
        if self.key.is_some() && self.reducer != Reducer::Latest {
            return refuse(
                "a program for the key works with the reducer `latest` only; leave out one of them",
            );
        }
        Ok(())
    }

    /// A short text that differs wherever the options would make other snapshots.
    pub(super) fn label(&self) -> String {
        let mut label = self.reducer.label();
        if let Some(program) = &self.key {
            label.push_str(&format!(";key={:016x}", xxh3_64(program.text().as_bytes())));
        }
        if let Some(keys) = &self.keys {
            let mut all = Vec::new();
            for key in keys {
                all.extend_from_slice(&(key.len() as u64).to_le_bytes());
                all.extend_from_slice(key.as_bytes());
            }
            label.push_str(&format!(";keys={:016x}", xxh3_64(&all)));
        }
        label
    }
}
