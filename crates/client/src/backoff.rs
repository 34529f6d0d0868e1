//! Waiting times between tries.

use std::time::Duration;

/// The shortest and the longest wait between two tries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { min: Duration::from_millis(100), max: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The wait after this many tries failed: it doubles with each try up to the longest, and its upper half is
    /// random, so that many clients do not come back at the same moment.
    pub(crate) fn after(&self, tries: u32) -> Duration {
        let most = self.min.saturating_mul(2_u32.saturating_pow(tries.min(20))).min(self.max);
        most / 2 + most.mul_f64(random_part() / 2.0)
    }
}

/// A random number from 0 to 1.
fn random_part() -> f64 {
    // Without randomness all clients wait equally long, which is no reason to fail.
    let random = getrandom::u32().unwrap_or(u32::MAX);
    f64::from(random) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_never_short() {
        let backoff = Backoff { min: Duration::from_millis(100), max: Duration::from_secs(1) };
        for (tries, most) in [(0, 100), (1, 200), (3, 800), (4, 1_000), (40, 1_000)] {
            for _ in 0..50 {
                let wait = backoff.after(tries);
                assert!(wait >= Duration::from_millis(most / 2), "{tries}: {wait:?}");
                assert!(wait <= Duration::from_millis(most), "{tries}: {wait:?}");
            }
        }
    }
}
