//! Events are finished or fail.

use promethean_model::{Offset, OffsetRange};

use super::Machine;
use super::backoff::backoff_ms;
use super::facts::Dead;
use super::table::State;
use crate::types::{Attempts, Failure, Now};

impl Machine {
    /// An event is done: acked, dead or gone.
    ///
    /// The next event of its key may go out from here on, though the commit is still to come. If the process dies in
    /// between, both are unfinished again and are redelivered in order; and a commit never holds the later event
    /// without the earlier one, since facts go out in the order they came. So members may see the pair twice, never
    /// the later one alone before the earlier one.
    pub(super) fn finish(&mut self, offset: Offset) {
        let Some(entry) = self.table.remove(offset) else { return };
        self.give_back(entry.state);
        if entry.failed > 0 && self.failures.remove(&offset).is_some() {
            self.facts.note_forget(offset);
        }
        self.facts.acked = true;
        if entry.extra {
            self.facts.note_redriven(offset);
            return;
        }
        self.finished.add(offset);
        if let Some(next) = self.keys.leave(entry.key, offset.0) {
            let next = Offset(next);
            if matches!(self.table.get(next), Some(entry) if matches!(entry.state, State::Blocked)) {
                self.table.set(next, State::Ready);
            }
        }
    }

    /// An event is gone before it was delivered again. If it was a redriven one, its letter is all that is left of it.
    pub(super) fn lose(&mut self, offset: Offset) {
        if !self.table.get(offset).is_some_and(|entry| entry.extra) {
            return self.finish(offset);
        }
        self.table.remove(offset);
        if self.failures.remove(&offset).is_some() {
            self.facts.note_forget(offset);
        }
        self.facts.note_reopened(offset);
    }

    /// Offsets without an event, or not yet known and not wanted, are finished at once; says how many were not before.
    pub(super) fn pass_over(&mut self, range: OffsetRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let noted: Vec<Offset> =
            self.failures.range(range.start..range.end).map(|(offset, _)| *offset).collect();
        for offset in noted {
            // A redriven event may lie here too; its row is its own.
            if self.table.get(offset).is_none() {
                self.failures.remove(&offset);
                self.facts.note_forget(offset);
            }
        }
        self.finished.add_range(range)
    }

    /// An attempt failed. The event waits until that is durable, and then for `delay_ms` from now; or it is dead.
    pub(super) fn fail(&mut self, offset: Offset, last_failure: Failure, delay_ms: u64, now: Now) {
        let Some(entry) = self.table.get(offset) else { return };
        let (failed, extra, state) = (entry.failed + 1, entry.extra, entry.state);
        let wait_ms = i64::try_from(delay_ms).unwrap_or(i64::MAX);
        let attempts = Attempts {
            offset,
            failed,
            last_failure,
            first_ms: self.failures.get(&offset).map_or(now.wall_ms, |noted| noted.first_ms),
            last_ms: now.wall_ms,
            due_ms: now.wall_ms.saturating_add(wait_ms),
        };
        if self.config.dead_letters && failed >= self.config.max_attempts {
            self.finish(offset);
            self.facts.note_dead(offset, Dead { attempts, extra });
            return;
        }
        self.give_back(state);
        self.failures.insert(offset, attempts);
        self.facts.note_failed(offset);
        self.table.change(offset, |entry| {
            entry.failed = failed;
            entry.state = State::Failing { due: now.monotonic_ms.saturating_add(delay_ms) };
        });
    }

    /// How long the event waits if its attempt fails now.
    pub(super) fn backoff_ms(&self, offset: Offset) -> u64 {
        let failed = self.table.get(offset).map_or(0, |entry| entry.failed);
        backoff_ms(failed + 1, self.config.seed, offset.0)
    }

    /// Where an event with noted attempts stands when it is first met, and how many of them failed.
    pub(super) fn noted(&self, offset: Offset, now: Now) -> (u32, State) {
        let Some(noted) = self.failures.get(&offset) else { return (0, State::Ready) };
        // Never longer than it was to wait in the first place, however the wall clock has moved since.
        let delay_ms = noted.due_ms.saturating_sub(noted.last_ms);
        let left_ms = noted.due_ms.saturating_sub(now.wall_ms).min(delay_ms);
        match u64::try_from(left_ms) {
            Ok(left_ms) if left_ms > 0 => {
                (noted.failed, State::Backoff { due: now.monotonic_ms.saturating_add(left_ms) })
            }
            _ => (noted.failed, State::Ready),
        }
    }

    /// Forgets noted attempts of events that are finished and not redriven.
    pub(super) fn drop_orphans(&mut self) {
        let (finished, table) = (&self.finished, &self.table);
        let facts = &mut self.facts;
        self.failures.retain(|offset, _| {
            let kept = !finished.contains(*offset) || table.get(*offset).is_some();
            if !kept {
                facts.note_forget(*offset);
            }
            kept
        });
    }
}
