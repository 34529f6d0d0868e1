//! The changes of a machine that are not durable yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use promethean_model::Offset;

use crate::effect::{Attempts, DeadEvent, LetterRef};
use crate::input::{FailureNote, ReplyNo};

/// The changes for the next commit, except the cursor. The failed attempts of each event are looked up when
/// the commit is made.
///
/// The commit of a seek leaves out the changes of letters from the seek's target on: their events are
/// delivered again. They are kept until the seek is durable, because a later seek may go beyond them.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    /// Whether the commit must go out at once.
    pub(super) urgent: bool,
    /// Whether events were finished that would be delivered again without a commit. The commit may wait.
    pub(super) acked: bool,
    pub(super) failed: BTreeSet<Offset>,
    pub(super) forget: BTreeSet<Offset>,
    dead: BTreeMap<Offset, UncommittedDeath>,
    /// The dead letters to close, and how often each was redriven. Their events are finished, or an earlier
    /// seek delivers them again.
    closing: BTreeMap<Offset, u32>,
    /// Redriven dead letters to close whose events are delivered anyway, because they are not finished. If a
    /// seek goes beyond them before the commit, they are redriven events again.
    asked: BTreeMap<Offset, u32>,
    /// Redriven dead letters that stay open, since their event is gone.
    reopened: BTreeSet<Offset>,
    /// The target of the last seek.
    pub(super) seek: Option<Offset>,
    /// The replies to send after the commit, with the number of stale leases.
    pub(super) replies: Vec<(ReplyNo, usize)>,
}

/// An event that becomes a dead letter.
#[derive(Debug, Clone)]
pub(super) struct UncommittedDeath {
    pub(super) attempts: Attempts,
    /// How often its letter was redriven before, as far as known.
    pub(super) redrives: u32,
    /// Whether the cursor counted the event as finished before it died, because it was redriven.
    pub(super) beside_cursor: bool,
    /// Why its last attempt failed, where that was said.
    pub(super) note: Option<Arc<FailureNote>>,
}

impl UncommittedDeath {
    fn knows(&mut self, redrives: u32) {
        self.redrives = self.redrives.max(redrives);
    }
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

    /// Notes that the event of a redriven dead letter is finished, so the letter is to be closed. If the letter
    /// was to be opened by the same commit, it is not opened at all.
    pub(super) fn note_served(&mut self, letter: LetterRef) {
        self.dead.remove(&letter.offset);
        self.note_closing(letter);
    }

    /// Notes that a dead letter is to be closed. If its event died again, the letter stays open.
    pub(super) fn note_closing(&mut self, letter: LetterRef) {
        let LetterRef { offset, redrives } = letter;
        if let Some(dead) = self.dead.get_mut(&offset) {
            dead.knows(redrives);
            return;
        }
        if self.asked.get(&offset).is_some_and(|asked| *asked >= redrives) {
            return;
        }
        self.asked.remove(&offset);
        self.reopened.remove(&offset);
        raise(&mut self.closing, letter);
        self.urgent = true;
    }

    /// Keeps a dead letter open that was to be closed: it was redriven again.
    pub(super) fn drop_closing(&mut self, offset: Offset) {
        self.closing.remove(&offset);
    }

    /// Notes a redrive of an event that is delivered anyway.
    pub(super) fn note_asked(&mut self, letter: LetterRef) {
        self.closing.remove(&letter.offset);
        self.reopened.remove(&letter.offset);
        raise(&mut self.asked, letter);
        self.urgent = true;
    }

    /// Notes that an event is finished. A redrive of it is served.
    pub(super) fn serve(&mut self, offset: Offset) {
        if let Some(redrives) = self.asked.remove(&offset) {
            raise(&mut self.closing, LetterRef { offset, redrives });
        }
    }

    /// Takes the redrives of events below `to`, which a seek does not deliver.
    pub(super) fn take_asked_below(&mut self, to: Offset) -> Vec<LetterRef> {
        let above = self.asked.split_off(&to);
        letters(std::mem::replace(&mut self.asked, above))
    }

    /// Notes that the event of a redriven dead letter is gone, so the letter stays open. If the letter is to be
    /// opened or closed already, that change wins.
    pub(super) fn note_reopened(&mut self, letter: LetterRef) {
        if let Some(dead) = self.dead.get_mut(&letter.offset) {
            dead.knows(letter.redrives);
        } else if !self.closes(letter.offset) {
            self.reopened.insert(letter.offset);
        }
        self.urgent = true;
    }

    fn closes(&self, offset: Offset) -> bool {
        self.closing.contains_key(&offset) || self.asked.contains_key(&offset)
    }

