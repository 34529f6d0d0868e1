//! How projectors are, for everyone who looks.

use std::sync::{Arc, Mutex, MutexGuard};

use promethean_model::{CollectionName, GroupName, IgnorePoison, TopicName};
use serde::Serialize;

/// What a projector does now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It projects, or waits for events.
    #[default]
    Running,
    /// It tries an event, or the store, again.
    Retrying,
    /// It stopped at an event or at a gap, and waits for a person.
    Halted,
    /// Its program took too long and is not run again.
    Stuck,
    /// It has ended.
    Stopped,
}

/// How a projector is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProjectorStatus {
    /// Its name and group.
    pub name: GroupName,
    /// The topic it reads.
    pub topic: TopicName,
    /// The collections it writes.
    pub collections: Vec<CollectionName>,
    /// What it does.
    pub activity: Activity,
    /// The offset of the next event.
    pub position: u64,
    /// The topic's durable end when it looked last.
    pub end: u64,
    /// Offsets between the two.
    pub lag: u64,
    /// Events projected since it was started.
    pub projected: u64,
    /// Attempts that failed since then.
    pub failures: u64,
    /// Events given up since then.
    pub dead_letters: u64,
    /// Runs of its timer since then.
    pub timer_runs: u64,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Whether its definition is another than the one that earlier events were projected with.
    pub changed: bool,
    /// How far a rebuild is, or what came of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<RebuildStatus>,
}

/// How a rebuild is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RebuildStatus {
    /// Whether it is running.
    pub running: bool,
    /// The offset of its next event.
    pub position: u64,
    /// Events that made no changes because they failed.
    pub skipped: u64,
    /// When it was done: whether the collections are now as they were before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equal: Option<bool>,
    /// When it was done: the hash of the collections, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Why it ended without a result or, while it is running, why it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A status that its projector writes and others read.
#[derive(Debug, Clone)]
pub(crate) struct Shown(Arc<Mutex<ProjectorStatus>>);

impl Shown {
    pub(crate) fn new(name: GroupName, topic: TopicName, collections: Vec<CollectionName>) -> Self {
        Self(Arc::new(Mutex::new(ProjectorStatus {
            name,
            topic,
            collections,
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
        // Plain values: a panic leaves none of them half written.
        self.0.lock().ignore_poison()
    }
}
