//! The threads of a log. Each loop calls steps that also work without threads.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::commit::{StateJob, complete_all};
use crate::core::LogCore;
use crate::error::AppendError;
use crate::journal::writer::make_zeroed;
use crate::poison::lock;
use crate::space::Shortage;
use promethean_model::IgnorePoison;

/// The most groups whose redo waits for the state engine.
const STATE_QUEUE: usize = 8;

/// The most topics that are compacted before index runs are merged again. Each costs a few syncs.
const COMPACTIONS_AT_ONCE: usize = 16;

/// The running threads; `stop` joins them.
pub(crate) struct Threads(Vec<JoinHandle<()>>);

impl Threads {
    pub(crate) fn start(core: &Arc<LogCore>) -> io::Result<Threads> {
        let (sender, jobs) = sync_channel(STATE_QUEUE);
        lock(&core.committer).state_queue = Some(sender);
        let mut threads = Threads(Vec::new());
        let started = [
            spawn(core, "log-writer", write_loop),
            spawn(core, "log-upkeep", upkeep_loop),
            spawn(core, "log-merge", merge_loop),
            spawn(core, "log-state", move |core| state_loop(core, &jobs)),
            spawn(core, "log-watch", watch_loop),
        ];
        let mut failed = None;
        for thread in started {
            match thread {
                Ok(thread) => threads.0.push(thread),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            None => Ok(threads),
            Some(error) => {
                threads.stop(core);
                Err(error)
            }
        }
    }

    /// Ends the loops after the queued work is done.
    pub(crate) fn stop(self, core: &LogCore) {
        core.signals.stop.store(true, Ordering::Release);
        drop(lock(&core.sequencer));
        core.work.notify_all();
        drop(lock(&core.signals.flags));
        core.signals.raised.notify_all();
        core.pump(true);
        // The state thread ends when its queue has no sender and is empty.
        lock(&core.committer).state_queue = None;
        let own = std::thread::current().id();
        // A completion may drop the last handle on one of these threads; a thread cannot join itself.
        for thread in self.0.into_iter().filter(|thread| thread.thread().id() != own) {
            // If the thread panicked, it has poisoned the log.
            let _ = thread.join();
        }
    }
}

fn spawn(
    core: &Arc<LogCore>,
    name: &'static str,
    run: impl FnOnce(&LogCore) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let core = Arc::clone(core);
    Builder::new().name(name.to_owned()).spawn(move || {
        if catch_unwind(AssertUnwindSafe(|| run(&core))).is_err() {
            core.fail(format!("the thread {name} panicked"));
            core.pump(false);
        }
    })
}

fn stopped(core: &LogCore) -> bool {
    core.signals.stop.load(Ordering::Acquire)
}

fn write_loop(core: &LogCore) {
    while !stopped(core) {
        let waiting = wait_for_group(core);
        // Without frames, the interval of `os` batches has passed: sync them.
        core.pump(!waiting);
        // The log remembers the failure, and batches without a place in the journal are refused.
        let _ = core.make_wanted_file();
        if !waiting {
            continue;
        }
        let idle = lock(&core.sequencer).group.spans.is_empty();
        if idle {
            core.write_mark();
        }
    }
}

/// Waits for frames, for a batch that has no place in the journal, or until an `os` batch must be synced.
/// Returns whether it was not the last.
fn wait_for_group(core: &LogCore) -> bool {
    let unsynced = lock(&core.committer).has_unsynced();
    let mut sequencer = lock(&core.sequencer);
    while sequencer.group.spans.is_empty() && !sequencer.wants_file && !stopped(core) {
        sequencer.writer_waits = true;
        if unsynced {
            let interval = Duration::from_millis(core.options.os_sync_interval_ms.max(1));
            let (guard, timeout) = core.work.wait_timeout(sequencer, interval).ignore_poison();
            sequencer = guard;
            if timeout.timed_out() {
                sequencer.writer_waits = false;
                return false;
            }
        } else {
            sequencer = core.work.wait(sequencer).ignore_poison();
        }
    }
    true
}

fn upkeep_loop(core: &LogCore) {
    while !stopped(core) {
        let raised = wait_for_upkeep(core);
        if stopped(core) {
            return;
        }
        // The log remembers failures: poison stops it, and work that lacked space or descriptors is tried
        // again at the next tick.
        let _ = (core.make_spare(), core.keep_up());
        if !raised {
            core.look_at_space();
            core.disk.restore_reserve();
            core.retry_after_shortage();
            if core.mark_expired() | core.compaction_needs_checkpoint_now() {
                let _ = core.checkpoint();
            }
            core.raise(|flags| flags.merge = true);
        }
        core.announce_room();
    }
}

/// Waits for a signal or the next tick. Returns whether it was a signal.
fn wait_for_upkeep(core: &LogCore) -> bool {
    let interval = Duration::from_millis(core.options.maintenance_interval_ms.max(1));
    let mut flags = lock(&core.signals.flags);
    while !flags.upkeep && !stopped(core) {
        let (guard, timeout) = core.signals.raised.wait_timeout(flags, interval).ignore_poison();
        flags = guard;
        if timeout.timed_out() {
            return std::mem::take(&mut flags.upkeep);
        }
    }
    std::mem::take(&mut flags.upkeep)
}

fn merge_loop(core: &LogCore) {
    while !stopped(core) {
        let mut flags = lock(&core.signals.flags);
        while !flags.merge && flags.rebuild.is_none() && !stopped(core) {
            flags = core.signals.raised.wait(flags).ignore_poison();
        }
        flags.merge = false;
        let damaged = flags.rebuild.take();
        drop(flags);
        if let Some(damaged) = damaged.filter(|_| !stopped(core)) {
            // After a failure the next lookup finds the damage again.
            let _ = core.rebuild_index(&damaged);
            core.announce_room();
        }
        while !stopped(core) && matches!(core.merge_runs(), Ok(true)) {}
        if !stopped(core) {
            // The log remembers failures, as above.
            let _ = core.compact_topics(COMPACTIONS_AT_ONCE);
        }
    }
}

fn state_loop(core: &LogCore, jobs: &Receiver<StateJob>) {
    while let Ok(job) = jobs.recv() {
        complete_all(core.apply_state(job));
    }
}

/// Looks for shortages. The other threads may hang at the disk, so this one has nothing to do with it.
fn watch_loop(core: &LogCore) {
    let interval = Duration::from_millis(core.options.maintenance_interval_ms.max(1));
    while !stopped(core) {
        let flags = lock(&core.signals.flags);
        drop(core.signals.raised.wait_timeout_while(flags, interval, |_| !stopped(core)));
        core.tell_shortages();
    }
}

impl LogCore {
    /// Makes the next journal file before the writer needs it.
    pub(crate) fn make_spare(&self) -> io::Result<()> {
        let number = {
            let mut committer = lock(&self.committer);
            if !committer.journal.needs_spare() || self.poison.reason().is_some() {
                return Ok(());
            }
            committer.journal.reserve_number()
        };
        let made = make_zeroed(&*self.disk, number, self.options.journal_file_bytes);
        let spare = made.inspect_err(|error| self.note_shortage(error))?;
        lock(&self.committer).journal.add_spare(spare);
        self.add_journal_room(1);
        Ok(())
    }

    /// Makes a journal file if a batch had no place. Without space or descriptors the batch is refused, and
    /// upkeep tries again; any other failure stops all writing.
    pub(crate) fn make_wanted_file(&self) -> Result<(), AppendError> {
        if !std::mem::take(&mut lock(&self.sequencer).wants_file) {
            return Ok(());
        }
        let Err(error) = self.make_spare() else { return Ok(()) };
        if Shortage::of(&error).is_none() {
            self.stop_writing(format!("making a journal file failed: {error}"));
            self.poison.check()?;
        }
        Err(self.no_room("making a journal file"))
    }

    /// Notes spares that the journal's writer has got.
    pub(crate) fn add_journal_room(&self, spares: u64) {
        lock(&self.sequencer).journal_room.spares += spares;
        self.announce_room();
    }
}
