//! What one member shares between all the machines that deliver to it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::types::Now;

/// How many more leases a member may hold. Clones share one count.
#[derive(Debug, Clone)]
pub struct Credit {
    /// Lowered by the machine that makes a lease, raised by the same machine when the lease ends.
    free: Arc<AtomicUsize>,
    max: usize,
}

impl Credit {
    /// Credit for `max_in_flight` leases.
    pub fn new(max_in_flight: usize) -> Self {
        Self { free: Arc::new(AtomicUsize::new(max_in_flight)), max: max_in_flight }
    }

    /// What is left.
    pub fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
    }

    /// What there is when nothing is in flight.
    pub const fn max(&self) -> usize {
        self.max
    }

    /// Takes `wanted`, or what is left if that is less; says how much it was.
    pub fn take_up_to(&self, wanted: usize) -> usize {
        // The count guards nothing but itself, so no ordering is needed.
        let before = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
            let taken = free.min(wanted);
            (taken > 0).then_some(free - taken)
        });
        before.map_or(0, |free| free.min(wanted))
    }

    /// Gives back what was taken.
    pub fn put(&self, count: usize) {
        let before = self.free.fetch_add(count, Ordering::Relaxed);
        debug_assert!(before + count <= self.max, "more credit given back than taken");
    }
}

/// A limit on deliveries per time.
pub trait Rate: Debug + Send + Sync {
    /// Takes up to `count` deliveries; says how many were granted.
    fn take(&self, count: usize, now: Now) -> usize;
    /// The monotonic time from which at least one is granted; not after `now` if that is already so.
    fn ready_at(&self, now: Now) -> u64;
}

/// What a member may use, wherever it is subscribed.
#[derive(Debug, Clone)]
pub struct Allowance {
    /// Leases at a time.
    pub credit: Credit,
    /// Deliveries per time; `None`: as many as there are.
    pub rate: Option<Arc<dyn Rate>>,
}

impl Allowance {
    /// So many leases at a time, at any rate.
    pub fn of(max_in_flight: usize) -> Self {
        Self { credit: Credit::new(max_in_flight), rate: None }
    }

    /// Whether the rate lets a delivery through now.
    pub(super) fn in_rate(&self, now: Now) -> bool {
        self.rate.as_ref().is_none_or(|rate| rate.ready_at(now) <= now.monotonic_ms)
    }

    /// Takes what one delivery needs, or nothing.
    pub(super) fn take_one(&self, now: Now) -> bool {
        if self.credit.take_up_to(1) == 0 {
            return false;
        }
        let granted = self.rate.as_ref().is_none_or(|rate| rate.take(1, now) == 1);
        if !granted {
            self.credit.put(1);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_what_is_left_and_takes_it_back() {
        let credit = Credit::new(3);
        let shared = credit.clone();
        assert_eq!((credit.take_up_to(2), shared.take_up_to(2), credit.take_up_to(1)), (2, 1, 0));
        shared.put(2);
        assert_eq!((credit.free(), credit.max()), (2, 3));
    }
}
