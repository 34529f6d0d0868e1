//! Counters, gauges and histograms: atomics that nothing else depends on, so every access is relaxed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// Goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

/// The limits of a histogram's buckets.
#[derive(Debug)]
pub struct Bounds {
    /// The highest value in each bucket, ascending, in the unit that is observed.
    pub limits: &'static [u64],
    /// The same in the unit that is shown.
    pub labels: &'static [&'static str],
    /// How many of the observed unit make one of the shown.
    pub per_unit: u64,
}

/// How many values fell into each bucket.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static Bounds,
    /// One for each limit and one for what is beyond all; not cumulative.
    buckets: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        // A write makes the other processors fetch the line again.
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// How many there were.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gauge {
    /// Up or down by so much.
    pub fn add(&self, change: i64) {
        if change != 0 {
            self.0.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// To this value. Only for a gauge with one writer; where several share it, each [adds](Self::add) its changes.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Bounds {
    /// From publish to ack, in milliseconds.
    pub const DELIVERY_MS: Self = Self {
        limits: &[5, 10, 25, 50, 100, 250, 500, 1000],
        labels: &["5", "10", "25", "50", "100", "250", "500", "1000"],
        per_unit: 1,
    };
    /// Commits, observed in microseconds and shown in milliseconds.
    pub const COMMIT_US: Self = Self {
        limits: &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000],
        labels: &["0.1", "0.25", "0.5", "1", "2.5", "5", "10", "25", "100", "1000"],
        per_unit: 1000,
    };
}

const _: () = assert!(Bounds::DELIVERY_MS.limits.len() == Bounds::DELIVERY_MS.labels.len());
const _: () = assert!(Bounds::COMMIT_US.limits.len() == Bounds::COMMIT_US.labels.len());

impl Histogram {
    /// Nothing observed.
    pub fn new(bounds: &'static Bounds) -> Self {
        let buckets = (0..=bounds.limits.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// One more value.
    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.limits.partition_point(|limit| *limit < value);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The limits.
    pub const fn bounds(&self) -> &'static Bounds {
        self.bounds
    }

    /// How many values there were up to each limit, and at last how many at all. Read one after the other while others
    /// count on; being sums, they ascend nevertheless.
    pub fn cumulative(&self) -> Vec<u64> {
        let mut count = 0;
        let add = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        self.buckets.iter().map(add).collect()
    }

    /// The sum of all values, in the observed unit.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive() {
        let histogram = Histogram::new(&Bounds::DELIVERY_MS);
        for value in [0, 5, 6, 1000, 1001, u32::MAX.into()] {
            histogram.observe(value);
        }
        assert_eq!(histogram.cumulative(), [2, 3, 3, 3, 3, 3, 3, 4, 6]);
        assert_eq!(histogram.sum(), 2012 + u64::from(u32::MAX));
    }
}
