//! Whose turn it is, where machines of several topics want the credit of one member.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use promethean_model::IgnorePoison;

/// Nobody waits, so anybody may take.
const NOBODY: u64 = 0;

/// Those who wait for credit, in the order they came. While there are any, only the first may take: else whoever gives
/// credit back would take it again at once, and the others would never get any.
#[derive(Debug, Default)]
pub(super) struct Turns {
    queue: Mutex<VecDeque<u64>>,
    /// The first of them, to be looked at without the lock.
    first: AtomicU64,
    /// Whether the first has taken something since it is.
    taken: AtomicBool,
}

impl Turns {
    pub(super) fn may_take(&self, who: u64) -> bool {
        let first = self.first.load(Ordering::SeqCst);
        first == NOBODY || first == who
    }

    pub(super) fn first(&self) -> Option<u64> {
        Some(self.first.load(Ordering::SeqCst)).filter(|first| *first != NOBODY)
    }

    pub(super) fn note_taken(&self, who: u64) {
        if self.first.load(Ordering::SeqCst) == who {
            self.taken.store(true, Ordering::SeqCst);
        }
    }

    /// Waits for a turn; whoever had one waits behind all others.
    pub(super) fn wait(&self, who: u64) {
        self.change(|queue| {
            let had_turn = queue.front() == Some(&who) && self.taken.swap(false, Ordering::SeqCst);
            if had_turn {
                queue.pop_front();
            }
            if had_turn || !queue.contains(&who) {
                queue.push_back(who);
            }
        });
    }

    /// Waits no more.
    pub(super) fn leave(&self, who: u64) {
        // Mostly nobody waits.
        if self.first().is_some() {
            self.change(|queue| queue.retain(|other| *other != who));
        }
    }

    fn change(&self, change: impl FnOnce(&mut VecDeque<u64>)) {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        let mut queue = self.queue.lock().ignore_poison();
        let before = queue.front().copied();
        change(&mut queue);
        if queue.front().copied() != before {
            self.taken.store(false, Ordering::SeqCst);
        }
        self.first.store(queue.front().copied().unwrap_or(NOBODY), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_take_turns() {
        let turns = Turns::default();
        assert!(turns.may_take(1) && turns.may_take(2) && turns.first().is_none());
        for who in [1, 2, 3, 2] {
            turns.wait(who);
        }
        assert_eq!(turns.first(), Some(1));
        assert!(turns.may_take(1) && !turns.may_take(2) && !turns.may_take(4));
        turns.wait(1);
        assert_eq!(turns.first(), Some(1), "it has taken nothing yet");
        turns.note_taken(2);
        turns.wait(1);
        assert_eq!(turns.first(), Some(1));
        for (first, next) in [(1, 2), (2, 3), (3, 1)] {
            turns.note_taken(first);
            turns.wait(first);
            assert_eq!(turns.first(), Some(next));
        }
        turns.leave(1);
        assert_eq!(turns.first(), Some(2));
        turns.leave(3);
        turns.leave(2);
        assert!(turns.may_take(9));
    }
}
