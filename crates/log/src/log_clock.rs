//! The two times of the log. Both follow the machine's wall clock, and neither trusts its leaps.
//!
//! - **Stamp time** gives events their stamps. It follows a leap of the wall clock only after the leap has lasted for ten
//!   minutes, see [`SteadyClock`].
//! - **Age time** is the present for retention, compaction and dedupe windows: the age of an event is this less its append
//!   time. It never goes back. It runs towards stamp time, at most ten times as fast as time passes, and at half the speed
//!   while it is ahead. So no leap makes an event old at once, and none stops events from getting old.
//! - The **append time** of an event is the later of the two. While age time catches up, it is behind the append times of new
//!   events, so they are never taken for older than they are.
//!
//! Age time is known across restarts by the append times of segments: it goes on from the newest of them.

use std::sync::{Arc, Mutex};

use promethean_model::{Clock, SteadyClock, SteadyTime};

use crate::poison::lock;

/// How much faster than time itself age time may run.
const CATCH_UP: u64 = 10;
/// A difference between times that needs no notice.
pub(crate) const NEAR_MS: i64 = 60_000;

/// The times at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogTimes {
    /// For stamps.
    pub(crate) stamp: i64,
    /// The present, for ages.
    pub(crate) age: i64,
    /// By how much the wall clock leapt, as long as that is not followed.
    pub(crate) leap: i64,
    /// Whether the wall clock has not leapt for ten minutes.
    pub(crate) is_confirmed: bool,
}

impl LogTimes {
    /// The append time of an event that is appended now.
    pub(crate) fn append(&self) -> i64 {
        self.stamp.max(self.age)
    }
}

/// Reads the machine's clock for the log.
#[derive(Debug)]
pub(crate) struct LogClock {
    clock: SteadyClock,
    age: Mutex<AgeTime>,
}

#[derive(Debug)]
struct AgeTime {
    reached: i64,
    /// The uptime when it was reached.
    at: u64,
    /// The newest append time that was known at the open.
    newest: i64,
}

impl LogClock {
    /// `newest`: the newest append time in the directory.
    pub(crate) fn new(clock: Arc<dyn Clock>, newest: Option<i64>) -> Self {
        let clock = SteadyClock::new(clock);
        let SteadyTime { now_ms, uptime_ms, .. } = clock.read();
        let newest = newest.unwrap_or(now_ms);
        let age = AgeTime { reached: newest.min(now_ms), at: uptime_ms, newest };
        Self { clock, age: Mutex::new(age) }
    }

    pub(crate) fn read(&self) -> LogTimes {
        let mut age = lock(&self.age);
        // Read under the lock, so that uptime never goes back from reading to reading.
        let SteadyTime { now_ms, uptime_ms, leap_ms, is_confirmed } = self.clock.read();
        LogTimes { stamp: now_ms, age: age.move_on(now_ms, uptime_ms), leap: leap_ms, is_confirmed }
    }

    /// The age time.
    pub(crate) fn age(&self) -> i64 {
        self.read().age
    }
}

impl AgeTime {
    fn move_on(&mut self, now: i64, uptime: u64) -> i64 {
        let passed = uptime.saturating_sub(self.at);
        if self.reached < self.newest && now >= self.newest {
            // The clock was behind at the open. Time had come at least so far.
            self.reached = self.newest;
        }
        let step = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        if now >= self.reached {
            self.reached = now.min(self.reached.saturating_add(step(passed.saturating_mul(CATCH_UP))));
            self.at = uptime;
        } else {
            self.reached = self.reached.saturating_add(step(passed / 2));
            // A rest of a millisecond counts next time.
            self.at = uptime - passed % 2;
        }
        self.reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    fn age(reached: i64, newest: i64) -> AgeTime {
        AgeTime { reached, at: 0, newest }
    }

    #[test]
    fn without_leaps_it_is_the_time() {
        let mut age = age(1_000, 1_000);
        for passed in [1, 2, 1_000, 50_000_000] {
            assert_eq!(age.move_on(1_000 + passed, passed as u64), 1_000 + passed);
        }
    }

    #[test]
    fn it_follows_a_leap_at_ten_times_the_speed() {
        let mut age = age(0, 0);
        assert_eq!(age.move_on(DAY, 0), 0);
        assert_eq!(age.move_on(DAY + 1, 1), 10);
        assert_eq!(age.move_on(DAY + 1_000, 1_000), 10_000);
        assert_eq!(age.move_on(2 * DAY, DAY as u64), 2 * DAY);
    }

    #[test]
    fn it_never_stops_and_never_goes_back() {
        let mut age = age(DAY, DAY);
        for passed in 1..=1_000 {
            let before = age.reached;
            let now = age.move_on(passed, passed as u64);
            assert!(now == DAY + passed / 2 && now >= before);
        }
        // The clock catches up with it.
        assert_eq!(age.move_on(2 * DAY, 2 * DAY as u64), 2 * DAY);
    }

    #[test]
    fn a_clock_that_was_behind_at_the_open_is_believed_when_it_is_set() {
        let mut age = age(0, 20_000 * DAY);
        assert_eq!(age.move_on(10, 10), 10);
        assert_eq!(age.move_on(20_000 * DAY + 5, 15), 20_000 * DAY + 5);
    }
}
