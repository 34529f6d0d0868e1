//! The delivery rate of a member, as the machine wants it.

use std::sync::atomic::{AtomicU64, Ordering};

use promethean_delivery::Now;

use super::bucket::{Bucket, Rate, Refused};

/// One bucket, shared by all topics of a member.
#[derive(Debug)]
pub(crate) struct MemberRate {
    bucket: Bucket,
    /// Nothing is granted before, monotonic. Known only from refusals: a bucket cannot be asked without taking.
    ready_at_ms: AtomicU64,
}

impl MemberRate {
    pub(crate) fn new(rate: Rate, now: Now) -> Self {
        Self { bucket: Bucket::new(rate, now.monotonic_ms), ready_at_ms: AtomicU64::new(0) }
    }
}

impl promethean_delivery::DeliveryRate for MemberRate {
    fn take(&self, count: usize, now: Now) -> usize {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let granted = self.bucket.take_up_to(count, now.monotonic_ms);
        if granted > 0 || count == 0 {
            return granted as usize;
        }
        match self.bucket.take(1, now.monotonic_ms) {
            Ok(()) => 1,
            Err(Refused::RetryAfterMs(ms)) => {
                self.ready_at_ms.fetch_max(now.monotonic_ms.saturating_add(ms), Ordering::Relaxed);
                0
            }
            Err(Refused::OverBurst { .. }) => 0,
        }
    }

    fn ready_at(&self, now: Now) -> u64 {
        self.ready_at_ms.load(Ordering::Relaxed).max(now.monotonic_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use promethean_delivery::DeliveryRate as _;

    #[test]
    fn says_when_it_will_grant_again() {
        let at = |monotonic_ms| Now { monotonic_ms, wall_ms: 0 };
        let rate = MemberRate::new(Rate::new(10, 3), at(0));
        assert_eq!((rate.take(2, at(0)), rate.take(2, at(0))), (2, 1));
        assert_eq!(rate.take(1, at(0)), 0);
        assert_eq!((rate.ready_at(at(0)), rate.take(1, at(99)), rate.take(1, at(100))), (100, 0, 1));
        assert_eq!(rate.ready_at(at(100)), 100);
    }
}
