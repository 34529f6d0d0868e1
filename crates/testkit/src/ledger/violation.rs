//! Violations: promises that the checker found broken.

use std::fmt;

use super::entry::OpId;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "the fields are a topic, an event's id, offsets and names, as in the printed text"
)]
pub enum Violation {
    /// An event was acknowledged, retention and compaction must keep it, and the reader did not see it.
    Missing { topic: String, id: String, offset: u64 },
    /// An event was acknowledged at one offset and seen at another.
    WrongOffset { topic: String, id: String, acked: u64, found: u64 },
    /// Tries of one event were acknowledged at different offsets.
    AckMoved { topic: String, id: String, first: u64, second: u64 },
    /// The reader saw one event more than once.
    Duplicated { topic: String, id: String, offsets: Vec<u64> },
    /// The key or payload is not the published one.
    ContentDiffers { topic: String, id: String, offset: u64 },
    /// The reader saw an event that was refused.
    FailedPresent { topic: String, id: String, offset: u64 },
    /// The reader saw an event that no producer published.
    NeverInvoked { topic: String, id: String, offset: u64 },
    /// The reader saw some events of a batch and not others.
    TornBatch { batch: String, present: Vec<String>, absent: Vec<String> },
    /// A producer's event comes after an event that it invoked later.
    OutOfOrder { producer: String, topic: String, id: String, offset: u64 },
    /// Offsets have a gap after the earliest kept offset.
    Gap { topic: String, expected: u64, found: u64 },
    /// The ledger contradicts itself, so it proves nothing.
    Malformed { op: OpId, why: &'static str },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { topic, id, offset } => {
                write!(f, "lost: {topic}@{offset} `{id}` was acknowledged and is not there")
            }
            Self::WrongOffset { topic, id, acked, found } => {
                write!(f, "moved: {topic} `{id}` was acknowledged at {acked} and is at {found}")
            }
            Self::AckMoved { topic, id, first, second } => {
                write!(f, "two acks: {topic} `{id}` was acknowledged at {first} and at {second}")
            }
            Self::Duplicated { topic, id, offsets } => {
                write!(f, "duplicated: {topic} `{id}` is at {offsets:?}")
            }
            Self::ContentDiffers { topic, id, offset } => {
                write!(f, "changed: {topic}@{offset} `{id}` has another key or payload than was published")
            }
            Self::FailedPresent { topic, id, offset } => {
                write!(f, "not refused: {topic}@{offset} `{id}` was answered with an error and is there")
            }
            Self::NeverInvoked { topic, id, offset } => {
                write!(f, "invented: {topic}@{offset} `{id}` was never published")
            }
            Self::TornBatch { batch, present, absent } => {
                write!(f, "torn: batch `{batch}` has {present:?} and lacks {absent:?}")
            }
            Self::OutOfOrder { producer, topic, id, offset } => {
                write!(
                    f,
                    "out of order: {topic}@{offset} `{id}` stands after a later event of producer `{producer}`"
                )
            }
            Self::Gap { topic, expected, found } => {
                write!(f, "gap: {topic} goes on at {found} instead of {expected}")
            }
            Self::Malformed { op, why } => write!(f, "malformed ledger: operation {op} {why}"),
        }
    }
}

/// Counts of a run without violations; a test asserts that the run did something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events acknowledged and seen.
    pub ok: u64,
    /// Events acknowledged, dropped by retention or compaction since.
    pub ok_dropped: u64,
    /// Events refused.
    pub failed: u64,
    /// Events of unknown outcome that were seen.
    pub unknown_present: u64,
    /// Events of unknown outcome that were not seen.
    pub unknown_absent: u64,
}