    /// Whether the event died at the cursor, and its letter is not durable.
    pub(super) fn has_first_death(&self, offset: Offset) -> bool {
        self.dead.get(&offset).is_some_and(|dead| !dead.beside_cursor)
    }

    /// Notes that an event becomes a dead letter. An older letter of the event that was to be closed is open
    /// again.
    pub(super) fn note_dead(&mut self, mut dead: UncommittedDeath) {
        let offset = dead.attempts.offset;
        let closing = self.closing.remove(&offset).max(self.asked.remove(&offset));
        dead.knows(closing.unwrap_or(0));
        self.reopened.remove(&offset);
        self.dead.insert(offset, dead);
        self.urgent = true;
    }

    /// Notes a seek. It deletes all failed attempts.
    pub(super) fn note_seek(&mut self, to: Offset) {
        self.failed.clear();
        self.forget.clear();
        self.seek = Some(to);
        self.urgent = true;
    }

    /// The first offset whose letters the commit leaves to its seek.
    fn end(&self) -> Offset {
        self.seek.unwrap_or(Offset::MAX)
    }

    /// The events that the commit makes dead letters.
    pub(super) fn sent_dead(&self) -> Vec<DeadEvent> {
        let dead = self.dead.range(..self.end());
        let event = |(_, dead): (&Offset, &UncommittedDeath)| DeadEvent {
            attempts: dead.attempts,
            redrives: dead.redrives,
            note: dead.note.clone(),
        };
        dead.map(event).collect()
    }

    /// The dead letters that the commit closes, ascending.
    pub(super) fn sent_closing(&self) -> Vec<LetterRef> {
        let all = self.closing.range(..self.end()).chain(self.asked.range(..self.end()));
        let mut all: Vec<LetterRef> =
            all.map(|(offset, redrives)| LetterRef { offset: *offset, redrives: *redrives }).collect();
        all.sort_unstable();
        all
    }

    /// The dead letters that the commit opens again.
    pub(super) fn sent_reopened(&self) -> Vec<Offset> {
        self.reopened.range(..self.end()).copied().collect()
    }

    /// Keeps at most `most` dead events for the commit; returns the rest, for the next commit.
    pub(super) fn defer_dead(&mut self, most: usize) -> Self {
        let mut later = Self::default();
        let end = self.end();
        if let Some((&first, _)) = self.dead.range(..end).nth(most) {
            later.dead = self.dead.split_off(&first);
            self.dead.append(&mut later.dead.split_off(&end));
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
        self.dead.iter().filter(|(_, dead)| !dead.beside_cursor).map(|(offset, _)| *offset).collect()
    }

    /// Merges the changes of a commit that failed back in. They are older than these. Returns the redrives of
    /// events that a seek since then does not deliver.
    pub(super) fn take_back(&mut self, mut older: Self) -> Vec<LetterRef> {
        let passed = match self.seek {
            Some(to) => {
                older.failed.clear();
                older.forget.clear();
                older.take_asked_below(to)
            }
            None => Vec::new(),
        };
        older.failed.retain(|offset| !self.forget.contains(offset));
        older.forget.retain(|offset| !self.failed.contains(offset));
        self.failed.append(&mut older.failed);
        self.forget.append(&mut older.forget);
        // Of two changes of the same dead letter the newer one wins.
        for (offset, dead) in older.dead {
            if !self.closing.contains_key(&offset) {
                let beside_cursor = dead.beside_cursor;
                let newer = self.dead.entry(offset).or_insert(dead);
                newer.beside_cursor &= beside_cursor;
            }
        }
        letters(older.closing).into_iter().for_each(|letter| self.note_closing(letter));
        for letter in letters(older.asked) {
            match self.dead.get_mut(&letter.offset) {
                Some(dead) if self.seek.is_none_or(|to| letter.offset < to) => dead.knows(letter.redrives),
                _ if self.closing.contains_key(&letter.offset) => raise(&mut self.closing, letter),
                _ => raise(&mut self.asked, letter),
            }
        }
        older.reopened.retain(|offset| !self.dead.contains_key(offset) && !self.closes(*offset));
        self.reopened.append(&mut older.reopened);
        self.seek = self.seek.or(older.seek);
        older.replies.append(&mut self.replies);
        self.replies = older.replies;
        self.urgent = true;
        passed
    }
}

fn raise(letters: &mut BTreeMap<Offset, u32>, letter: LetterRef) {
    let known = letters.entry(letter.offset).or_insert(letter.redrives);
    *known = letter.redrives.max(*known);
}

fn letters(letters: BTreeMap<Offset, u32>) -> Vec<LetterRef> {
    letters.into_iter().map(|(offset, redrives)| LetterRef { offset, redrives }).collect()
}
