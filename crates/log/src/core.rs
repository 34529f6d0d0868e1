//! The state that the parts of the log share.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, RwLock};

use promethean_model::{Clock, IgnorePoison, TopicName};

use crate::checkpoint::Upkeep;
use crate::commit::JournalCommitter;
use crate::disk::Disk;
use crate::error::{AppendError, LogDamage};
use crate::files::Files;
use crate::holds::Holds;
use crate::index::EventIndex;
use crate::log_clock::LogClock;
use crate::manifest::{Edit, Manifest};
use crate::notice::LogNotice;
use crate::options::LogOptions;
use crate::poison::{Poison, lock};
use crate::room::RoomSignal;
use crate::sequencer::LogSequencer;
use crate::space::Space;
use crate::state::StateSink;
use crate::step_watch::StepWatch;
use crate::sync_times::SyncTimes;
use crate::topic::{Topic, TopicState};

/// Is told when the durable end of a topic moves, and what an operator should know.
pub trait Observer: Send + Sync + 'static {
    /// Tells the new durable end. The writer calls it after a sync; it must not block.
    fn durable_end_moved(&self, topic: &Topic, end: u64);
    /// Tells what an operator should know. It must not block.
    fn notice(&self, _notice: LogNotice) {}

    /// Tells that the log has stopped writing for good, and why. It must not block.
    fn stopped(&self, _reason: &str) {}

    /// Tells that a batch that was refused as busy may be taken now. The log's threads call it; it must not
    /// block.
    fn room_returned(&self) {}
}

/// An observer that ignores every call.
#[derive(Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn durable_end_moved(&self, _topic: &Topic, _end: u64) {}
}

/// The state that the parts of the log share. Locks are taken in the order of the fields, from `merging`
/// down; a topic's lock is innermost.
pub(crate) struct LogCore {
    pub(crate) disk: Arc<dyn Disk>,
    /// For waiting; the times of events come from `times`.
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) times: LogClock,
    pub(crate) state: Arc<dyn StateSink>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) options: LogOptions,
    pub(crate) files: Files,
    pub(crate) index: EventIndex,
    /// Held by a merge, a rebuild or a compaction: one at a time.
    pub(crate) merging: Mutex<()>,
    /// Held by a checkpoint or by retention: one at a time.
    pub(crate) upkeep: Mutex<Upkeep>,
    pub(crate) committer: Mutex<JournalCommitter>,
    pub(crate) manifest: Mutex<ManifestState>,
    pub(crate) sequencer: Mutex<LogSequencer>,
    /// Wakes the writer: the group has a frame.
    pub(crate) work: Condvar,
    /// Tells batches that were refused as busy that there may be room.
    pub(crate) room: RoomSignal,
    pub(crate) progress: Mutex<LogProgress>,
    pub(crate) progressed: Condvar,
    pub(crate) catalog: RwLock<Catalog>,
    pub(crate) poison: Poison,
    pub(crate) space: Space,
    /// Bytes in tails. Written by the sequencer and by threads that apply tails.
    pub(crate) tail_bytes: AtomicU64,
    /// Upkeep writes tails out when they reach this many bytes. Written by upkeep: tails that it left because
    /// they were too small must not start it again at once.
    pub(crate) tail_due: AtomicU64,
    /// Memory of the index's active table. Written by the writer. Every submit reads it, so reading takes no
    /// lock.
    pub(crate) index_bytes: AtomicU64,
    /// Journal bytes since the last checkpoint began.
    pub(crate) journal_bytes: AtomicU64,
    pub(crate) damage: Mutex<Vec<LogDamage>>,
    pub(crate) holds: Holds,
    /// Whether the files of a backup point are staged. Set by the backup.
    pub(crate) backup_staged: AtomicBool,
    pub(crate) signals: Signals,
    pub(crate) counters: Counters,
}

/// The manifest, and the numbers that every edit of it repeats.
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
    /// Makes an edit that changes nothing.
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

