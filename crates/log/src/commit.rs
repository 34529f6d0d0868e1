//! Group commit: writes groups to the journal, syncs, and completes the waiting callers.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use promethean_model::Durability;

use crate::batch::{Completion, LogReceipt};
use crate::core::LogCore;
use crate::error::{AppendError, MaintenanceError};
use crate::index::Insert;
use crate::journal::frame::{self, FrameParts, HEADER_BYTES};
use crate::journal::writer::{FrameSpan, JournalWriter};
use crate::planted::{self, Bug};
use crate::poison::lock;
use crate::sequencer::{Group, Waiter};
use crate::state::Redo;
use crate::topic::Topic;

/// The journal's writer with the groups that are not synced yet. One lock guards it, so that groups reach the
/// journal in the order they were taken.
#[derive(Debug)]
pub(crate) struct JournalCommitter {
    pub(crate) journal: JournalWriter,
    /// Topics with their new ends, of groups that are written and not synced.
    unsynced: Vec<(Topic, u64)>,
    written_lsn: u64,
    synced_lsn: u64,
    /// When the oldest unsynced group was written.
    unsynced_since_ms: u64,
    /// The queue to the state thread; `None` applies redo on the caller's thread.
    pub(crate) state_queue: Option<SyncSender<StateJob>>,
}

/// The redo of one group, and the callers that wait for it.
#[derive(Default)]
pub(crate) struct StateJob {
    redo: Vec<(u64, Vec<u8>)>,
    waiters: Vec<(Completion, LogReceipt)>,
}

/// The callers to complete after the locks are released, and the group to reuse.
#[derive(Default)]
pub(crate) struct FinishedGroup {
    done: Vec<(Completion, Result<LogReceipt, AppendError>)>,
    group: Group,
}

impl JournalCommitter {
    pub(crate) fn new(journal: JournalWriter, lsn: u64) -> JournalCommitter {
        JournalCommitter {
            journal,
            unsynced: Vec::new(),
            written_lsn: lsn,
            synced_lsn: lsn,
            unsynced_since_ms: 0,
            state_queue: None,
        }
    }

    /// Whether a batch that was acknowledged as `os` still waits for its sync.
    pub(crate) fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }
}

impl LogCore {
    /// Writes the open group to the journal. `force_sync` also syncs groups that were written before.
    pub(crate) fn pump(&self, force_sync: bool) {
        let mut committer = lock(&self.committer);
        let group = lock(&self.sequencer).take_group();
        self.announce_room();
        self.insert_entries(&group.inserts);
        let finished = self.commit_group(&mut committer, group, force_sync);
        drop(committer);
        self.finish(finished);
    }

    /// Puts a group's entries into the index, before any caller or reader hears of its events.
    pub(crate) fn insert_entries(&self, inserts: &[Insert]) {
        /// Entries inserted under one lock, for which a lookup may have to wait.
        const CHUNK: usize = 128;
        if !inserts.is_empty() {
            for chunk in inserts.chunks(CHUNK) {
                self.index.insert_all(chunk);
            }
            self.index_bytes.store(self.index.active_size().1 as u64, Ordering::Relaxed);
            lock(&self.sequencer).inserting = Arc::default();
        }
    }

    fn finish(&self, finished: FinishedGroup) {
        complete_all(finished.done);
        let mut group = finished.group;
        group.clear();
        lock(&self.sequencer).spare = Some(group);
    }

