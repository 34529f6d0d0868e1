//! Seek and redrive: what is delivered again because somebody asked.

use std::collections::VecDeque;

use promethean_model::Offset;

use super::Machine;
use super::ranges::Finished;
use super::table::{Entry, State, UNREAD};
use crate::types::{Effect, Now, ReplyNo};

impl Machine {
    /// Everything below is finished and nothing above; letters from there on are closed by the commit, those that are
    /// redriven too. Nothing is delivered until that is durable.
    pub(super) fn seek(&mut self, to: Offset, reply: ReplyNo, effects: &mut Vec<Effect>) {
        let scope = self.config.scope.range;
        let to = to.clamp(scope.start, scope.end);
        self.revoke_where(effects, |_, _, _| true);
        self.facts.note_seek(to);
        self.facts.replies.push((reply, 0));
        self.table.reset_below(to);
        self.keys.clear();
        self.failures.clear();
        self.finished = Finished::below(to);
        self.scan = to;
        self.buffer = VecDeque::new();
        self.buffer_end = to;
        self.reads.abandon();
    }

    /// Delivers events again that are finished. One that is not is delivered anyway: its letter is closed.
    pub(super) fn redrive(&mut self, offsets: &[Offset], now: Now) {
        for offset in offsets.iter().copied().filter(|offset| self.config.scope.range.contains(*offset)) {
            match self.table.get(offset) {
                Some(entry) if entry.extra => {}
                None if self.finished.contains(offset) => {
                    let (failed, state) = self.noted(offset, now);
                    self.table
                        .insert(offset, Entry { key: None, partition: UNREAD, failed, extra: true, state });
                }
                _ => self.facts.note_redriven(offset),
            }
        }
    }

    /// Puts a redriven event that was read under its partition; says whether it is this claim's.
    pub(super) fn place_extra(&mut self, offset: Offset, partition: u32, in_scope: bool) -> bool {
        if in_scope {
            self.table.change(offset, |entry| entry.partition = partition);
        } else {
            debug_assert!(matches!(self.table.get(offset), Some(Entry { state: State::Ready, .. })));
            self.table.remove(offset);
            self.failures.remove(&offset);
        }
        in_scope
    }
}
