//! Counters, gauges and histograms. No other data depends on these atomics, so every access is relaxed.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use promethean_store::port::SYNC_LIMITS_MS;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

/// The limits of a histogram's buckets.
#[derive(Debug)]
pub struct Bounds {
    /// The highest value in each bucket, ascending, in the unit that is observed.
    pub limits: &'static [u64],
    /// The same limits as text, in the unit that is shown.
    pub labels: &'static [&'static str],
    /// How many observed units make one shown unit.
    pub per_unit: u64,
}

/// Counts how many values fell into each bucket.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static Bounds,
    /// One bucket for each limit and one for larger values; not cumulative.
    buckets: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        // A needless write would slow down other processors that use the same cache line.
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gauge {
    /// Adds `change`, which may be negative.
    pub fn add(&self, change: i64) {
        if change != 0 {
            self.0.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Sets the value. Only for a gauge with one writer; if several share it, each [adds](Self::add) its
    /// changes.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Bounds {
    /// Limits for the time from publish to ack, in milliseconds.
    pub const DELIVERY_MS: Self = Self {
        limits: &[5, 10, 25, 50, 100, 250, 500, 1000],
        labels: &["5", "10", "25", "50", "100", "250", "500", "1000"],
        per_unit: 1,
    };
    /// Limits for the time of a sync of the journal, in milliseconds. The log counts by the same ones.
    pub const SYNC_MS: Self = Self {
        limits: &SYNC_LIMITS_MS,
        labels: &["1", "2", "5", "10", "25", "50", "100", "250", "1000", "5000"],
        per_unit: 1,
    };
    /// Limits for the time of a commit, observed in microseconds and shown in milliseconds.
    pub const COMMIT_US: Self = Self {
        limits: &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000],
        labels: &["0.1", "0.25", "0.5", "1", "2.5", "5", "10", "25", "100", "1000"],
        per_unit: 1000,
    };
}

const _: () = assert!(Bounds::DELIVERY_MS.limits.len() == Bounds::DELIVERY_MS.labels.len());
const _: () = assert!(Bounds::SYNC_MS.limits.len() == Bounds::SYNC_MS.labels.len());
const _: () = assert!(Bounds::COMMIT_US.limits.len() == Bounds::COMMIT_US.labels.len());

impl Histogram {
    /// A histogram without values.
    pub fn new(bounds: &'static Bounds) -> Self {
        let buckets = (0..=bounds.limits.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Adds a value.
    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.limits.partition_point(|limit| *limit < value);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Replaces all values by the counts of a histogram with the same limits that another part keeps. Only for a
    /// histogram with one writer.
    pub fn set(&self, counts: &[u64], sum: u64) {
        for (bucket, count) in self.buckets.iter().zip(counts) {
            bucket.store(*count, Ordering::Relaxed);
        }
        self.sum.store(sum, Ordering::Relaxed);
    }

    /// The limits of its buckets.
    pub const fn bounds(&self) -> &'static Bounds {
        self.bounds
    }

    /// The number of values up to each limit, and last the number of all values. Other threads may add values
    /// during the read; the numbers are running sums, so they ascend all the same.
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
