//! Finished events, skipped events and failed attempts.

use std::sync::Arc;

use promethean_model::{Offset, OffsetRange};

use super::Machine;
use super::backoff::backoff_ms;
use super::uncommitted::UncommittedDeath;
use super::unfinished::Stage;
use crate::effect::{Attempts, DeliveryFailure, LetterRef};
use crate::input::{FailureNote, Now};

/// Reasons that are kept for events that will be tried again, at most.
const NOTES_MAX: usize = 1_000;

impl Machine {
    /// Finishes an event: it was acked, is dead or is gone.
    ///
    /// The next event of its key may be delivered at once, before the commit. If the process dies in between,
    /// both events are unfinished again and are redelivered in order. A commit never holds the later event
    /// without the earlier one, since changes are committed in the order they came. So members may see the
    /// pair twice, but never the later event before the earlier one.
    pub(super) fn finish(&mut self, offset: Offset) {
        let Some(entry) = self.unfinished.remove(offset) else { return };
        self.give_back(entry.stage);
        if entry.failed > 0 && self.failures.remove(&offset).is_some() {
            self.uncommitted.note_forget(offset);
        }
        self.uncommitted.acked = true;
        if let Some(redrives) = entry.redriven {
            self.uncommitted.note_served(LetterRef { offset, redrives });
            return;
        }
        self.uncommitted.serve(offset);
        self.commits.serve(offset);
        self.finished.add(offset);
        if let Some(next) = self.key_queues.leave(entry.key, offset.0) {
            let next = Offset(next);
            if matches!(self.unfinished.get(next), Some(entry) if matches!(entry.stage, Stage::Blocked)) {
                self.unfinished.set(next, Stage::Ready);
            }
        }
    }

    /// Removes an event that is gone from the topic. A redriven one keeps its dead letter open, which is all
    /// that is left of it.
    pub(super) fn lose(&mut self, offset: Offset) {
        let Some(redrives) = self.unfinished.get(offset).and_then(|entry| entry.redriven) else {
            return self.finish(offset);
        };
        self.unfinished.remove(offset);
        if self.failures.remove(&offset).is_some() {
            self.uncommitted.note_forget(offset);
        }
        self.uncommitted.note_reopened(LetterRef { offset, redrives });
    }

    /// Finishes offsets that hold no event, or an event the group does not want; returns how many were not
    /// finished before.
    pub(super) fn skip(&mut self, range: OffsetRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let failed: Vec<Offset> =
            self.failures.range(range.start..range.end).map(|(offset, _)| *offset).collect();
        for offset in failed {
            // A redriven event in the range keeps its failed attempts.
            if self.unfinished.get(offset).is_none() {
                self.failures.remove(&offset);
                self.uncommitted.note_forget(offset);
            }
        }
        self.finished.add_range(range)
    }

    /// Fails an attempt. The event waits until the failure is durable, and until `delay_ms` from now; after
    /// its last attempt it is dead, and its letter has the note of that attempt; if that expired or lost its member, the last one before it.
    pub(super) fn fail(
        &mut self,
        offset: Offset,
        (last_failure, note): (DeliveryFailure, Option<&Arc<FailureNote>>),
        delay_ms: u64,
        now: Now,
    ) {
        let Some(entry) = self.unfinished.get(offset) else { return };
        let (failed, redriven, stage) = (entry.failed + 1, entry.redriven, entry.stage);
        let last_note = self.last_note(offset, note);
        let note = match last_failure {
            // The attempt had no member that could give a reason.
            DeliveryFailure::Expired | DeliveryFailure::MemberLost => last_note,
            DeliveryFailure::Nack | DeliveryFailure::Projection => note.cloned(),
        };
        let wait_ms = i64::try_from(delay_ms).unwrap_or(i64::MAX);
        let attempts = Attempts {
            offset,
            failed,
            last_failure,
            first_ms: self.failures.get(&offset).map_or(now.wall_ms, |attempts| attempts.first_ms),
            last_ms: now.wall_ms,
            due_ms: now.wall_ms.saturating_add(wait_ms),
        };
        if self.config.dead_letters && failed >= self.config.max_attempts {
            // The cursor counts the event as finished only when its first death is durable.
            let beside_cursor = redriven.is_some() && !self.uncommitted.has_first_death(offset);
            self.finish(offset);
            self.uncommitted.note_dead(UncommittedDeath {
                attempts,
                redrives: redriven.unwrap_or(0),
                beside_cursor,
                note,
            });
            return;
        }
        self.give_back(stage);
        self.failures.insert(offset, attempts);
        self.uncommitted.note_failed(offset);
        self.unfinished.change(offset, |entry| {
            entry.failed = failed;
            entry.stage = Stage::Failing { due: now.monotonic_ms.saturating_add(delay_ms) };
        });
    }

    /// The reason that is given now, or else the last one that was given for the event. Keeps it for the attempts to
    /// come.
    fn last_note(&mut self, offset: Offset, given: Option<&Arc<FailureNote>>) -> Option<Arc<FailureNote>> {
        let before = self.notes.remove(&offset).filter(|_| self.failures.contains_key(&offset));
        let note = given.cloned().or(before)?;
        if self.notes.len() >= NOTES_MAX {
            let failures = &self.failures;
            self.notes.retain(|offset, _| failures.contains_key(offset));
        }
        if self.notes.len() < NOTES_MAX {
            self.notes.insert(offset, Arc::clone(&note));
        }
        Some(note)
    }

    /// How long the event waits for its next attempt if the current one fails.
    pub(super) fn backoff_ms(&self, offset: Offset) -> u64 {
        let failed = self.unfinished.get(offset).map_or(0, |entry| entry.failed);
        backoff_ms(failed + 1, self.config.seed, offset.0)
    }

    /// How many attempts failed of an event that becomes known, and the stage that it starts in.
    pub(super) fn recorded_attempts(&self, offset: Offset, now: Now) -> (u32, Stage) {
        let Some(attempts) = self.failures.get(&offset) else { return (0, Stage::Ready) };
        // At most the original delay, however far the wall clock has jumped since.
        let delay_ms = attempts.due_ms.saturating_sub(attempts.last_ms);
        let left_ms = attempts.due_ms.saturating_sub(now.wall_ms).min(delay_ms);
        match u64::try_from(left_ms) {
            Ok(left_ms) if left_ms > 0 => {
                (attempts.failed, Stage::Backoff { due: now.monotonic_ms.saturating_add(left_ms) })
            }
            _ => (attempts.failed, Stage::Ready),
        }
    }

    /// Forgets the failed attempts of events that are finished and not redriven.
    pub(super) fn drop_orphans(&mut self) {
        let (finished, unfinished) = (&self.finished, &self.unfinished);
        let uncommitted = &mut self.uncommitted;
        self.failures.retain(|offset, _| {
            let kept = !finished.contains(*offset) || unfinished.get(*offset).is_some();
            if !kept {
                uncommitted.note_forget(*offset);
            }
            kept
        });
    }
}
