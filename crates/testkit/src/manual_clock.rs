//! Time that moves only when told to.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use promethean_model::Clock;

/// A clock moved by hand. Wall and monotonic time move apart, as they do when somebody sets the clock.
///
/// Shared by reference or `Arc`; every reader sees a change at once.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    monotonic_ms: AtomicU64,
}

impl ManualClock {
    /// A clock at this wall time; monotonic time starts at 0.
    #[must_use]
    pub fn new(wall_ms: i64) -> Self {
        Self { wall_ms: AtomicI64::new(wall_ms), monotonic_ms: AtomicU64::new(0) }
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
        self.wall_ms.store(ms, Ordering::SeqCst);
    }

    /// Sets monotonic time.
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
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ms.load(Ordering::SeqCst)
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
    #[should_panic(expected = "set back")]
    fn monotonic_time_is_never_set_back() {
        let clock = ManualClock::default();
        clock.set_monotonic(9);
        clock.set_monotonic(8);
    }
}
