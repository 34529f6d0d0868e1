//! The options of a log and the policies of its topics.

use crate::error::LogOpenError;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// Positions in a segment are 32 bits wide.
const SEGMENT_BYTES_MAX: u64 = u32::MAX as u64;

/// The sizes and bounds of a log. `Default` suits a server.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Size of one journal file; a batch must fit into one file. Default: 32 MiB. Minimum: 1 KiB.
    pub journal_file_bytes: u64,
    /// A checkpoint is taken after this many journal bytes at the latest. Default: 32 MiB. Minimum: 1 KiB.
    pub checkpoint_bytes: u64,
    /// Size of the largest segment. Default: 64 MiB. Minimum: 1 KiB, maximum: 4 GiB - 1.
    pub segment_bytes: u64,
    /// Bytes of events kept in memory until they are written to segments. Default: 16 MiB. Minimum: 512
    /// bytes.
    pub tail_bytes: u64,
    /// Memory of the index for entries that are not in runs yet. Default: 64 MiB. Minimum: 4 KiB, maximum: 64
    /// GiB.
    pub index_bytes: u64,
    /// Bytes that may wait for the writer; beyond that, further batches wait for room. Default: 16 MiB. Minimum: 1 KiB.
    pub queue_bytes: usize,
    /// The most open segment files. Default: 512. Minimum: 8.
    pub open_files: usize,
    /// The most topics. Default: 100,000. Minimum: 1.
    pub topics: u32,
    /// Publishing stops while fewer bytes than this are free. Default: 256 MiB.
    pub reserve_bytes: u64,
    /// Publishing stops while fewer files than this can be created. Default: 256.
    pub reserve_files: u64,
    /// How long a batch waits for earlier work before it is refused as busy. Default: 5 s.
    pub room_wait_ms: u64,
    /// Longest time between the ack of an `os` batch and its sync. Default: 50 ms.
    pub os_sync_interval_ms: u64,
    /// How often retention and compaction look for work. Default: 1 s.
    pub maintenance_interval_ms: u64,
    /// A compacted topic is compacted when this share of its bytes is new, which means that no compaction has
    /// looked at them. Default: 50 %. Minimum: 1, maximum: 100.
    pub compaction_new_percent: u64,
    /// Fewer new bytes than this are compacted by age only. Default: 1 MiB.
    pub compaction_bytes_min: u64,
    /// A compacted topic is compacted when its oldest new event has been there for so long, unless it is larger
    /// than `compaction_bytes_min` and less than a third of it is new. Default: 1 min.
    pub compaction_age_ms: u64,
    /// `false` runs everything on the caller's thread, one step after the other. Default: `true`.
    pub threads: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            journal_file_bytes: 32 * MIB,
            checkpoint_bytes: 32 * MIB,
            segment_bytes: 64 * MIB,
            tail_bytes: 16 * MIB,
            index_bytes: 64 * MIB,
            queue_bytes: 16 * MIB as usize,
            open_files: 512,
            topics: 100_000,
            reserve_bytes: 256 * MIB,
            reserve_files: 256,
            room_wait_ms: 5000,
            os_sync_interval_ms: 50,
            maintenance_interval_ms: 1000,
            compaction_new_percent: 50,
            compaction_bytes_min: MIB,
            compaction_age_ms: 60_000,
            threads: true,
        }
    }
}

impl LogOptions {
    /// Refuses sizes that a log cannot work with.
    pub(crate) fn check(&self) -> Result<(), LogOpenError> {
        let bounds = [
            ("journal_file_bytes", self.journal_file_bytes, KIB, u64::MAX),
            ("checkpoint_bytes", self.checkpoint_bytes, KIB, u64::MAX),
            ("segment_bytes", self.segment_bytes, KIB, SEGMENT_BYTES_MAX),
            ("tail_bytes", self.tail_bytes, 512, u64::MAX),
            ("index_bytes", self.index_bytes, 4 * KIB, 64 * KIB * MIB),
            ("queue_bytes", self.queue_bytes as u64, KIB, u64::MAX),
            ("open_files", self.open_files as u64, 8, u64::MAX),
            ("topics", u64::from(self.topics), 1, u64::MAX),
            ("compaction_new_percent", self.compaction_new_percent, 1, 100),
            ("compaction_bytes_min", self.compaction_bytes_min, 0, u64::MAX),
            ("compaction_age_ms", self.compaction_age_ms, 0, u64::MAX),
        ];
        for (option, value, min, max) in bounds {
            // Products of these with small factors must fit into 64 bits.
            let max = max.min(u64::MAX / KIB);
            if value < min {
                return Err(LogOpenError::Options { option, value, bound: "at least", limit: min });
            }
            if value > max {
                return Err(LogOpenError::Options { option, value, bound: "at most", limit: max });
            }
        }
        Ok(())
    }
}

/// The events that a topic keeps. The owner of the log sets it at every open; the log does not persist it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPolicy {
    /// Events appended longer ago are removed. Default: none.
    pub age_ms: Option<u64>,
    /// The oldest events are removed when the topic has more bytes. Default: none.
    pub bytes: Option<u64>,
    /// The oldest events are removed when the topic has more events. Default: none.
    pub count: Option<u64>,
    /// Whether only the latest event of each key is kept. Default: `false`.
    pub compacted: bool,
    /// How long the ids of removed events are remembered. Default: 24 h.
    pub dedupe_window_ms: u64,
    /// How long a compacted topic keeps tombstones. Default: 24 h.
    pub tombstone_ms: u64,
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

impl Default for TopicPolicy {
    fn default() -> TopicPolicy {
        TopicPolicy {
            age_ms: None,
            bytes: None,
            count: None,
            compacted: false,
            dedupe_window_ms: DAY_MS,
            tombstone_ms: DAY_MS,
        }
    }
}

impl TopicPolicy {
    /// The size of the largest segment of a topic with this policy: bounded topics have small segments, so
    /// that they are trimmed in small steps.
    pub(crate) fn segment_bytes(&self, most: u64) -> u64 {
        self.bytes.map_or(most, |bytes| (bytes / 8).clamp(4096, most.max(4096)).min(most))
    }
}
