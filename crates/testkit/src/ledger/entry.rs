//! The lines of a ledger.

use serde::{Deserialize, Serialize};

/// Number of an operation, unique in its ledger.
pub type OpId = u64;

/// One line: an operation begins or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case", deny_unknown_fields)]
pub enum LedgerEntry {
    /// The operation begins. This line is written before the request is sent, so that every event that is seen was invoked.
    Invoked {
        /// The operation.
        op: OpId,
        /// The event that is published.
        event: Invocation,
    },
    /// Acknowledged at this offset, as new or as the duplicate of an earlier try.
    Ok {
        /// The operation.
        op: OpId,
        /// The event's offset in its topic.
        offset: u64,
    },
    /// Refused: the event was not written and will not be.
    Fail {
        /// The operation.
        op: OpId,
    },
    /// Unknown: the event was written, will be written, or never will be.
    Unknown {
        /// The operation.
        op: OpId,
    },
}

/// One event on its way into a topic. Two operations with the same topic and id are tries of one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invocation {
    /// The producer. A producer invokes events in the order in which they must stand; concurrent publishers need different
    /// names.
    pub producer: String,
    /// The topic.
    pub topic: String,
    /// The event's id.
    pub id: String,
    /// The event's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// [`payload_hash`] of its payload.
    pub payload: u64,
    /// Events with the same batch are published together, over all topics; tries of a batch keep its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
}

/// The hash that stands for a payload in a ledger: 64-bit FNV-1a, which differs for payloads that differ in one byte.
#[must_use]
pub fn payload_hash(payload: &[u8]) -> u64 {
    payload.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
