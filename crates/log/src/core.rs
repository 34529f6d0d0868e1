//! Everything the parts of the log share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, RwLock};

use promethean_model::{Clock, IgnorePoison, TopicName};

use crate::checkpoint::Upkeep;
use crate::commit::JournalCommitter;
use crate::disk::Disk;
use crate::error::{AppendError, LogDamage};
use crate::files::Files;
use crate::holds::Holds;
use crate::index::EventIndex;
use crate::manifest::{Edit, Manifest};
use crate::options::LogOptions;
use crate::poison::{Poison, lock};
use crate::sequencer::Sequencer;
use crate::state::StateSink;
use crate::topic::{Topic, TopicState};

/// Told when the durable end of a topic moves.
pub trait Observer: Send + Sync + 'static {
    /// Called by the writer after a sync; it must not block.
    fn durable_end_moved(&self, topic: &Topic, end: u64);
}

/// Nobody listens.
#[derive(Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn durable_end_moved(&self, _topic: &Topic, _end: u64) {}
}

/// Locks are taken in the order of the fields below, from `merging` down; a topic's lock is innermost.
pub(crate) struct LogCore {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: Arc<dyn StateSink>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) options: LogOptions,
    pub(crate) files: Files,
    pub(crate) index: EventIndex,
    /// Merges, rebuilds and compactions: one at a time.
    pub(crate) merging: Mutex<()>,
    /// Checkpoints and retention: one at a time.
    pub(crate) upkeep: Mutex<Upkeep>,
    pub(crate) committer: Mutex<JournalCommitter>,
    pub(crate) manifest: Mutex<ManifestState>,
    pub(crate) sequencer: Mutex<Sequencer>,
    /// Signals the writer: there is a group.
    pub(crate) work: Condvar,
    /// Signals publishers: there is room.
    pub(crate) room: Condvar,
    pub(crate) progress: Mutex<LogProgress>,
    pub(crate) progressed: Condvar,
    pub(crate) catalog: RwLock<Catalog>,
    pub(crate) poison: Poison,
    pub(crate) full: AtomicBool,
    /// Bytes in tails. Written by the sequencer and by whoever applies.
    pub(crate) tail_bytes: AtomicU64,
    /// Tails are looked at when they reach this. Written by upkeep: what it left because it was too little to write must
    /// not bring it back at once.
    pub(crate) tail_due: AtomicU64,
    /// Memory of the index's active table. Written by the writer; asked for at every submit, so it takes no lock.
    pub(crate) index_bytes: AtomicU64,
    /// Journal bytes since the last checkpoint began.
    pub(crate) journal_bytes: AtomicU64,
    pub(crate) damage: Mutex<Vec<LogDamage>>,
    pub(crate) holds: Holds,
    pub(crate) signals: Signals,
    pub(crate) counters: Counters,
}

/// The manifest and the numbers that every edit repeats.
#[derive(Debug)]
pub(crate) struct ManifestState {
    pub(crate) manifest: Manifest,
    pub(crate) checkpoint_lsn: u64,
    pub(crate) journal_sequence: u64,
    pub(crate) state_lsn: u64,
    pub(crate) next_run: u64,
    pub(crate) next_topic: u32,
}

impl ManifestState {
    /// An edit that changes nothing yet.
    pub(crate) fn edit(&self) -> Edit {
        Edit {
            checkpoint_lsn: self.checkpoint_lsn,
            journal_sequence: self.journal_sequence,
            state_lsn: self.state_lsn,
            next_topic: self.next_topic,
            next_run: self.next_run,
            ..Edit::default()
        }
    }
}

/// How far the log has come. Written by the writer and the state thread.
#[derive(Debug, Default)]
pub(crate) struct LogProgress {
    pub(crate) durable_lsn: u64,
    pub(crate) state_lsn: u64,
}

/// What wakes the maintenance and merge threads.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub(crate) flags: Mutex<Flags>,
    pub(crate) raised: Condvar,
    pub(crate) stop: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) upkeep: bool,
    pub(crate) merge: bool,
}

/// Figures for `health` and the benchmark.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) syncs: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) merges: AtomicU64,
    /// Journal bytes since the log was opened.
    pub(crate) written: AtomicU64,
    /// Monotonic time when the log was opened.
    pub(crate) opened_ms: AtomicU64,
    /// Bytes in journal files that are not free. Written by the journal's writer.
    pub(crate) journal_live: Arc<AtomicU64>,
}

