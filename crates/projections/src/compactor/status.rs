//! What a compactor tells of itself.

use promethean_model::Offset;
use serde::Serialize;

/// How a compactor is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CompactorStatus {
    /// Everything below this offset is in snapshots.
    pub position: Offset,
    /// Where the topic ended when the last round began.
    pub end: Offset,
    /// Why the last round failed, if it did.
    pub last_error: Option<String>,
    /// How long the last round took.
    pub last_round_ms: Option<u64>,
    /// How many rounds there were since the start.
    pub rounds: u64,
    /// How many snapshots were published since the start.
    pub published_total: u64,
    /// How many events were gone before they were seen, since the start.
    pub missed_total: u64,
    /// How often the program for the key failed since the start; such events are passed over.
    pub key_failures_total: u64,
    /// What it said the last time.
    pub last_key_failure: Option<String>,
}
