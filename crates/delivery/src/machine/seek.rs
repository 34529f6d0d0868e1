//! Seek and redrive: events that are delivered again because a user asked for it.

use promethean_model::Offset;

use super::Machine;
use super::finished::FinishedRanges;
use super::unfinished::{PARTITION_UNKNOWN, Stage, UnfinishedEvent};
use crate::effect::{Effect, LetterRef};
use crate::input::{Now, ReplyNo};

impl Machine {
    /// Moves the cursor: every offset below `to` is finished, none above. The commit closes the dead letters
    /// from `to` on, redriven ones included. Nothing is delivered until it is durable.
    pub(super) fn seek(&mut self, to: Offset, reply: ReplyNo, now: Now, effects: &mut Vec<Effect>) {
        let scope = self.config.scope.range;
        let to = to.clamp(scope.start, scope.end);
        self.revoke_where(effects, |_, _, _| true);
        self.uncommitted.note_seek(to);
        self.uncommitted.replies.push((reply, 0));
        for letter in self.unfinished.reset_below(to) {
            self.uncommitted.note_asked(letter);
        }
        self.key_queues.clear();
        self.failures.clear();
        self.finished = FinishedRanges::below(to);
        self.scan = to;
        self.reads.abandon();
        let passed = self.uncommitted.take_asked_below(to);
        self.redrive(&passed, now);
    }

    /// Delivers finished events again. An event that is not finished is delivered anyway, so its dead letter
    /// is closed.
    pub(super) fn redrive(&mut self, letters: &[LetterRef], now: Now) {
        for letter in letters.iter().copied().filter(|it| self.config.scope.range.contains(it.offset)) {
            let LetterRef { offset, redrives } = letter;
            match self.unfinished.get(offset) {
                Some(entry) if entry.redriven.is_some() => {
                    self.unfinished
                        .change(offset, |entry| entry.redriven = entry.redriven.max(Some(redrives)));
                }
                None if self.finished.contains(offset) => {
                    self.uncommitted.drop_closing(offset);
                    let (failed, stage) = self.recorded_attempts(offset, now);
                    self.unfinished.insert(
                        offset,
                        UnfinishedEvent {
                            key: None,
                            partition: PARTITION_UNKNOWN,
                            failed,
                            redriven: Some(redrives),
                            stage,
                        },
                    );
                }
                _ => self.uncommitted.note_asked(letter),
            }
        }
    }

    /// Sets the partition of a redriven event that was read; returns `false` and drops it if it is not in the
    /// scope.
    pub(super) fn place_redriven(&mut self, offset: Offset, partition: u32, in_scope: bool) -> bool {
        if in_scope {
            self.unfinished.change(offset, |entry| entry.partition = partition);
        } else {
            debug_assert!(matches!(
                self.unfinished.get(offset),
                Some(UnfinishedEvent { stage: Stage::Ready, .. })
            ));
            self.unfinished.remove(offset);
            self.failures.remove(&offset);
        }
        in_scope
    }
}
