//! One topic of the memory store.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use promethean_model::{EventId, Millis, Offset, TopicSettings};
use xxhash_rust::xxh3::Xxh3;

use crate::port::{AppendEvent, StoredEvent};

/// How long a tombstone outlives compaction.
const TOMBSTONE_MS: i64 = 24 * 60 * 60 * 1000;

/// A topic of the memory store: events, ids, keys and settings.
#[derive(Debug, Default)]
pub(super) struct MemoryTopic {
    /// The kept events; compaction leaves holes.
    events: BTreeMap<u64, KeptEvent>,
    pub(super) next: u64,
    pub(super) earliest: u64,
    pub(super) last_stamp: i64,
    /// How many offsets the last retention would have dropped if no group held them.
    pub(super) held: u64,
    /// Bytes of keys, metas and payloads.
    pub(super) bytes: u64,
    /// Every id that is recognised: of kept events, and of dropped events within the dedupe window.
    ids: HashMap<EventId, KnownId>,
    /// Offsets of kept events.
    keys: HashMap<String, BTreeSet<u64>>,
    pub(super) settings: TopicSettings,
}

#[derive(Debug)]
struct KeptEvent {
    event: StoredEvent,
    appended_ms: i64,
}

/// The part of an event that is remembered to recognise its id.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownId {
    pub(super) offset: u64,
    pub(super) ts: i64,
    pub(super) content: u128,
    appended_ms: i64,
}

/// A hash of key and payload: events with the same id must have the same hash.
pub(super) fn content(event: &AppendEvent) -> u128 {
    let mut hash = Xxh3::new();
    let key = event.key.as_deref();
    hash.update(&[u8::from(key.is_some())]);
    hash.update(&(key.map_or(0, str::len) as u64).to_le_bytes());
    hash.update(key.unwrap_or_default().as_bytes());
    hash.update(event.payload.as_bytes());
    hash.digest128()
}

impl MemoryTopic {
    pub(super) fn new(settings: TopicSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    pub(super) fn known(&self, id: EventId) -> Option<KnownId> {
        self.ids.get(&id).copied()
    }

    pub(super) fn latest_of_key(&self, key: &str) -> Option<u64> {
        self.keys.get(key)?.last().copied()
    }

    /// The time of a new event: the given time, or the clock's, which never decreases within the topic.
    pub(super) fn stamp(&mut self, given: Option<i64>, now_ms: i64) -> i64 {
        given.unwrap_or_else(|| {
            self.last_stamp = self.last_stamp.max(now_ms);
            self.last_stamp
        })
    }

    /// Appends an event whose offset is `next`.
    pub(super) fn append(&mut self, event: StoredEvent, content: u128, appended_ms: i64) {
        let offset = self.next;
        self.next += 1;
        self.bytes += event.bytes() as u64;
        self.ids.insert(event.id, KnownId { offset, ts: event.ts, content, appended_ms });
        if let Some(key) = event.key() {
            self.keys.entry(key.to_owned()).or_default().insert(offset);
        }
        self.events.insert(offset, KeptEvent { event, appended_ms });
    }

    pub(super) fn get(&self, offset: u64) -> Option<&StoredEvent> {
        self.events.get(&offset).map(|kept| &kept.event)
    }

    pub(super) fn by_id(&self, id: EventId) -> Option<&StoredEvent> {
        self.get(self.ids.get(&id)?.offset).filter(|event| event.id == id)
    }

    pub(super) fn range(&self, from: u64) -> impl Iterator<Item = &StoredEvent> {
        self.events.range(from..).map(|(_, kept)| &kept.event)
    }

    pub(super) fn key_range(
        &self,
        key: &str,
        range: std::ops::Range<u64>,
    ) -> impl DoubleEndedIterator<Item = &StoredEvent> {
        let offsets = self.keys.get(key).filter(|_| !range.is_empty());
        offsets
            .into_iter()
            .flat_map(move |offsets| offsets.range(range.clone()))
            .filter_map(|at| self.get(*at))
    }

    pub(super) fn offset_at(&self, ts_ms: i64) -> Option<Offset> {
        self.events.values().find(|kept| kept.event.ts >= ts_ms).map(|kept| kept.event.offset)
    }

    /// Applies retention and compaction, and forgets ids past the dedupe window.
    pub(super) fn maintain(&mut self, now_ms: i64, hold: Option<u64>) {
        self.retain(now_ms, hold);
        if self.settings.compacted {
            self.compact(now_ms, hold.unwrap_or(u64::MAX));
        }
        let window = to_ms(self.settings.dedupe_window);
        let events = &self.events;
        self.ids.retain(|_, known| {
            events.contains_key(&known.offset) || known.appended_ms.saturating_add(window) > now_ms
        });
    }

    fn retain(&mut self, now_ms: i64, hold: Option<u64>) {
        let policy = self.policy_keeps_from(now_ms);
        let from = hold.map_or(policy, |hold| policy.min(hold.max(self.earliest)));
        self.held = policy - from;
        let gone: Vec<u64> = self.events.range(..from).map(|(offset, _)| *offset).collect();
        gone.into_iter().for_each(|offset| self.drop_event(offset));
        self.earliest = from;
    }

    /// The first offset that the settings keep, holds not considered.
    fn policy_keeps_from(&self, now_ms: i64) -> u64 {
        let rule = self.settings.retention;
        let (mut count, mut bytes) = (self.events.len() as u64, self.bytes);
        for (offset, kept) in &self.events {
            let too_old = rule.age.is_some_and(|age| kept.appended_ms.saturating_add(to_ms(age)) <= now_ms);
            let too_many = rule.count.is_some_and(|most| count > most);
            let too_big = rule.bytes.is_some_and(|most| bytes > most);
            if !(too_old || too_many || too_big) {
                // A hole before the first kept event is no loss.
                return if count == self.events.len() as u64 { self.earliest } else { *offset };
            }
            count -= 1;
            bytes -= kept.event.bytes() as u64;
        }
        if self.events.is_empty() { self.earliest } else { self.next }
    }

    fn compact(&mut self, now_ms: i64, hold: u64) {
        let superseded = |offsets: &BTreeSet<u64>| {
            let latest = offsets.last().copied();
            offsets.iter().copied().filter(move |offset| Some(*offset) != latest).collect::<Vec<_>>()
        };
        let mut gone: Vec<u64> = self.keys.values().flat_map(superseded).collect();
        let ended = |kept: &KeptEvent| {
            kept.event.is_tombstone() && kept.appended_ms.saturating_add(TOMBSTONE_MS) <= now_ms
        };
        gone.extend(self.events.iter().filter(|(_, kept)| ended(kept)).map(|(offset, _)| *offset));
        gone.into_iter().filter(|offset| *offset < hold).for_each(|offset| self.drop_event(offset));
    }

    fn drop_event(&mut self, offset: u64) {
        let Some(kept) = self.events.remove(&offset) else { return };
        self.bytes -= kept.event.bytes() as u64;
        if let Some(key) = kept.event.key()
            && let Some(offsets) = self.keys.get_mut(key)
        {
            offsets.remove(&offset);
            if offsets.is_empty() {
                self.keys.remove(key);
            }
        }
    }
}

fn to_ms(millis: Millis) -> i64 {
    i64::try_from(millis.get()).unwrap_or(i64::MAX)
}
