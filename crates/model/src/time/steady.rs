//! A wall clock that does not follow a leap before it has lasted.

use std::sync::{Arc, Mutex};

use super::Clock;
use crate::lock::IgnorePoison;

/// A difference between the wall clock and the time that passed which counts as a leap. Smaller ones are followed at once.
const LEAP_MS: i64 = 60_000;
/// How long a leap must last until it is followed.
const CONFIRM_MS: u64 = 10 * 60_000;

/// The wall clock of another clock, without its leaps.
///
/// Where the wall clock leaps by more than a minute against the time that passed, in either direction, this clock goes on
/// as if it had not, for ten minutes; if the leap lasts so long, this clock follows it. Time in which the machine sleeps
/// counts as time that passed.
#[derive(Debug)]
pub struct SteadyClock {
    clock: Arc<dyn Clock>,
    state: Mutex<SteadyState>,
}

#[derive(Debug)]
struct SteadyState {
    /// The time that was read last, and the uptime then.
    now: i64,
    at: u64,
    /// The uptime at which the leap was seen that is not followed yet.
    leapt_at: Option<u64>,
    /// The uptime since which this clock and the wall clock agree.
    agrees_since: u64,
}

/// What a [`SteadyClock`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteadyTime {
    /// Milliseconds since 1970 began.
    pub now_ms: i64,
    /// The uptime, see [`Clock::uptime_ms`].
    pub uptime_ms: u64,
    /// By how much the wall clock leapt, as long as that is not followed; else 0.
    pub leap_ms: i64,
    /// Whether the wall clock has not leapt for as long as a leap must last to be followed.
    pub is_confirmed: bool,
}

impl SteadyClock {
    /// A clock that agrees with this one now.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (now, at) = (clock.wall_ms(), clock.uptime_ms());
        let state = SteadyState { now, at, leapt_at: None, agrees_since: at };
        Self { clock, state: Mutex::new(state) }
    }

    /// The time.
    pub fn read(&self) -> SteadyTime {
        let mut state = self.state.lock().ignore_poison();
        // Read under the lock: two readings in the other order would look like a step back.
        let (wall, uptime) = (self.clock.wall_ms(), self.clock.uptime_ms());
        let passed = i64::try_from(uptime.saturating_sub(state.at)).unwrap_or(i64::MAX);
        let expected = state.now.saturating_add(passed);
        let leap = wall.saturating_sub(expected);
        let leapt_at = *state.leapt_at.get_or_insert(uptime);
        let follows =
            leap.unsigned_abs() <= LEAP_MS.unsigned_abs() || uptime.saturating_sub(leapt_at) >= CONFIRM_MS;
        (state.now, state.at) = (if follows { wall } else { expected }, uptime);
        if follows {
            state.leapt_at = None;
        }
        if leap.unsigned_abs() > LEAP_MS.unsigned_abs() {
            state.agrees_since = uptime;
        }
        SteadyTime {
            now_ms: state.now,
            uptime_ms: uptime,
            leap_ms: if follows { 0 } else { leap },
            is_confirmed: uptime.saturating_sub(state.agrees_since) >= CONFIRM_MS,
        }
    }
}

impl Clock for SteadyClock {
    fn wall_ms(&self) -> i64 {
        self.read().now_ms
    }

    fn monotonic_ms(&self) -> u64 {
        self.clock.monotonic_ms()
    }

    fn uptime_ms(&self) -> u64 {
        self.clock.uptime_ms()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

    use super::*;

    const YEAR: i64 = 365 * 24 * 3_600_000;

    #[derive(Debug, Default)]
    struct TestClock {
        wall: AtomicI64,
        passed: AtomicU64,
    }

    impl TestClock {
        fn pass(&self, ms: u64) {
            self.wall.fetch_add(ms as i64, Ordering::Relaxed);
            self.passed.fetch_add(ms, Ordering::Relaxed);
        }

        fn leap(&self, ms: i64) {
            self.wall.fetch_add(ms, Ordering::Relaxed);
        }
    }

    impl Clock for TestClock {
        fn wall_ms(&self) -> i64 {
            self.wall.load(Ordering::Relaxed)
        }

        fn monotonic_ms(&self) -> u64 {
            self.passed.load(Ordering::Relaxed)
        }
    }

    fn clocks() -> (Arc<TestClock>, SteadyClock) {
        let clock = Arc::new(TestClock::default());
        clock.leap(1_000_000);
        (Arc::clone(&clock), SteadyClock::new(clock))
    }

    #[test]
    fn time_that_passes_and_small_steps_are_followed() {
        let (clock, steady) = clocks();
        for step in [0, 1, -1, 59_000, -59_000, 60_000, -60_000] {
            clock.pass(86_400_000);
            clock.leap(step);
            assert_eq!((steady.wall_ms(), steady.read().leap_ms), (clock.wall_ms(), 0), "{step}");
        }
    }

    #[test]
    fn a_leap_that_is_taken_back_is_never_followed() {
        for leap in [YEAR, -YEAR, 61_000, -61_000] {
            let (clock, steady) = clocks();
            clock.leap(leap);
            for _ in 0..9 {
                clock.pass(60_000);
                assert_eq!(steady.wall_ms(), clock.wall_ms() - leap);
                assert_eq!(steady.read().leap_ms, leap);
            }
            clock.leap(-leap);
            clock.pass(5);
            assert_eq!((steady.wall_ms(), steady.read().leap_ms), (clock.wall_ms(), 0));
        }
    }

    #[test]
    fn a_leap_that_lasts_is_followed_and_confirmed_later() {
        for leap in [YEAR, -YEAR] {
            let (clock, steady) = clocks();
            assert!(!steady.read().is_confirmed);
            clock.pass(CONFIRM_MS);
            assert!(steady.read().is_confirmed);
            clock.leap(leap);
            assert_eq!(steady.wall_ms(), clock.wall_ms() - leap);
            assert!(!steady.read().is_confirmed);
            clock.pass(CONFIRM_MS - 1);
            assert_eq!(steady.wall_ms(), clock.wall_ms() - leap);
            clock.pass(1);
            assert_eq!(steady.wall_ms(), clock.wall_ms());
            assert!(!steady.read().is_confirmed);
            clock.pass(CONFIRM_MS);
            assert!(steady.read().is_confirmed && steady.wall_ms() == clock.wall_ms());
        }
    }
}
