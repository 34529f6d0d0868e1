//! The handle that users of the log hold.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};

use promethean_model::{Clock, Durability, EventId, IgnorePoison, TopicName};

use crate::backup::LogBackup;
use crate::batch::{Completion, LogBatch, LogReceipt, LogSubmission, TopicChange};
use crate::core::{LogCore, Observer};
use crate::disk::Disk;
use crate::error::{AppendError, LogBackupError, LogDamage, LogOpenError, LogReadError, MaintenanceError};
use crate::holds::Holds;
use crate::index::EntryKind;
use crate::options::{LogOptions, TopicPolicy};
use crate::poison::lock;
use crate::read::{ReadLimit, RecordPage};
use crate::record::Record;
use crate::recovery::{self, RecoveryReport};
use crate::state::{StateError, StateSink};
use crate::sync_times::LogFigures;
use crate::threads::Threads;
use crate::topic::Topic;
use crate::verify::{LogVerifyReport, verify};

/// The arguments of [`Log::open`].
pub struct OpenArgs {
    /// The data directory.
    pub disk: Arc<dyn Disk>,
    /// The clock that the log reads.
    pub clock: Arc<dyn Clock>,
    /// The state engine that takes the redo of batches.
    pub state: Arc<dyn StateSink>,
    /// The observer that is told when durable ends move.
    pub observer: Arc<dyn Observer>,
    /// Sizes and bounds.
    pub options: LogOptions,
}

/// An open log. Clones share it. Dropping the last clone stops its threads without a final checkpoint.
#[derive(Clone)]
pub struct Log(Arc<Handle>);

struct Handle {
    core: Arc<LogCore>,
    threads: Mutex<Option<Threads>>,
    /// The directory's lock, held as long as any thread may write.
    _lock: Box<dyn Send + Sync>,
}

/// The health and the figures of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHealth {
    /// Why the writer stopped, if it did.
    pub poisoned: Option<String>,
    /// Whether publishing is refused for lack of space.
    pub full: bool,
    /// Whether a file could not be opened for lack of descriptors, and none was opened since.
    pub lacks_descriptors: bool,
    /// The step that hangs, and for how many milliseconds.
    pub hanging: Option<(&'static str, u64)>,
    /// The damage found so far.
    pub damage: Vec<LogDamage>,
    /// Syncs of the journal since the open.
    pub syncs: u64,
    /// Checkpoints taken since the open.
    pub checkpoints: u64,
    /// Merges of index runs since the open.
    pub merges: u64,
    /// Index runs now.
    pub runs: usize,
    /// Events in index runs now.
    pub indexed: u64,
    /// Bytes of events that are in tails and not in segments yet.
    pub tail_bytes: u64,
    /// Bytes in journal files that are not free.
    pub journal_bytes: u64,
}

/// Takes the lock of a data directory.
pub(crate) fn lock_directory(disk: &dyn Disk) -> Result<Box<dyn Send + Sync>, LogOpenError> {
    const LOCK_PATH: &str = "LOCK";
    disk.lock(LOCK_PATH).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => LogOpenError::Locked,
        _ => LogOpenError::Io { action: "lock", file: LOCK_PATH.to_owned(), source: error },
    })
}

impl Log {
    /// Opens the log in a directory, or creates it there.
    pub fn open(args: OpenArgs) -> Result<(Log, RecoveryReport), LogOpenError> {
        args.options.check()?;
        let held = lock_directory(&*args.disk)?;
        let (core, report) = recovery::open(args)?;
        let core = Arc::new(core);
        let threads = if core.options.threads {
            let started = Threads::start(&core);
            Some(started.map_err(|source| LogOpenError::Io {
                action: "start",
                file: "threads".to_owned(),
                source,
            })?)
        } else {
            None
        };
        Ok((Log(Arc::new(Handle { core, threads: Mutex::new(threads), _lock: held })), report))
    }

    fn core(&self) -> &LogCore {
        &self.0.core
    }

    /// The topic of this name, if a batch has created it.
    pub fn topic(&self, name: &TopicName) -> Option<Topic> {
        self.core().topic(name).filter(Topic::is_created)
    }

    /// The topic of this name; a new one appears when the first batch that uses it is accepted.
    pub fn topic_or_create(&self, name: &TopicName) -> Result<Topic, AppendError> {
        self.core().topic_or_create(name)
    }

    /// Creates an empty topic, durably.
    pub fn create_topic(&self, name: &TopicName) -> Result<Topic, AppendError> {
        let topic = self.topic_or_create(name)?;
        let controls = vec![TopicChange::Create(topic.clone())];
        self.append(LogBatch { controls, ..LogBatch::default() }, Durability::Fsync)?;
        Ok(topic)
    }

