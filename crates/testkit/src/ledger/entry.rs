//! The lines of a ledger.

use serde::{Deserialize, Serialize};

/// Number of an operation, unique in its ledger.
pub type OpId = u64;

/// One line: an operation begins or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case", deny_unknown_fields)]
pub enum LedgerEntry {
    /// About to be sent. Written before the request is, so that nothing is present that was never invoked.
    Invoked {
        /// The operation.
        op: OpId,
        /// What is published.
        event: Invocation,
    },
    /// Acknowledged at this offset, as new or as the duplicate of an earlier try.
    Ok {
        /// The operation.
        op: OpId,
        /// The event's offset in its topic.
        offset: u64,
    },
    /// Refused: it has not happened and will not.
    Fail {
        /// The operation.
        op: OpId,
    },
    /// It may have happened, may still happen, or never will.
    Unknown {
        /// The operation.
        op: OpId,
    },
}

/// One event on its way into a topic. Two operations with the same topic and id are tries of one event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invocation {
    /// Who publishes. One producer invokes in the order it wants to see; concurrent publishers need names of their own.
    pub producer: String,
    /// Where to.
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

/// What stands for a payload in a ledger: FNV-1a of 64 bits, which differs for any two payloads one byte apart.
#[must_use]
pub fn payload_hash(payload: &[u8]) -> u64 {
    payload.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
