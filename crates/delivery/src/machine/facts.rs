//! What has happened and is not durable yet.

use std::collections::{BTreeMap, BTreeSet};

use promethean_model::Offset;

use crate::types::{Attempts, ReplyNo};

/// The facts of one commit, beside the cursor. The rows of failed attempts are looked up when the commit is made.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Somebody waits for a commit.
    pub(super) urgent: bool,
    /// Nobody waits, but without a commit something finished would be delivered again.
    pub(super) acked: bool,
    pub(super) failed: BTreeSet<Offset>,
    pub(super) forget: BTreeSet<Offset>,
    pub(super) dead: BTreeMap<Offset, Dead>,
    pub(super) redriven: BTreeSet<Offset>,
    /// Letters that stay open, since their event is gone.
    pub(super) reopened: BTreeSet<Offset>,
    /// From here on everything was to be delivered again, by a seek: the lowest of them if there were several.
    pub(super) seek: Option<Offset>,
    /// With the number of stale leases.
    pub(super) replies: Vec<(ReplyNo, usize)>,
}

#[derive(Debug)]
pub(super) struct Dead {
    pub(super) attempts: Attempts,
    /// It was a redriven one.
    pub(super) extra: bool,
}

impl Facts {
    pub(super) fn note_failed(&mut self, offset: Offset) {
        self.forget.remove(&offset);
        self.failed.insert(offset);
        self.urgent = true;
    }

    pub(super) fn note_forget(&mut self, offset: Offset) {
        self.failed.remove(&offset);
        self.forget.insert(offset);
    }

    /// A letter is closed. What opened it, if that is not durable yet, need not be.
    pub(super) fn note_redriven(&mut self, offset: Offset) {
        self.dead.remove(&offset);
        self.reopened.remove(&offset);
        self.redriven.insert(offset);
        self.urgent = true;
    }

    /// The event of a redriven letter is gone. What is known of it already stays the last word.
    pub(super) fn note_reopened(&mut self, offset: Offset) {
        self.reopened.insert(offset);
        self.drop_reopened();
        self.urgent = true;
    }

    fn drop_reopened(&mut self) {
        let (dead, redriven) = (&self.dead, &self.redriven);
        self.reopened.retain(|offset| !dead.contains_key(offset) && !redriven.contains(offset));
    }

    /// A letter is opened. One of the same event that was to be closed is open again.
    pub(super) fn note_dead(&mut self, offset: Offset, dead: Dead) {
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

    /// What remains true after a seek: below it, what died is dead. From it on everything is delivered again, so nothing
    /// there is dead, and its commit closes what letters there are.
    fn cut(&mut self, to: Offset) {
        self.failed.clear();
        self.forget.clear();
        self.dead.split_off(&to);
        self.redriven.split_off(&to);
        self.reopened.split_off(&to);
    }

    /// Leaves at most `most` dead events in these facts; the rest come back, for the next commit.
    pub(super) fn defer_dead(&mut self, most: usize) -> Self {
        let mut later = Self::default();
        if let Some(&first) = self.dead.keys().nth(most) {
            later.dead = self.dead.split_off(&first);
            // As long as an event is not dead, its attempts count.
            later.forget = self.forget.iter().copied().filter(|at| later.dead.contains_key(at)).collect();
            self.forget.retain(|at| !later.dead.contains_key(at));
            // Whose they are is not known: an answer may be about one that waits.
            later.replies = std::mem::take(&mut self.replies);
            later.urgent = true;
        }
        later
    }

    /// Events that are done here and that no commit says so of yet. Redriven ones are beside the cursor.
    pub(super) fn unfinished(&self) -> Vec<Offset> {
        self.dead.iter().filter(|(_, dead)| !dead.extra).map(|(offset, _)| *offset).collect()
    }

    /// Takes back the facts of a commit that failed. They are older than these.
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
        // Of the same event only the last word counts.
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