/// The last durable LSN and the last LSN applied to the state. Written by the writer and the state thread.
#[derive(Debug, Default)]
pub(crate) struct LogProgress {
    pub(crate) durable_lsn: u64,
    pub(crate) state_lsn: u64,
}

/// The signals that wake the upkeep and merge threads.
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
    /// A damaged run, to be replaced.
    pub(crate) rebuild: Option<String>,
}

/// Figures for `health` and the benchmark.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) syncs: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) merges: AtomicU64,
    /// How long syncs of the journal took.
    pub(crate) sync_times: SyncTimes,
    /// Journal bytes since the log was opened.
    pub(crate) written: AtomicU64,
    /// Monotonic time when the log was opened.
    pub(crate) opened_ms: AtomicU64,
    /// Monotonic time of the last checkpoint that was taken for a compaction.
    pub(crate) compaction_checkpoint_ms: AtomicU64,
    /// The leap of the wall clock at the last tick of upkeep.
    pub(crate) leap_ms: AtomicI64,
    /// Writes and syncs of the journal that are under way.
    pub(crate) journal_steps: StepWatch,
    /// Calls of the state engine that are under way.
    pub(crate) state_steps: StepWatch,
    /// Bytes in journal files that are not free. Written by the journal's writer.
    pub(crate) journal_live: Arc<AtomicU64>,
}

/// Handles of a tentative topic that no user holds: in the two maps and in `tentative`, which
/// `forget_refused` has taken.
const TENTATIVE_HANDLES: usize = 3;

/// All topics, by name and by id.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) by_name: HashMap<TopicName, Topic>,
    /// The names in order, for lists.
    pub(crate) names: BTreeSet<TopicName>,
    pub(crate) by_id: HashMap<u32, Topic>,
    pub(crate) next_id: u32,
    /// Topics that no batch had created when a caller asked for them; some exist by now.
    pub(crate) tentative: Vec<Topic>,
    /// Ids of topics that no batch ever used.
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

    /// Returns the topic of this name, or makes it. It exists on disk once a batch has used it.
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

    /// Stops all writing for good and wakes all threads that wait for progress or room. The locks are taken
    /// first, so that a thread that has just looked cannot fall asleep after the signal.
    pub(crate) fn stop_writing(&self, reason: String) {
        if self.poison.set(&reason) {
            self.observer.stopped(&reason);
        }
        drop(lock(&self.sequencer));
        drop(lock(&self.progress));
        self.progressed.notify_all();
        self.announce_room();
    }

    pub(crate) fn raise(&self, set: impl FnOnce(&mut Flags)) {
        set(&mut lock(&self.signals.flags));
        self.signals.raised.notify_all();
    }
}

impl Catalog {
    /// Created topics by name, after `after`, at most `limit`.
    pub(crate) fn page(&self, after: Option<&TopicName>, limit: usize) -> Vec<Topic> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.range::<TopicName, _>((start, Bound::Unbounded));
        names
            .filter_map(|name| self.by_name.get(name))
            .filter(|topic| topic.is_created())
            .take(limit)
            .cloned()
            .collect()
    }

    /// Removes topics that no batch has created and no user holds: the batches that would have created them
    /// were refused.
    fn forget_refused(&mut self) {
        for topic in std::mem::take(&mut self.tentative) {
            if topic.is_created() || topic.is_deleted() {
                continue;
            }
            // While the catalogue is locked no user gets a new handle. A user with a handle keeps the topic
            // alive.
            if topic.handles() > TENTATIVE_HANDLES {
                self.tentative.push(topic);
                continue;
            }
            self.remove(&topic);
            self.free_ids.push(topic.id());
        }
    }

    /// An id that no frame names.
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
        self.names.insert(topic.name().clone());
        self.by_name.insert(topic.name().clone(), topic);
    }

    pub(crate) fn remove(&mut self, topic: &Topic) {
        self.by_id.remove(&topic.id());
        if self.by_name.get(topic.name()).is_some_and(|known| known.same(topic)) {
            self.by_name.remove(topic.name());
            self.names.remove(topic.name());
        }
    }
}
