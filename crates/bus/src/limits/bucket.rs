//! One token bucket.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use governor::clock::Clock as GovernorClock;
use governor::middleware::StateInformationMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use serde::{Deserialize, Serialize};

use crate::error::{BusError, RateOwner};

const NANOS_PER_MS: u64 = 1_000_000;
const NANOS_PER_S: u64 = 1_000_000_000;

/// The rate of a bucket: how many tokens it gets per second, and how many it can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Tokens per second. Minimum: 1. Maximum: 1,000,000,000.
    pub per_second: NonZeroU32,
    /// The most tokens that the bucket holds. Minimum: 1.
    pub burst: NonZeroU32,
}

/// Why a bucket refused tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There will be enough tokens after this many milliseconds, if no other caller takes them.
    RetryAfterMs(u64),
    /// The bucket never holds that many tokens.
    OverBurst {
        /// How many were asked for.
        asked: u32,
        /// How many the bucket can hold.
        burst: u32,
    },
}

/// A token bucket. It starts full. Threads may share it.
#[derive(Debug)]
pub struct Bucket {
    limiter: RateLimiter<NotKeyed, InMemoryState, BucketClock, StateInformationMiddleware>,
    now: BucketClock,
    rate: Rate,
    /// Tokens that were taken and not used.
    returned: AtomicU32,
}

impl Rate {
    /// A rate. A zero counts as 1, and more than 10^9 tokens per second as 10^9.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let at_least_one = |number: u32| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self { per_second: at_least_one(per_second.min(1_000_000_000)), burst: at_least_one(burst) }
    }

    /// How long an empty bucket takes to be full again. A bucket that was idle for this long equals a new
    /// one.
    pub const fn refill_ms(&self) -> u64 {
        (self.burst.get() as u64 * 1000).div_ceil(self.per_second.get() as u64)
    }
}

impl Bucket {
    /// A full bucket. `now_ms` is monotonic time, in all methods.
    pub fn new(rate: Rate, now_ms: u64) -> Self {
        let now = BucketClock(Arc::new(AtomicU64::new(now_ms.saturating_mul(NANOS_PER_MS))));
        let per_second = rate.per_second.min(Rate::new(u32::MAX, 1).per_second);
        let quota = Quota::per_second(per_second).allow_burst(rate.burst);
        let limiter = RateLimiter::direct_with_clock(quota, now.clone()).with_middleware();
        Self { limiter, now, rate, returned: AtomicU32::new(0) }
    }

    /// Takes `n` tokens, or none if there are fewer.
    pub fn take(&self, n: u32, now_ms: u64) -> Result<(), Refused> {
        let asked = n;
        let spare = self.take_returned(asked);
        let Some(n) = NonZeroU32::new(asked - spare) else { return Ok(()) };
        self.now.advance(now_ms);
        match self.limiter.check_n(n) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(not_until)) => {
                self.put_back(spare);
                let wait = not_until.wait_time_from(self.now.now());
                let wait_ms = u64::try_from(wait.as_nanos().div_ceil(NANOS_PER_MS.into()));
                Err(Refused::RetryAfterMs(wait_ms.unwrap_or(u64::MAX).max(1)))
            }
            Err(_) => {
                self.put_back(spare);
                Err(Refused::OverBurst { asked, burst: self.rate.burst.get() })
            }
        }
    }

    /// Gives back tokens that were taken and not used.
    pub fn put_back(&self, n: u32) {
        let burst = self.rate.burst.get();
        let add = |returned: u32| Some(returned.saturating_add(n).min(burst));
        // The closure always returns `Some`, so the update cannot fail.
        let _ = self.returned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    fn take_returned(&self, n: u32) -> u32 {
        let less = |returned: u32| (returned > 0).then(|| returned - returned.min(n));
        self.returned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).map_or(0, |had| had.min(n))
    }

    /// Takes as many tokens as there are, at most `n`, and returns how many.
    pub fn take_up_to(&self, n: u32, now_ms: u64) -> u32 {
        let n = n.min(self.rate.burst.get());
        if self.take(n, now_ms).is_ok() {
            return n;
        }
        // The answer to taking one token says how many are left, so the rest is taken at once. If another
        // thread takes them first, this call gets only the one.
        match self.limiter.check() {
            Ok(after) => {
                let rest = after.remaining_burst_capacity().min(n.saturating_sub(1));
                if self.take(rest, now_ms).is_ok() { 1 + rest } else { 1 }
            }
            Err(_) => 0,
        }
    }

    /// The rate of this bucket.
    pub const fn rate(&self) -> Rate {
        self.rate
    }
}

impl Refused {
    /// The refusal as an error that says whose limit it is.
    pub(crate) fn of(self, whose: RateOwner) -> BusError {
        match self {
            Self::RetryAfterMs(retry_after_ms) => BusError::RateLimited { whose, retry_after_ms },
            Self::OverBurst { asked, burst } => BusError::OverBurst { whose, asked, burst },
        }
    }
}

