//! Events that compaction may have removed.

use std::collections::BTreeMap;

use super::entry::payload_hash;
use super::observed::ObservedTopics;
use super::tries::{Tries, Try};

/// Topic and key.
type Key<'a> = (&'a str, &'a str);

/// The events and tombstones of each key of compacted topics.
pub(super) struct Holes<'a> {
    /// The highest offset at which a reader saw an event of the key.
    latest: BTreeMap<Key<'a>, u64>,
    /// The highest offset that a tombstone of the key may have had; compaction may have removed it since.
    tombstone: BTreeMap<Key<'a>, u64>,
    observed: &'a ObservedTopics,
}

impl<'a> Holes<'a> {
    pub(super) fn new(tries: &Tries<'a>, observed: &'a ObservedTopics) -> Self {
        let mut latest = BTreeMap::new();
        for (topic, seen) in observed.iter().filter(|(_, seen)| seen.compacted) {
            for event in &seen.events {
                let Some(key) = event.key.as_deref() else { continue };
                let highest = latest.entry((topic.as_str(), key)).or_insert(event.offset);
                *highest = event.offset.max(*highest);
            }
        }
        let mut tombstone = BTreeMap::new();
        for attempt in tries.values().flatten().filter(|attempt| is_tombstone(attempt)) {
            let Some(key) = attempt.event.key.as_deref() else { continue };
            // A tombstone of unknown outcome may have any offset.
            let offset = attempt.acked().unwrap_or(u64::MAX);
            let highest = tombstone.entry((attempt.event.topic.as_str(), key)).or_insert(offset);
            *highest = offset.max(*highest);
        }
        Self { latest, tombstone, observed }
    }

    /// Whether compaction may have removed the event with these tries from this offset.
    pub(super) fn may_be_gone(&self, topic: &str, tries: &[Try<'_>], offset: u64) -> bool {
        if !self.observed.get(topic).is_some_and(|seen| seen.compacted) {
            return false;
        }
        let Some(key) = tries.iter().find_map(|attempt| attempt.event.key.as_deref()) else { return false };
        self.latest.get(&(topic, key)).is_some_and(|latest| *latest > offset)
            || self.tombstone.get(&(topic, key)).is_some_and(|tombstone| *tombstone >= offset)
    }
}

/// Whether the try has the payload `null` and may have been written.
fn is_tombstone(attempt: &Try<'_>) -> bool {
    attempt.may_have_happened() && attempt.event.payload == payload_hash(b"null")
}