    /// Deletes a topic and its events, durably. A topic of the same name starts anew at offset 0.
    pub fn delete_topic(&self, topic: &Topic) -> Result<(), AppendError> {
        if topic.is_deleted() {
            return Err(AppendError::TopicDeleted { topic: topic.name().to_string() });
        }
        let controls = vec![TopicChange::Delete(topic.clone())];
        self.append(LogBatch { controls, ..LogBatch::default() }, Durability::Fsync).map(|_| ())
    }

    /// All topics, in no order.
    pub fn topics(&self) -> Vec<Topic> {
        let all: Vec<Topic> = self.core().read_catalog(|catalog| catalog.by_id.values().cloned().collect());
        all.into_iter().filter(Topic::is_created).collect()
    }

    /// Topics by name, after `after`, at most `limit`.
    pub fn topics_after(&self, after: Option<&TopicName>, limit: usize) -> Vec<Topic> {
        self.core().read_catalog(|catalog| catalog.page(after, limit))
    }

    /// How many topics there are, and how many there may be.
    pub fn topic_room(&self) -> (usize, usize) {
        let core = self.core();
        (core.read_catalog(|catalog| catalog.by_name.len()), core.options.topics as usize)
    }

    /// Hands a batch over. After an error nothing has happened and `done` is not called; otherwise `done` is
    /// called once, when the batch is durable (or written, for `Os`). Blocks while there is no room, for at
    /// most `room_wait_ms`.
    pub fn submit(
        &self,
        batch: &LogBatch,
        durability: Durability,
        done: Completion,
    ) -> Result<(), AppendError> {
        self.core().submit_patiently(batch, durability, done)?;
        self.drive();
        Ok(())
    }

    /// As [`Log::submit`], for callers that must not block: without room the batch is refused with
    /// [`AppendError::Busy`], and [`Observer::room_returned`] says when to try again.
    pub fn try_submit(
        &self,
        batch: &LogBatch,
        durability: Durability,
        done: Completion,
    ) -> Result<(), AppendError> {
        self.core().submit(batch, durability, done).map_err(|(_, error)| error)?;
        self.drive();
        Ok(())
    }

    /// The refusal of a batch that has waited for room long enough; `what` is that of the last refusal.
    pub fn no_room(&self, what: &'static str) -> AppendError {
        self.core().no_room(what)
    }

    /// How long a batch may wait for room.
    pub fn room_wait_ms(&self) -> u64 {
        self.core().options.room_wait_ms
    }

    /// Refuses writes beside the journal while less than the reserve is free.
    pub fn check_reserve(&self) -> Result<(), AppendError> {
        self.core().check_reserve()
    }

    /// Whether a write found no space, and no write has succeeded since.
    pub fn is_out_of_space(&self) -> bool {
        self.core().space.is_spent()
    }

    /// Hands several batches over in order, cheaper than one by one. Each batch stands alone. Every `done` is
    /// called, also for refused batches. Blocks as [`Log::submit`] does.
    pub fn submit_all(&self, submissions: Vec<LogSubmission>) {
        self.core().submit_all(submissions);
        self.drive();
    }

    /// Does the work of the log's threads on the caller's thread, if the log has no threads.
    fn drive(&self) {
        if !self.core().options.threads {
            self.core().pump(false);
            self.core().write_mark();
            // A failure here has poisoned the log or is tried again.
            let _ = self.core().keep_up();
        }
    }

