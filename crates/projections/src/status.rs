//! The status of projectors, rebuilds and compactors.

use std::sync::{Arc, Mutex, MutexGuard};

use promethean_model::{CollectionName, GroupName, IgnorePoison, Offset, TopicName};
use serde::{Deserialize, Serialize};

use crate::definition::Projector;

/// What a projector does now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It projects events, or waits for them.
    #[default]
    Running,
    /// It tries an event, or the store, again.
    Retrying,
    /// It stopped at an event or at a gap, and waits for a person.
    Halted,
    /// Its program keeps too many threads, in calls that took too long, and waits until one of them ends.
    Stuck,
    /// It has ended, with the server.
    Stopped,
}

/// The status of a projector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProjectorStatus {
    /// Its name, and the name of its group.
    pub name: GroupName,
    /// The topic it reads.
    pub topic: TopicName,
    /// The collections it writes.
    pub collections: Vec<CollectionName>,
    /// What it does.
    pub activity: Activity,
    /// The offset of the next event.
    pub position: u64,
    /// The topic's durable end.
    pub end: u64,
    /// The number of offsets between the two.
    pub lag: u64,
    /// Events projected since the server started.
    pub projected: u64,
    /// Attempts that failed since the server started.
    pub failures: u64,
    /// Events given up since the server started.
    pub dead_letters: u64,
    /// Runs of its timer since the server started.
    pub timer_runs: u64,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Whether earlier events were projected with another definition.
    pub changed: bool,
    /// The rebuild that is running, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<RebuildStatus>,
}

impl ProjectorStatus {
    /// Sets the end of the topic, and the lag that follows from it.
    pub(crate) fn measure(&mut self, end: Offset) {
        (self.end, self.lag) = (end.get(), end.since(Offset(self.position)));
    }
}

/// The status of a rebuild.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildStatus {
    /// Whether it is running.
    pub running: bool,
    /// The offset of its next event.
    pub position: u64,
    /// Events that made no changes because they failed. They become dead letters when the rebuild is done.
    pub skipped: u64,
    /// Events that were left out because they are or were dead letters.
    #[serde(default)]
    pub left_out: u64,
    /// Why the first of the skipped events failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_skipped: Option<String>,
    /// When it is done: whether the collections hold the same as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equal: Option<bool>,
    /// When it is done: the hash of the collections, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Why it failed or, while it is running, why it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The status of a compactor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CompactorStatus {
    /// Every event below this offset is in snapshots.
    pub position: Offset,
    /// The end of the topic when the last round began.
    pub end: Offset,
    /// Why the last round failed, if it did.
    pub last_error: Option<String>,
    /// How long the last round took.
    pub last_round_ms: Option<u64>,
    /// Rounds since the server started.
    pub rounds: u64,
    /// Snapshots published since the server started.
    pub published_total: u64,
    /// Events that were gone before they were read, since the server started.
    pub missed_total: u64,
    /// Failures of the program for the key since the server started; such events are passed over.
    pub key_failures_total: u64,
    /// The last failure of that program.
    pub last_key_failure: Option<String>,
}

/// A compactor and its status.
#[derive(Debug, Clone, Serialize)]
pub struct CompactorView {
    /// The topic it reads.
    pub topic: TopicName,
    /// The topic it writes snapshots to.
    pub snapshots: TopicName,
    /// Its status.
    #[serde(flatten)]
    pub status: CompactorStatus,
}

/// The status of a projector, shared. Written only by its runner.
#[derive(Debug, Clone)]
pub(crate) struct StatusCell(Arc<Mutex<ProjectorStatus>>);

impl StatusCell {
    pub(crate) fn new(projector: &Projector) -> Self {
        Self(Arc::new(Mutex::new(ProjectorStatus {
            name: projector.name.clone(),
            topic: projector.topic.clone(),
            collections: projector.collections.clone(),
            activity: Activity::Running,
            position: 0,
            end: 0,
            lag: 0,
            projected: 0,
            failures: 0,
            dead_letters: 0,
            timer_runs: 0,
            last_error: None,
            changed: false,
            rebuild: None,
        })))
    }

    pub(crate) fn get(&self) -> ProjectorStatus {
        self.lock().clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut ProjectorStatus)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, ProjectorStatus> {
        // A panic cannot leave these plain values half written.
        self.0.lock().ignore_poison()
    }
}