    fn commit_group(
        &self,
        committer: &mut JournalCommitter,
        mut group: Group,
        force_sync: bool,
    ) -> FinishedGroup {
        if let Some(reason) = self.poison.reason() {
            let reason = reason.to_owned();
            return fail_all(group, |_| AppendError::Poisoned { reason: reason.clone() });
        }
        let step = self.counters.journal_steps.enter(&*self.clock);
        let mut early = Vec::new();
        if planted::is(Bug::AckBeforeWrite) {
            early = take_waiters(&mut group, |waiter| waiter.redo.is_empty());
        }
        if let Some(last) = group.spans.last() {
            let last_lsn = last.lsn;
            if let Err(error) = committer.journal.write(&mut group.bytes, &group.spans, committer.synced_lsn)
            {
                let mut finished = self.poisoned(group, "writing the journal", &error);
                finished.done.extend(early);
                return finished;
            }
            self.account(group.bytes.len() as u64);
            committer.written_lsn = last_lsn;
            if committer.unsynced.is_empty() {
                committer.unsynced_since_ms = self.clock.monotonic_ms();
            }
            committer.unsynced.append(&mut group.touched);
        }
        let acked_when_written = |waiter: &Waiter| waiter.receipt.durability == Durability::Os;
        early.extend(take_waiters(&mut group, acked_when_written));
        let waited = self.clock.monotonic_ms().saturating_sub(committer.unsynced_since_ms);
        let overdue = committer.has_unsynced() && waited >= self.options.os_sync_interval_ms;
        if (group.wants_sync || force_sync || overdue)
            && committer.written_lsn > committer.synced_lsn
            && let Err(error) = self.sync_journal(committer)
        {
            let mut finished = self.poisoned(group, "syncing the journal", &error);
            finished.done.extend(early);
            return finished;
        }
        drop(step);
        self.complete(committer, group, early)
    }

    fn sync_journal(&self, committer: &mut JournalCommitter) -> io::Result<()> {
        let began = self.clock.monotonic_ms();
        committer.journal.sync()?;
        self.counters.sync_times.add(self.clock.monotonic_ms().saturating_sub(began));
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        committer.synced_lsn = committer.written_lsn;
        for (topic, end) in committer.unsynced.drain(..) {
            topic.set_end(end);
            self.observer.durable_end_moved(&topic, end);
        }
        lock(&self.progress).durable_lsn = committer.synced_lsn;
        self.progressed.notify_all();
        Ok(())
    }

    /// Syncs the frames that are written. Returns the last of them.
    pub(crate) fn sync_written(&self, committer: &mut JournalCommitter) -> Result<u64, MaintenanceError> {
        self.check_writing()?;
        if committer.written_lsn > committer.synced_lsn {
            let _step = self.counters.journal_steps.enter(&*self.clock);
            let synced = self.sync_journal(committer);
            synced.map_err(|error| self.fail(format!("syncing the journal failed: {error}")))?;
        }
        Ok(committer.synced_lsn)
    }

    /// Completes a durable group: redo goes to the state, and callers without redo are done.
    fn complete(
        &self,
        committer: &mut JournalCommitter,
        mut group: Group,
        mut done: Vec<(Completion, Result<LogReceipt, AppendError>)>,
    ) -> FinishedGroup {
        if group.has_redo {
            let job = take_state_job(&mut group);
            match &committer.state_queue {
                Some(queue) => {
                    if let Err(unsent) = queue.send(job) {
                        done.extend(unsent.0.fail("the state thread has stopped"));
                    }
                }
                None => done.extend(self.apply_state(job)),
            }
        }
        done.extend(group.waiters.drain(..).map(|waiter| (waiter.done, Ok(waiter.receipt))));
        FinishedGroup { done, group }
    }

    /// Applies redo in order. Called by the state thread, or by the writer where there are no threads.
    pub(crate) fn apply_state(&self, job: StateJob) -> Vec<(Completion, Result<LogReceipt, AppendError>)> {
        let redo: Vec<Redo<'_>> = job.redo.iter().map(|(lsn, bytes)| Redo { lsn: *lsn, bytes }).collect();
        let Some(last) = redo.last().map(|redo| redo.lsn) else { return job.succeed() };
        if let Some(reason) = self.poison.reason() {
            return job.fail(reason);
        }
        let step = self.counters.state_steps.enter(&*self.clock);
        let applied = self.state.apply(&redo);
        drop(step);
        if let Err(error) = applied {
            let reason = format!("applying state failed: {error}");
            self.stop_writing(reason.clone());
            return job.fail(&reason);
        }
        lock(&self.progress).state_lsn = last;
        self.progressed.notify_all();
        job.succeed()
    }

