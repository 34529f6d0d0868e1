//! The changes of a machine that are not durable yet.

use std::collections::{BTreeMap, BTreeSet};

use promethean_model::Offset;

use crate::effect::Attempts;
use crate::input::ReplyNo;

/// The changes for the next commit, except the cursor. The failed attempts of each event are looked up when
/// the commit is made.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    /// Whether the commit must go out at once.
    pub(super) urgent: bool,
    /// Whether events were finished that would be delivered again without a commit. The commit may wait.
    pub(super) acked: bool,
    pub(super) failed: BTreeSet<Offset>,
    pub(super) forget: BTreeSet<Offset>,
    pub(super) dead: BTreeMap<Offset, DeadEvent>,
    pub(super) redriven: BTreeSet<Offset>,
    /// Redriven dead letters that stay open, since their event is gone.
    pub(super) reopened: BTreeSet<Offset>,
    /// The target of the seek; the lowest one if there were several.
    pub(super) seek: Option<Offset>,
    /// The replies to send after the commit, with the number of stale leases.
    pub(super) replies: Vec<(ReplyNo, usize)>,
}

/// An event that becomes a dead letter.
#[derive(Debug)]
pub(super) struct DeadEvent {
    pub(super) attempts: Attempts,
    /// Whether the event was redriven.
    pub(super) redriven: bool,
}

impl Uncommitted {
    pub(super) fn note_failed(&mut self, offset: Offset) {
        self.forget.remove(&offset);
        self.failed.insert(offset);
        self.urgent = true;
    }

    pub(super) fn note_forget(&mut self, offset: Offset) {
        self.failed.remove(&offset);
        self.forget.insert(offset);
    }

    /// Notes that a dead letter is to be closed. If it was to be opened by the same commit, it is not opened at
    /// all.
    pub(super) fn note_redriven(&mut self, offset: Offset) {
        self.dead.remove(&offset);
        self.reopened.remove(&offset);
        self.redriven.insert(offset);
        self.urgent = true;
    }

    /// Notes that the event of a redriven dead letter is gone, so the letter stays open. If the letter is to be
    /// opened or closed already, that change wins.
    pub(super) fn note_reopened(&mut self, offset: Offset) {
        self.reopened.insert(offset);
        self.drop_reopened();
        self.urgent = true;
    }

    fn drop_reopened(&mut self) {
        let (dead, redriven) = (&self.dead, &self.redriven);
        self.reopened.retain(|offset| !dead.contains_key(offset) && !redriven.contains(offset));
    }

    /// Notes that an event becomes a dead letter. An older letter of the event that was to be closed is open
    /// again.
    pub(super) fn note_dead(&mut self, offset: Offset, dead: DeadEvent) {
        self.redriven.remove(&offset);
        self.reopened.remove(&offset);
        self.dead.insert(offset, dead);
        self.urgent = true;
    }

    pub(super) fn note_seek(&mut self, to: Offset) {
        self.cut(to);
        self.seek = Some(self.seek.map_or(to, |before| before.min(to)));
        self.urgent = true;
    }

    /// Drops the changes that a seek makes void. Events below `to` that died stay dead. Events from `to` on
    /// are delivered again, so none of them is dead, and the seek's commit closes their dead letters.
    fn cut(&mut self, to: Offset) {
        self.failed.clear();
        self.forget.clear();
        self.dead.split_off(&to);
        self.redriven.split_off(&to);
        self.reopened.split_off(&to);
    }

    /// Keeps at most `most` dead events; returns the rest, for the next commit.
    pub(super) fn defer_dead(&mut self, most: usize) -> Self {
        let mut later = Self::default();
        if let Some(&first) = self.dead.keys().nth(most) {
            later.dead = self.dead.split_off(&first);
            // Until an event is dead its failed attempts are kept.
            later.forget = self.forget.iter().copied().filter(|at| later.dead.contains_key(at)).collect();
            self.forget.retain(|at| !later.dead.contains_key(at));
            // All replies wait: each may be about one of the deferred events.
            later.replies = std::mem::take(&mut self.replies);
            later.urgent = true;
        }
        later
    }

    /// The dead events that the cursor must not count as finished yet. Redriven events do not move the
    /// cursor.
    pub(super) fn unfinished(&self) -> Vec<Offset> {
        self.dead.iter().filter(|(_, dead)| !dead.redriven).map(|(offset, _)| *offset).collect()
    }

    /// Merges the changes of a commit that failed back in. They are older than these.
    pub(super) fn take_back(&mut self, mut older: Self) {
        if let Some(to) = self.seek {
            older.cut(to);
        }
        for offset in older.failed {
            if !self.forget.contains(&offset) {
                self.failed.insert(offset);
            }
        }
        for offset in older.forget {
            if !self.failed.contains(&offset) {
                self.forget.insert(offset);
            }
        }
        // Of two changes of the same dead letter the newer one wins.
        older.redriven.retain(|offset| !self.dead.contains_key(offset));
        for (offset, dead) in older.dead {
            if !self.redriven.contains(&offset) {
                self.dead.entry(offset).or_insert(dead);
            }
        }
        self.redriven.append(&mut older.redriven);
        self.reopened.append(&mut older.reopened);
        self.drop_reopened();
        self.seek = [self.seek, older.seek].into_iter().flatten().min();
        older.replies.append(&mut self.replies);
        self.replies = older.replies;
        self.urgent = true;
    }
}
