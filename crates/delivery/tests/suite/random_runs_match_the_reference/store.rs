//! The durable state of a run, and how commits and users change it.

use std::collections::{BTreeMap, BTreeSet};

use promethean_delivery::{Attempts, LetterRef, Progress, SavedProgress};
use promethean_model::{Offset, OffsetRange};

/// An open dead letter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Letter {
    pub(super) redriving: bool,
    pub(super) redrives: u32,
}

#[derive(Default)]
pub(super) struct Store {
    pub(super) floor: u64,
    pub(super) finished: Vec<OffsetRange>,
    pub(super) attempts: BTreeMap<u64, Attempts>,
    pub(super) letters: BTreeMap<u64, Letter>,
    /// Dead letters that are open only because closing them failed. Their events may die again.
    pub(super) unclosed: BTreeSet<u64>,
}

impl Store {
    pub(super) fn has(&self, offset: u64) -> bool {
        offset < self.floor || self.finished.iter().any(|range| range.contains(Offset(offset)))
    }

    /// Applies a commit; returns the dead letters it closed, as they were.
    pub(super) fn apply(&mut self, progress: &Progress, exists: impl Fn(u64) -> bool) -> Vec<(u64, Letter)> {
        self.floor = progress.floor.0;
        self.finished.clone_from(&progress.finished);
        if progress.seek.is_some() {
            self.attempts.clear();
        }
        for offset in &progress.forget {
            self.attempts.remove(&offset.0);
        }
        for row in &progress.failed {
            self.attempts.insert(row.offset.0, *row);
        }
        for dead in &progress.dead {
            self.bury(dead.attempts.offset.0, dead.redrives);
        }
        let is_known = |letter: &LetterRef| {
            self.letters.get(&letter.offset.0).is_some_and(|open| open.redrives <= letter.redrives)
        };
        let mut closed: Vec<u64> =
            progress.redriven.iter().filter(|it| is_known(it)).map(|letter| letter.offset.0).collect();
        if let Some(to) = progress.seek {
            assert!(progress.dead.iter().all(|dead| dead.attempts.offset < to), "dead, and delivered again");
            for (offset, letter) in self.letters.range_mut(to.0..) {
                if exists(*offset) {
                    closed.push(*offset);
                } else {
                    // The event is gone: its dead letter stays open.
                    letter.redriving = false;
                    self.unclosed.remove(offset);
                }
            }
        }
        self.unclosed.retain(|offset| !closed.contains(offset));
        let closed = closed.into_iter().filter_map(|offset| Some((offset, self.letters.remove(&offset)?)));
        let closed = closed.collect();
        for offset in &progress.reopened {
            if let Some(letter) = self.letters.get_mut(&offset.0) {
                letter.redriving = false;
            }
        }
        // A later seek went beyond the event of a redriven letter: the redrive goes on.
        let redriving = |offset: &u64| self.letters.get(offset).is_some_and(|letter| letter.redriving);
        let go_on: Vec<u64> =
            self.unclosed.iter().copied().filter(|o| redriving(o) && self.has(*o)).collect();
        go_on.iter().for_each(|offset| _ = self.unclosed.remove(offset));
        assert!(
            self.unclosed.iter().all(|offset| !self.has(*offset)),
            "finished, and a letter that looks open"
        );
        closed
    }

    /// Opens the letter of an event that died. A redrive that the machine did not know of goes on.
    fn bury(&mut self, offset: u64, redrives: u32) {
        let before = self.letters.get(&offset).copied();
        let unclosed = self.unclosed.remove(&offset);
        assert!(before.is_none_or(|before| before.redriving) || unclosed, "{offset} died twice");
        let newer = before.filter(|before| before.redriving && before.redrives > redrives);
        let redrives = before.map_or(redrives, |before| before.redrives);
        self.letters.insert(offset, Letter { redriving: newer.is_some(), redrives });
    }

    /// Redrives an open letter, as a user does.
    pub(super) fn redrive(&mut self, offset: u64) -> LetterRef {
        let letter = self.letters.get_mut(&offset).unwrap();
        assert!(!letter.redriving);
        *letter = Letter { redriving: true, redrives: letter.redrives + 1 };
        self.unclosed.remove(&offset);
        LetterRef { offset: Offset(offset), redrives: letter.redrives }
    }

    /// Drops an open letter, as a user does.
    pub(super) fn drop_letter(&mut self, offset: u64) {
        self.letters.remove(&offset);
        self.unclosed.remove(&offset);
    }

    /// The letters that a user can redrive or drop.
    pub(super) fn open_letters(&self) -> Vec<u64> {
        self.letters.iter().filter(|(_, letter)| !letter.redriving).map(|(offset, _)| *offset).collect()
    }

    pub(super) fn saved_progress(&self, first_serial: u64, exists: impl Fn(u64) -> bool) -> SavedProgress {
        let mut saved = SavedProgress {
            floor: Offset(self.floor),
            finished: self.finished.clone(),
            attempts: self.attempts.values().copied().collect(),
            first_serial,
            ..SavedProgress::default()
        };
        for (offset, letter) in &self.letters {
            let known = LetterRef { offset: Offset(*offset), redrives: letter.redrives };
            match (self.has(*offset), letter.redriving) {
                (true, true) => saved.redriven.push(known),
                (true, false) => {}
                (false, true) if exists(*offset) => saved.redriven.push(known),
                (false, false) if exists(*offset) => saved.unclosed.push(known),
                (false, true) => saved.reopened.push(known),
                (false, false) => {}
            }
        }
        saved
    }
}
