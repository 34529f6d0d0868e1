//! Room: whether a batch can be taken now, and how batches that cannot are told when to try again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use promethean_model::{Durability, IgnorePoison};

use crate::batch::{Completion, LogBatch};
use crate::core::LogCore;
use crate::error::AppendError;
use crate::poison::lock;
use crate::sequencer::LogSequencer;

/// A waiting thread looks at the clock this often.
const SLICE_MS: u64 = 100;

/// The place in the journal for frames that are not written yet. A frame is accepted only if it has a place,
/// so that the writer never needs a new file for an accepted frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalRoom {
    /// Bytes left in the file that takes the next frame.
    pub(crate) left: u64,
    /// Files that come after it.
    pub(crate) spares: u64,
    /// Bytes for frames in a whole file.
    pub(crate) each: u64,
}

impl JournalRoom {
    /// Whether a frame of at most this many bytes has a place.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        bytes <= self.left || (self.spares > 0 && bytes <= self.each)
    }

    /// Gives the next frame its place. The writer puts frames into files by the same rule.
    pub(crate) fn take(&mut self, bytes: u64) {
        if bytes > self.left {
            self.spares = self.spares.saturating_sub(1);
            self.left = self.each;
        }
        self.left = self.left.saturating_sub(bytes);
    }
}

/// Tells batches that were refused as busy that there may be room now.
#[derive(Debug, Default)]
pub(crate) struct RoomSignal {
    /// Whether a batch was refused since the last signal.
    wanted: AtomicBool,
    signals: Mutex<u64>,
    changed: Condvar,
}

impl RoomSignal {
    /// Notes that a batch will wait for the next signal.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn seen(&self) -> u64 {
        *lock(&self.signals)
    }

    /// Waits for a signal after `seen`, for a short time. Returns whether it came.
    fn wait(&self, seen: u64, most: Duration) -> bool {
        let signals = lock(&self.signals);
        let waited = self.changed.wait_timeout_while(signals, most, |now| *now == seen);
        !waited.ignore_poison().1.timed_out()
    }
}

/// The time that a blocking caller still waits for room.
pub(crate) struct Patience<'a> {
    core: &'a LogCore,
    waited_ms: u64,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(core: &'a LogCore) -> Patience<'a> {
        Patience { core, waited_ms: 0 }
    }

    /// Waits for a signal after `seen`, or fails if the caller has waited long enough.
    pub(crate) fn wait(&mut self, seen: u64, what: &'static str) -> Result<(), AppendError> {
        let most = self.core.options.room_wait_ms;
        // Without threads no other thread makes room.
        if self.waited_ms >= most || !self.core.options.threads {
            return Err(self.core.no_room(what));
        }
        let slice = SLICE_MS.min(most - self.waited_ms);
        let before = self.core.clock.monotonic_ms();
        let signalled = self.core.room.wait(seen, Duration::from_millis(slice));
        let passed = self.core.clock.monotonic_ms().saturating_sub(before);
        self.waited_ms += if signalled { passed } else { passed.max(slice) };
        Ok(())
    }
}

impl LogCore {
    /// As `submit`; blocks for a bounded time while there is no room.
    pub(crate) fn submit_patiently(
        &self,
        batch: &LogBatch,
        durability: Durability,
        mut done: Completion,
    ) -> Result<(), AppendError> {
        let mut patience = Patience::new(self);
        loop {
            let seen = self.room.seen();
            match self.submit(batch, durability, done) {
                Ok(()) => return Ok(()),
                Err((back, AppendError::Busy { what })) => {
                    patience.wait(seen, what)?;
                    done = back;
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// The work that the batch must wait for, if there is no room for it now.
    pub(crate) fn lacks_room(&self, sequencer: &mut LogSequencer, batch: &LogBatch) -> Option<&'static str> {
        let frame_bytes = batch.frame_bytes();
        let is_behind = |sequencer: &LogSequencer| self.options.threads && self.is_behind(sequencer);
        if sequencer.journal_room.fits(frame_bytes) && !is_behind(sequencer) {
            return None;
        }
        // Noted before the second look, so that room that comes now is announced.
        self.room.want();
        if !sequencer.journal_room.fits(frame_bytes) {
            sequencer.wants_file = true;
            return Some("making a journal file");
        }
        is_behind(sequencer).then_some("writing earlier events")
    }

    fn is_behind(&self, sequencer: &LogSequencer) -> bool {
        const CHECKPOINTS_BEHIND: u64 = 4;
        const TAILS_BEHIND: u64 = 4;
        sequencer.group.bytes.len() > self.options.queue_bytes
            || self.journal_bytes.load(Ordering::Relaxed) > self.options.checkpoint_bytes * CHECKPOINTS_BEHIND
            || self.tail_bytes.load(Ordering::Relaxed) > self.options.tail_bytes * TAILS_BEHIND
            || self.index_memory() > self.options.index_bytes * 3 / 4
    }

    /// Tells batches that wait that there may be room.
    pub(crate) fn announce_room(&self) {
        if self.room.wanted.swap(false, Ordering::SeqCst) {
            *lock(&self.room.signals) += 1;
            self.room.changed.notify_all();
            self.observer.room_returned();
        }
    }

    /// The error of a batch that has waited for room long enough.
    pub(crate) fn no_room(&self, what: &'static str) -> AppendError {
        if self.space.is_spent() {
            self.storage_full(self.look_at_space())
        } else if self.space.lacks_descriptors() {
            AppendError::Busy { what: "a shortage of file descriptors" }
        } else {
            AppendError::Busy { what }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_take_the_place_that_the_writer_gives_them() {
        let mut room = JournalRoom { left: 10, spares: 1, each: 100 };
        assert!(room.fits(100) && !room.fits(101));
        room.take(10);
        assert_eq!(room, JournalRoom { left: 0, spares: 1, each: 100 });
        room.take(60);
        assert_eq!(room, JournalRoom { left: 40, spares: 0, each: 100 });
        assert!(room.fits(40) && !room.fits(41));
    }
}
