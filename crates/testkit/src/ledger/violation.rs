//! What the checker finds.

use std::fmt;

use super::entry::OpId;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "the fields are a topic, an event's id, offsets and names, as in the printed text"
)]
pub enum Violation {
    /// Acknowledged, kept by retention and compaction, and not there.
    Missing { topic: String, id: String, offset: u64 },
    /// Acknowledged at one offset and found at another.
    WrongOffset { topic: String, id: String, acked: u64, found: u64 },
    /// Tries of one event were acknowledged at different offsets.
    AckMoved { topic: String, id: String, first: u64, second: u64 },
    /// One event is there more than once.
    Duplicated { topic: String, id: String, offsets: Vec<u64> },
    /// The key or payload is not what was published.
    ContentDiffers { topic: String, id: String, offset: u64 },
    /// Refused, and there.
    FailedPresent { topic: String, id: String, offset: u64 },
    /// Nobody published it.
    NeverInvoked { topic: String, id: String, offset: u64 },
    /// Some events of a batch are there and some are not.
    TornBatch { batch: String, present: Vec<String>, absent: Vec<String> },
    /// A producer's event stands after one that it invoked later.
    OutOfOrder { producer: String, topic: String, id: String, offset: u64 },
    /// Offsets do not run on from the earliest that is kept.
    Gap { topic: String, expected: u64, found: u64 },
    /// The ledger itself makes no sense, so nothing it says counts.
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

/// What a run without violations did, to assert that it did anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events acknowledged and there.
    pub ok: u64,
    /// Events acknowledged, dropped by retention or compaction since.
    pub ok_dropped: u64,
    /// Events refused.
    pub failed: u64,
    /// Events of unknown outcome that are there.
    pub unknown_present: u64,
    /// Events of unknown outcome that are not there.
    pub unknown_absent: u64,
}
