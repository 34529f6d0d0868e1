//! Topics and events that a reader saw after the run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::entry::payload_hash;

/// Topics by name, each read from its earliest offset to its end.
pub type ObservedTopics = BTreeMap<String, ObservedTopic>;

/// One topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedTopic {
    /// The earliest kept offset; retention dropped the events below it.
    pub earliest: u64,
    /// Whether older events of a key may be gone, leaving holes.
    #[serde(default)]
    pub compacted: bool,
    /// In the order they were read.
    pub events: Vec<ObservedEvent>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedEvent {
    /// Its offset.
    pub offset: u64,
    /// Its id.
    pub id: String,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// [`payload_hash`] of its payload.
    pub payload: u64,
}

impl ObservedEvent {
    /// An event as it was read.
    #[must_use]
    pub fn new(offset: u64, id: &str, key: Option<&str>, payload: &[u8]) -> Self {
        Self { offset, id: id.to_owned(), key: key.map(str::to_owned), payload: payload_hash(payload) }
    }
}