/// The clock of one bucket: the latest time that any caller passed in, in nanoseconds. It never goes back.
#[derive(Debug, Clone)]
struct BucketClock(Arc<AtomicU64>);

impl BucketClock {
    fn advance(&self, now_ms: u64) {
        self.0.fetch_max(now_ms.saturating_mul(NANOS_PER_MS), Ordering::Relaxed);
    }
}

impl GovernorClock for BucketClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.0.load(Ordering::Relaxed))
    }
}

// The longest wait for tokens must not overflow the limiter's nanoseconds.
const _: () = assert!(u32::MAX as u64 <= u64::MAX / NANOS_PER_S);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(per_second: u32, burst: u32) -> Bucket {
        Bucket::new(Rate::new(per_second, burst), 1_000)
    }

    #[test]
    fn a_full_bucket_empties_and_refills_at_its_rate() {
        let bucket = bucket(10, 3);
        assert_eq!(bucket.take(3, 1_000), Ok(()));
        assert_eq!(bucket.take(1, 1_000), Err(Refused::RetryAfterMs(100)));
        assert_eq!(bucket.take(1, 1_099), Err(Refused::RetryAfterMs(1)));
        assert_eq!(bucket.take(1, 1_100), Ok(()));
        assert_eq!(bucket.take(3, 1_100), Err(Refused::RetryAfterMs(300)));
        assert_eq!(bucket.take(3, 1_400), Ok(()));
        assert_eq!(bucket.take(0, 1_400), Ok(()));
    }

    #[test]
    fn a_refusal_takes_nothing() {
        let bucket = bucket(1, 5);
        assert_eq!(bucket.take(4, 1_000), Ok(()));
        assert!(bucket.take(2, 1_000).is_err());
        assert_eq!(bucket.take(1, 1_000), Ok(()));
    }

    #[test]
    fn more_than_the_bucket_holds_is_refused() {
        let bucket = bucket(10, 3);
        assert_eq!(bucket.take(4, 9_999), Err(Refused::OverBurst { asked: 4, burst: 3 }));
        assert_eq!(bucket.take_up_to(100, 9_999), 3);
        assert_eq!(Refused::OverBurst { asked: 4, burst: 3 }.of(RateOwner::Topic).code(), "rate_limited");
        assert_eq!(Refused::RetryAfterMs(4).of(RateOwner::Topic).retry_after_ms(), Some(4));
    }

    #[test]
    fn take_up_to_takes_the_tokens_that_are_left() {
        let bucket = bucket(1000, 10);
        assert_eq!(bucket.take_up_to(4, 1_000), 4);
        assert_eq!(bucket.take_up_to(10, 1_000), 6);
        assert_eq!(bucket.take_up_to(10, 1_000), 0);
        assert_eq!(bucket.take_up_to(10, 1_003), 3);
        assert_eq!(bucket.take_up_to(0, 1_003), 0);
    }

    #[test]
    fn time_does_not_go_back() {
        let bucket = bucket(10, 1);
        assert_eq!(bucket.take(1, 5_000), Ok(()));
        assert_eq!(bucket.take(1, 10), Err(Refused::RetryAfterMs(100)));
    }

    #[test]
    fn rates_are_never_zero() {
        assert_eq!(Rate::new(0, 0), Rate::new(1, 1));
        assert_eq!(Rate::new(3, 10).refill_ms(), 3_334);
        assert!(serde_json::from_str::<Rate>(r#"{"per_second":0,"burst":1}"#).is_err());
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate_allow(
            rate in 1_u32..2000,
            burst in 1_u32..300,
            steps in proptest::collection::vec((0_u64..50, 0_u32..400, any::<bool>()), 1..100),
        ) {
            let bucket = bucket(rate, burst);
            let (mut now, mut taken) = (1_000, 0_u64);
            for (passed, n, partly) in steps {
                now += passed;
                taken += u64::from(if partly {
                    bucket.take_up_to(n, now)
                } else if bucket.take(n, now).is_ok() {
                    n
                } else {
                    0
                });
                // The limiter rounds the time between tokens to whole nanoseconds, which gives at most one
                // extra token in 10^5.
                let most = u64::from(burst) + (now - 1_000) * u64::from(rate) / 999 + 1;
                prop_assert!(taken <= most, "{taken} > {most}");
            }
        }

        #[test]
        fn after_the_wait_there_is_enough(rate in 1_u32..5000, burst in 1_u32..300, n in 1_u32..300) {
            let bucket = bucket(rate, burst);
            bucket.take_up_to(burst, 1_000);
            if let Err(Refused::RetryAfterMs(wait)) = bucket.take(n, 1_000) {
                prop_assert_eq!(bucket.take(n, 1_000 + wait), Ok(()));
            } else {
                prop_assert!(n > burst);
            }
        }
    }
}
