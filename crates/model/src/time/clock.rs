//! The clock. Everything that needs the time is handed a `Clock`, so tests and simulations decide what time
//! it is.

use std::fmt::Debug;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Milliseconds since 1970 began, negative before. The clock may jump either way.
    fn wall_ms(&self) -> i64;
    /// Milliseconds since some fixed moment of this process. They never decrease; deadlines are counted in
    /// them.
    fn monotonic_ms(&self) -> u64;
    /// As `monotonic_ms`, and time in which the machine sleeps counts too, if the clock can tell.
    fn uptime_ms(&self) -> u64 {
        self.monotonic_ms()
    }
}

/// The machine's clock. Monotonic time counts from its creation, so compare only readings of one
/// `SystemClock` and its copies.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    created: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time is 0 now.
    #[expect(clippy::disallowed_methods, reason = "the one home of the machine's clock")]
    pub fn new() -> Self {
        Self { created: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one home of the machine's clock")]
    fn wall_ms(&self) -> i64 {
        let ms = |duration: std::time::Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => ms(after),
            Err(before) => -ms(before.duration()),
        }
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.created.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    #[cfg(target_os = "linux")]
    fn uptime_ms(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let ms = time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000);
        u64::try_from(ms).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_machine() {
        let clock = SystemClock::new();
        let first = clock.monotonic_ms();
        assert!(clock.wall_ms() > 1_700_000_000_000);
        assert!(clock.monotonic_ms() >= first);
        assert!(clock.uptime_ms() > 0);
    }
}
