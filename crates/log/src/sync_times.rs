//! How long the syncs of the journal took, counted by buckets.

use std::sync::atomic::{AtomicU64, Ordering};

/// The longest sync in each bucket, in milliseconds. One more bucket has all longer ones.
pub const SYNC_LIMITS_MS: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 250, 1000, 5000];

/// Figures of a log for its operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// The number of syncs of the journal in each bucket of [`SYNC_LIMITS_MS`], and of longer ones.
    pub syncs: [u64; SYNC_LIMITS_MS.len() + 1],
    /// How long all syncs took together, in milliseconds.
    pub syncs_ms: u64,
    /// Bytes free for the data directory when the log looked last; `None` if the system does not say.
    pub free_bytes: Option<u64>,
}

/// The syncs since the open. Written by the writer; nothing else depends on these numbers.
#[derive(Debug, Default)]
pub(crate) struct SyncTimes {
    counts: [AtomicU64; SYNC_LIMITS_MS.len() + 1],
    sum_ms: AtomicU64,
}

impl SyncTimes {
    pub(crate) fn add(&self, took_ms: u64) {
        let bucket = SYNC_LIMITS_MS.partition_point(|limit| *limit < took_ms);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_ms.fetch_add(took_ms, Ordering::Relaxed);
    }

    pub(crate) fn figures(&self, free_bytes: Option<u64>) -> LogFigures {
        let syncs = std::array::from_fn(|bucket| {
            self.counts.get(bucket).map_or(0, |count| count.load(Ordering::Relaxed))
        });
        LogFigures { syncs, syncs_ms: self.sum_ms.load(Ordering::Relaxed), free_bytes }
    }
}
