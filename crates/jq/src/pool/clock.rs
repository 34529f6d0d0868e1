//! How long a thread was at work, without the time that it waited for a processor.

use std::path::{Path, PathBuf};

/// The processor time of a thread, as the kernel counts it.
#[derive(Debug)]
pub(super) struct ThreadClock(PathBuf);

impl ThreadClock {
    /// The clock of the calling thread; `None` where the system does not tell.
    pub(super) fn of_this_thread() -> Option<Self> {
        let thread = std::fs::read_link("/proc/thread-self").ok()?;
        let clock = Self(Path::new("/proc").join(thread).join("schedstat"));
        // The kernel counts when a thread gives the processor away, so a new thread may still stand at zero.
        std::thread::yield_now();
        // Some kernels have the file and count nothing.
        clock.nanos().filter(|nanos| *nanos > 0)?;
        Some(clock)
    }

    /// Nanoseconds on a processor so far.
    pub(super) fn nanos(&self) -> Option<u64> {
        std::fs::read_to_string(&self.0).ok()?.split(' ').next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burn(clock: &ThreadClock, nanos: u64) {
        let before = clock.nanos().unwrap();
        let mut sum = 0_u64;
        while clock.nanos().unwrap() - before < nanos {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }

    #[test]
    fn it_counts_work_and_not_waiting() {
        let Some(clock) = ThreadClock::of_this_thread() else { return };
        let before = clock.nanos().unwrap();
        // This thread waits for as long as the other one works.
        let other = std::thread::spawn(|| burn(&ThreadClock::of_this_thread().unwrap(), 100_000_000));
        other.join().unwrap();
        let waited = clock.nanos().unwrap() - before;
        assert!(waited < 50_000_000, "{waited}");
        burn(&clock, 5_000_000);
    }
}