    fn account(&self, bytes: u64) {
        let total = self.journal_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let tail = self.tail_bytes.load(Ordering::Relaxed);
        let due = total >= self.options.checkpoint_bytes
            || tail >= self.tail_due.load(Ordering::Relaxed)
            || self.index_memory() >= self.options.index_bytes * 3 / 8;
        if due && self.options.threads {
            self.raise(|flags| flags.upkeep = true);
        }
        self.watch_space(bytes);
    }

    fn poisoned(&self, group: Group, action: &str, error: &io::Error) -> FinishedGroup {
        let reason = format!("{action} failed: {error}");
        self.stop_writing(reason.clone());
        fail_all(group, |_| AppendError::UnknownOutcome { reason: reason.clone() })
    }

    /// Writes a frame that holds only the durable mark, so that recovery does not take damage to the last
    /// frames for a torn tail. It is not synced: it matters only if the page cache survives.
    pub(crate) fn write_mark(&self) {
        let mut committer = lock(&self.committer);
        let mut sequencer = lock(&self.sequencer);
        let unsynced = sequencer.last_lsn() != committer.synced_lsn;
        let fits = sequencer.journal_room.fits(HEADER_BYTES as u64);
        if !sequencer.group.spans.is_empty() || unsynced || !fits || self.poison.reason().is_some() {
            return;
        }
        sequencer.journal_room.take(HEADER_BYTES as u64);
        let lsn = sequencer.next_lsn;
        sequencer.next_lsn += 1;
        drop(sequencer);
        let mut bytes = vec![0; HEADER_BYTES];
        frame::finish(&mut bytes, FrameParts { lsn, ..FrameParts::default() });
        let span = FrameSpan { at: 0, len: HEADER_BYTES, lsn };
        let mark = committer.synced_lsn;
        match committer.journal.write(&mut bytes, &[span], mark) {
            Ok(()) => committer.written_lsn = lsn,
            Err(error) => self.stop_writing(format!("writing the journal failed: {error}")),
        }
    }
}

impl StateJob {
    fn succeed(self) -> Vec<(Completion, Result<LogReceipt, AppendError>)> {
        self.waiters.into_iter().map(|(done, receipt)| (done, Ok(receipt))).collect()
    }

    fn fail(self, reason: &str) -> Vec<(Completion, Result<LogReceipt, AppendError>)> {
        let error = AppendError::UnknownOutcome { reason: reason.to_owned() };
        self.waiters.into_iter().map(|(done, _)| (done, Err(error.clone()))).collect()
    }
}

/// Calls every completion. If one panics, the others are still called; then the panic continues.
pub(crate) fn complete_all(done: Vec<(Completion, Result<LogReceipt, AppendError>)>) {
    let mut panicked = None;
    for (done, result) in done {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| done(result))) {
            panicked = Some(panic);
        }
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

fn take_state_job(group: &mut Group) -> StateJob {
    let mut job = StateJob::default();
    for waiter in std::mem::take(&mut group.waiters) {
        if waiter.redo.is_empty() {
            group.waiters.push(waiter);
            continue;
        }
        let bytes = group.bytes.get(waiter.redo.clone()).unwrap_or_default().to_vec();
        job.redo.push((waiter.receipt.lsn, bytes));
        job.waiters.push((waiter.done, waiter.receipt));
    }
    job
}

fn take_waiters(
    group: &mut Group,
    which: impl Fn(&Waiter) -> bool,
) -> Vec<(Completion, Result<LogReceipt, AppendError>)> {
    let taken = group.waiters.extract_if(.., |waiter| which(waiter));
    taken.map(|waiter| (waiter.done, Ok(waiter.receipt))).collect()
}

fn fail_all(mut group: Group, error: impl Fn(&Waiter) -> AppendError) -> FinishedGroup {
    let failed = group.waiters.drain(..).map(|waiter| {
        let error = error(&waiter);
        (waiter.done, Err(error))
    });
    FinishedGroup { done: failed.collect(), group: Group::default() }
}
