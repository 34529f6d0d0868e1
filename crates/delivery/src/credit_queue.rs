//! The queue of the machines that want the credit of one member.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use promethean_model::IgnorePoison;

/// The first user of an empty queue.
const NO_USER: u64 = 0;

/// The users that wait for credit, in the order they came. While the queue is not empty only the first user
/// may take credit. Without it the user that gives credit back would take it again at once, and the others
/// would never get any.
#[derive(Debug, Default)]
pub(crate) struct CreditQueue {
    queue: Mutex<VecDeque<u64>>,
    /// The first user of the queue, readable without the lock.
    first: AtomicU64,
    /// Whether the first user has taken credit since it became the first.
    taken: AtomicBool,
}

impl CreditQueue {
    #[inline]
    pub(crate) fn may_take(&self, user: u64) -> bool {
        let first = self.first.load(Ordering::SeqCst);
        first == NO_USER || first == user
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u64> {
        Some(self.first.load(Ordering::SeqCst)).filter(|first| *first != NO_USER)
    }

    #[inline]
    pub(crate) fn note_taken(&self, user: u64) {
        if self.first.load(Ordering::SeqCst) == user {
            self.taken.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the user is first and has taken credit since it became the first.
    pub(crate) fn had_turn(&self, user: u64) -> bool {
        self.first.load(Ordering::SeqCst) == user && self.taken.load(Ordering::SeqCst)
    }

    /// Puts the user into the queue. A user that is first and has taken credit goes to the end.
    pub(crate) fn wait(&self, user: u64) {
        self.change(|queue| {
            let had_turn = queue.front() == Some(&user) && self.taken.swap(false, Ordering::SeqCst);
            if had_turn {
                queue.pop_front();
            }
            if had_turn || !queue.contains(&user) {
                queue.push_back(user);
            }
        });
    }

    /// Removes the user from the queue.
    pub(crate) fn leave(&self, user: u64) {
        // The queue is mostly empty; then the lock is not needed.
        if self.first().is_some() {
            self.change(|queue| queue.retain(|other| *other != user));
        }
    }

    fn change(&self, change: impl FnOnce(&mut VecDeque<u64>)) {
        // Each change is one operation, so a panic elsewhere leaves the queue whole.
        let mut queue = self.queue.lock().ignore_poison();
        let before = queue.front().copied();
        change(&mut queue);
        if queue.front().copied() != before {
            self.taken.store(false, Ordering::SeqCst);
        }
        self.first.store(queue.front().copied().unwrap_or(NO_USER), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_that_wait_take_turns() {
        let queue = CreditQueue::default();
        assert!(queue.may_take(1) && queue.may_take(2) && queue.first().is_none());
        for user in [1, 2, 3, 2] {
            queue.wait(user);
        }
        assert_eq!(queue.first(), Some(1));
        assert!(queue.may_take(1) && !queue.may_take(2) && !queue.may_take(4));
        queue.wait(1);
        assert_eq!(queue.first(), Some(1), "it has taken nothing yet");
        queue.note_taken(2);
        queue.wait(1);
        assert_eq!(queue.first(), Some(1));
        for (first, next) in [(1, 2), (2, 3), (3, 1)] {
            queue.note_taken(first);
            assert!(queue.had_turn(first) && !queue.had_turn(next));
            queue.wait(first);
            assert!(!queue.had_turn(first) && !queue.had_turn(next));
            assert_eq!(queue.first(), Some(next));
        }
        queue.leave(1);
        assert_eq!(queue.first(), Some(2));
        queue.leave(3);
        queue.leave(2);
        assert!(queue.may_take(9));
    }
}