/// What holds a topic that nobody uses: the two maps, the list of tentative ones, and whoever looks.
const TENTATIVE_HANDLES: usize = 3;

/// All topics, by name and by id.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) by_name: HashMap<TopicName, Topic>,
    pub(crate) by_id: HashMap<u32, Topic>,
    pub(crate) next_id: u32,
    /// Topics that no batch had created when they were asked for; some are by now.
    pub(crate) tentative: Vec<Topic>,
    /// Numbers of topics that no batch ever used.
    pub(crate) free_ids: Vec<u32>,
}

impl LogCore {
    pub(crate) fn topic(&self, name: &TopicName) -> Option<Topic> {
        self.read_catalog(|catalog| catalog.by_name.get(name).cloned())
    }

    pub(crate) fn topic_by_id(&self, id: u32) -> Option<Topic> {
        self.read_catalog(|catalog| catalog.by_id.get(&id).cloned())
    }

    pub(crate) fn read_catalog<T>(&self, read: impl FnOnce(&Catalog) -> T) -> T {
        read(&self.catalog.read().ignore_poison())
    }

    pub(crate) fn write_catalog<T>(&self, write: impl FnOnce(&mut Catalog) -> T) -> T {
        write(&mut self.catalog.write().ignore_poison())
    }

    /// The topic of this name, made if need be. It exists on disk once a batch has used it.
    pub(crate) fn topic_or_create(&self, name: &TopicName) -> Result<Topic, AppendError> {
        if let Some(topic) = self.topic(name) {
            return Ok(topic);
        }
        self.write_catalog(|catalog| {
            if let Some(topic) = catalog.by_name.get(name) {
                return Ok(topic.clone());
            }
            let many = catalog.tentative.len() > catalog.by_name.len() * 2 + 1024;
            if many || catalog.by_name.len() >= self.options.topics as usize {
                catalog.forget_refused();
            }
            let full = catalog.by_name.len() >= self.options.topics as usize;
            let Some(id) = catalog.free_id().filter(|_| !full) else {
                return Err(AppendError::TooManyTopics { max: self.options.topics });
            };
            let topic = Topic::new(id, name.clone(), false, TopicState::default());
            catalog.insert(topic.clone());
            catalog.tentative.push(topic.clone());
            Ok(topic)
        })
    }

    pub(crate) fn note_damage(&self, damage: &LogDamage) {
        const DAMAGE_MAX: usize = 1000;
        let mut known = lock(&self.damage);
        if known.len() < DAMAGE_MAX && !known.contains(damage) {
            known.push(damage.clone());
        }
    }

    /// Stops all writing for good and wakes whoever waits for it to go on. The locks are touched so that nobody who has
    /// just looked goes to sleep after the signal.
    pub(crate) fn stop_writing(&self, reason: String) {
        self.poison.set(reason);
        drop(lock(&self.sequencer));
        drop(lock(&self.progress));
        self.progressed.notify_all();
        self.room.notify_all();
    }

    pub(crate) fn raise(&self, set: impl FnOnce(&mut Flags)) {
        set(&mut lock(&self.signals.flags));
        self.signals.raised.notify_all();
    }
}

impl Catalog {
    /// Removes topics that no batch has created and nobody holds: what was to create them was refused.
    fn forget_refused(&mut self) {
        for topic in std::mem::take(&mut self.tentative) {
            if topic.is_created() || topic.is_deleted() {
                continue;
            }
            // With the catalogue locked nobody gets a handle, and whoever has one keeps the topic.
            if topic.handles() > TENTATIVE_HANDLES {
                self.tentative.push(topic);
                continue;
            }
            self.remove(&topic);
            self.free_ids.push(topic.id());
        }
    }

    /// A number that no frame has.
    fn free_id(&mut self) -> Option<u32> {
        self.free_ids.pop().or_else(|| {
            let id = self.next_id;
            self.next_id = id.checked_add(1)?;
            Some(id)
        })
    }

    pub(crate) fn insert(&mut self, topic: Topic) {
        self.next_id = self.next_id.max(topic.id().saturating_add(1));
        self.by_id.insert(topic.id(), topic.clone());
        self.by_name.insert(topic.name().clone(), topic);
    }

    pub(crate) fn remove(&mut self, topic: &Topic) {
        self.by_id.remove(&topic.id());
        if self.by_name.get(topic.name()).is_some_and(|known| known.same(topic)) {
            self.by_name.remove(topic.name());
        }
    }
}