    /// Appends a batch and waits until it is durable.
    pub fn append(&self, batch: LogBatch, durability: Durability) -> Result<LogReceipt, AppendError> {
        let slot = Arc::new((Mutex::new(None), Condvar::new()));
        let filled = Arc::clone(&slot);
        let done = Box::new(move |result| {
            *lock(&filled.0) = Some(result);
            filled.1.notify_one();
        });
        self.submit(&batch, durability, done)?;
        let mut result = lock(&slot.0);
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            result = slot.1.wait(result).ignore_poison();
        }
    }

    /// Reads durable events from an offset on.
    pub fn read(&self, topic: &Topic, from: u64, limit: ReadLimit) -> Result<RecordPage, LogReadError> {
        self.core().read(topic, from, limit)
    }

    /// Finds the event with this id.
    pub fn find_id(&self, topic: &Topic, id: EventId) -> Result<Option<Record>, LogReadError> {
        self.core().find_id(topic, id)
    }

    /// Finds the key's latest event; it may be a tombstone.
    pub fn latest_by_key(&self, topic: &Topic, key: &[u8]) -> Result<Option<Record>, LogReadError> {
        self.core().latest_by_key(topic, key)
    }

    /// Finds the key's events with offsets in the range, oldest first. Beyond `limit`, only the newest are
    /// returned.
    pub fn key_history(
        &self,
        topic: &Topic,
        key: &[u8],
        range: Range<u64>,
        limit: usize,
    ) -> Result<Vec<Record>, LogReadError> {
        self.core().key_history(topic, key, range, limit)
    }

    /// Finds the lowest offset whose event has at least this `ts`.
    pub fn offset_at(&self, topic: &Topic, ts: i64) -> Result<Option<u64>, LogReadError> {
        self.core().offset_at(topic, ts)
    }

    /// Sets what the topic keeps, until the log is closed.
    pub fn set_policy(&self, topic: &Topic, policy: TopicPolicy) {
        topic.set_policy(policy);
    }

    /// The holds on events. Retention keeps held events while more than the reserve is free.
    pub fn holds(&self) -> &Holds {
        &self.core().holds
    }

    /// Makes segments, index and state durable and frees the journal.
    pub fn checkpoint(&self) -> Result<(), MaintenanceError> {
        self.core().checkpoint()
    }

    /// Removes events that policies no longer keep, merges index runs and compacts topics, until nothing is
    /// left to do.
    pub fn maintain(&self) -> Result<(), MaintenanceError> {
        // A caller of this method has set all holds before.
        self.core().holds.settle();
        self.core().look_at_space();
        self.core().retry_after_shortage();
        if self.core().mark_expired() | self.core().compaction_needs_checkpoint() {
            self.core().checkpoint()?;
        }
        let done = self.core().rewrite();
        self.core().tell_shortages();
        done
    }

    /// Syncs the batches that were acknowledged as `os`.
    pub fn sync(&self) -> Result<(), AppendError> {
        self.core().pump(true);
        self.core().poison.check()
    }

    /// Stages the files of a backup point, until [`Log::end_backup`]. `note_state` is called once, at the moment
    /// that the state of the point must be from. Batches are taken meanwhile.
    pub fn begin_backup(
        &self,
        note_state: &mut dyn FnMut() -> Result<(), StateError>,
    ) -> Result<LogBackup, LogBackupError> {
        self.core().begin_backup(note_state)
    }

    /// Reads bytes of a file of the backup point, by its path in a data directory.
    pub fn read_backup(&self, path: &str, at: u64, len: usize) -> Result<Vec<u8>, LogBackupError> {
        self.core().read_backup(path, at, len)
    }

    /// Removes the staged files.
    pub fn end_backup(&self) -> Result<(), LogBackupError> {
        self.core().end_backup()
    }

    /// Reads and checks every byte that is on disk. `progress` is called with the bytes done and the bytes in
    /// all.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> LogVerifyReport {
        verify(self.core(), progress)
    }

    /// The health of the log. Does not wait for a write or a sync that is under way.
    pub fn health(&self) -> LogHealth {
        let core = self.core();
        LogHealth {
            poisoned: core.poison.reason().map(str::to_owned),
            full: core.space.is_full(),
            lacks_descriptors: core.space.lacks_descriptors(),
            hanging: core.hanging(),
            damage: lock(&core.damage).clone(),
            syncs: core.counters.syncs.load(Ordering::Relaxed),
            checkpoints: core.counters.checkpoints.load(Ordering::Relaxed),
            merges: core.counters.merges.load(Ordering::Relaxed),
            runs: core.index.runs().all().count(),
            indexed: core.index.entries(EntryKind::Id),
            tail_bytes: core.tail_bytes.load(Ordering::Relaxed),
            journal_bytes: core.counters.journal_live.load(Ordering::Relaxed),
        }
    }

    /// Figures for the operator. Reads memory only.
    pub fn figures(&self) -> LogFigures {
        self.core().counters.sync_times.figures(self.core().space.free_bytes())
    }

    /// Stops taking batches, makes everything durable and stops the threads.
    pub fn close(&self) -> Result<(), MaintenanceError> {
        lock(&self.core().sequencer).closed = true;
        self.core().announce_room();
        self.core().pump(true);
        let result = self.core().checkpoint();
        self.core().write_mark();
        self.0.stop();
        result
    }
}

impl LogCore {
    /// Merges index runs and compacts topics.
    fn rewrite(&self) -> Result<(), MaintenanceError> {
        while self.merge_runs()? {}
        self.compact_topics(usize::MAX)
    }

    /// The step that has been under way for too long.
    pub(crate) fn hanging(&self) -> Option<(&'static str, u64)> {
        let journal = self.counters.journal_steps.hangs_for_ms(&*self.clock);
        let state = self.counters.state_steps.hangs_for_ms(&*self.clock);
        journal.map(|ms| ("writing the journal", ms)).or_else(|| state.map(|ms| ("applying state", ms)))
    }
}

impl Handle {
    fn stop(&self) {
        if let Some(threads) = lock(&self.threads).take() {
            threads.stop(&self.core);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.core.sequencer).closed = true;
        self.core.announce_room();
        self.stop();
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").finish_non_exhaustive()
    }
}
