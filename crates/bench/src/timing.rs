//! The stopwatch, and the samples it takes.

use std::time::{Duration, Instant};

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the machine's own time, and does so here only"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Runs `work`; returns its result and how long it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = work();
    (result, start.elapsed())
}

/// Processor time of all threads of this process, in user and kernel mode.
pub(crate) fn processor_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

/// The start of stamps, which are in microseconds and always have the same number of digits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch(Instant);

/// The stamp of the epoch itself.
const FIRST_STAMP: u64 = 1_000_000_000_000_000;

impl Epoch {
    pub(crate) fn start() -> Epoch {
        Epoch(now())
    }

    pub(crate) fn stamp(self) -> u64 {
        FIRST_STAMP + self.0.elapsed().as_micros() as u64
    }
}

/// The durations of many operations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    /// Times `count` calls; `work` gets the number of the call.
    pub(crate) fn take(
        count: usize,
        mut work: impl FnMut(usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<Samples> {
        let mut samples = Vec::with_capacity(count);
        for number in 0..count {
            let (result, took) = timed(|| work(number));
            result?;
            samples.push(took);
        }
        Ok(Samples(samples))
    }

    pub(crate) fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(crate) fn append(&mut self, mut more: Samples) {
        self.0.append(&mut more.0);
    }

    /// The percentile in microseconds; 0 without samples.
    pub(crate) fn percentile_us(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        let index = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(index).map_or(0.0, |took| took.as_secs_f64() * 1e6)
    }

    pub(crate) fn max_us(&self) -> f64 {
        self.0.iter().max().map_or(0.0, |took| took.as_secs_f64() * 1e6)
    }

    pub(crate) fn mean_us(&self) -> f64 {
        let total: Duration = self.0.iter().sum();
        total.as_secs_f64() * 1e6 / self.0.len().max(1) as f64
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn p50_us(&mut self) -> f64 {
        self.percentile_us(50)
    }

    pub(crate) fn p99_us(&mut self) -> f64 {
        self.percentile_us(99)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_samples() {
        let mut samples = Samples((1..=100).rev().map(Duration::from_micros).collect());
        assert_eq!(samples.p50_us().round(), 51.0);
        assert_eq!(samples.p99_us().round(), 100.0);
        assert_eq!(Samples::default().p50_us(), 0.0);
    }
}
