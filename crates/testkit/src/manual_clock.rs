//! Time that a test controls.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use promethean_model::{Clock, SystemClock};

/// A clock under the control of a test. Wall and monotonic time can be moved apart, as they are on a machine whose wall
/// clock is set.
///
/// Shared by reference or `Arc`; every reader sees a change at once.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    monotonic_ms: AtomicU64,
    /// The clock whose time is added; `None`: time stands still until the test moves it.
    system: Option<SystemClock>,
}

impl ManualClock {
    /// A clock that stands still at this wall time; monotonic time starts at 0.
    #[must_use]
    pub fn new(wall_ms: i64) -> Self {
        Self { wall_ms: AtomicI64::new(wall_ms), monotonic_ms: AtomicU64::new(0), system: None }
    }

    /// A clock that runs with the clock of the system and can be moved forward besides. For what waits on timers of the
    /// runtime.
    #[must_use]
    pub fn running() -> Self {
        Self { system: Some(SystemClock::new()), ..Self::default() }
    }

    /// Lets time pass, on both clocks.
    pub fn advance(&self, ms: u64) {
        self.advance_wall(i64::try_from(ms).unwrap_or(i64::MAX));
        self.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Moves wall time alone, backwards too.
    pub fn advance_wall(&self, ms: i64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets wall time alone, backwards too.
    pub fn set_wall(&self, ms: i64) {
        let system = self.system.as_ref().map_or(0, Clock::wall_ms);
        self.wall_ms.store(ms - system, Ordering::SeqCst);
    }

    /// Sets monotonic time of a clock that stands still.
    ///
    /// # Panics
    /// If that would move it backwards: no machine does.
    pub fn set_monotonic(&self, ms: u64) {
        let before = self.monotonic_ms.swap(ms, Ordering::SeqCst);
        assert!(before <= ms, "monotonic time set back from {before} to {ms}");
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst) + self.system.as_ref().map_or(0, Clock::wall_ms)
    }

    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ms.load(Ordering::SeqCst) + self.system.as_ref().map_or(0, Clock::monotonic_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_on_both_clocks() {
        let clock = ManualClock::new(1_000);
        clock.advance(250);
        assert_eq!((clock.wall_ms(), clock.monotonic_ms()), (1_250, 250));
    }

    #[test]
    fn wall_time_jumps_back_and_monotonic_time_does_not_notice() {
        let clock = ManualClock::new(5_000);
        clock.advance(10);
        clock.advance_wall(-4_000);
        assert_eq!((clock.wall_ms(), clock.monotonic_ms()), (1_010, 10));
        clock.set_wall(-1);
        assert_eq!((clock.wall_ms(), clock.monotonic_ms()), (-1, 10));
    }

    #[test]
    fn a_running_clock_can_be_moved_forward() {
        let clock = ManualClock::running();
        let before = (clock.wall_ms(), clock.monotonic_ms());
        clock.advance(60_000);
        assert!(clock.wall_ms() >= before.0 + 60_000 && clock.monotonic_ms() >= before.1 + 60_000);
    }

    #[test]
    #[should_panic(expected = "set back")]
    fn monotonic_time_is_never_set_back() {
        let clock = ManualClock::default();
        clock.set_monotonic(9);
        clock.set_monotonic(8);
    }
}
