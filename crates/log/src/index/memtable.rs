//! The memory table: entries that are not in a run yet, one item per event, chained by id and by key.

use super::entry::{EntryKind, IndexEntry};
use super::slots::{ITEMS_MAX, NONE, Slots};
use super::sort;

/// One event to index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Insert {
    /// The topic's number.
    pub(crate) topic: u32,
    /// The position of the record in its segment.
    pub(crate) pos: u32,
    /// The event's offset, above that of every earlier insert into the topic.
    pub(crate) offset: u64,
    /// Hash of the id.
    pub(crate) id_hash: u64,
    /// The time in the id, if it is of version 7.
    pub(crate) id_ms: Option<u64>,
    /// Hash of the key, if there is one.
    pub(crate) key_hash: Option<u64>,
    /// When the event is appended, in ms.
    pub(crate) appended_ms: u64,
}

/// Stands in `key_prev` of an event without a key.
const KEYLESS: u32 = NONE - 1;
/// Inserts whose memory is fetched together.
const GROUP: usize = 16;
/// A cleared table keeps room for at least this many events.
const EVENTS_KEPT_MIN: usize = 1 << 14;

#[derive(Debug)]
struct TableEvent {
    id_hash: u64,
    key_hash: u64,
    offset: u64,
    topic: u32,
    pos: u32,
    /// The event before this one with the same topic and id hash.
    id_prev: u32,
    /// The event before this one with the same topic and key hash, or `KEYLESS`.
    key_prev: u32,
}

/// A memory table.
#[derive(Debug)]
pub(crate) struct MemTable {
    events: Vec<TableEvent>,
    ids: Slots,
    keys: Slots,
    /// Orders tables by time; set when the table becomes the active one.
    pub(crate) age: u64,
    /// Smallest time in a version 7 id; above `id_ms_max` if there is none.
    pub(crate) id_ms_min: u64,
    /// Largest time in a version 7 id.
    pub(crate) id_ms_max: u64,
    /// When the last event was appended, in ms.
    pub(crate) appended_max: u64,
}

impl MemTable {
    /// An empty table.
    pub(crate) fn new() -> MemTable {
        MemTable {
            events: Vec::new(),
            ids: Slots::new(),
            keys: Slots::new(),
            age: 0,
            id_ms_min: u64::MAX,
            id_ms_max: 0,
            appended_max: 0,
        }
    }

    /// Adds an event under its id and its key.
    pub(crate) fn insert(&mut self, new: &Insert) {
        let events = &self.events;
        assert!(events.len() < ITEMS_MAX, "a memory table was never frozen");
        let item = events.len() as u32;
        let topic = new.topic;
        let id_prev = self.ids.put(
            mix(topic, new.id_hash),
            item,
            |other| event(events, other).is_some_and(|e| e.id_hash == new.id_hash && e.topic == topic),
            |other| event(events, other).map_or(0, |e| mix(e.topic, e.id_hash)),
        );
        let key_prev = new.key_hash.map_or(KEYLESS, |hash| {
            self.keys.put(
                mix(topic, hash),
                item,
                |other| event(events, other).is_some_and(|e| e.key_hash == hash && e.topic == topic),
                |other| event(events, other).map_or(0, |e| mix(e.topic, e.key_hash)),
            )
        });
        if let Some(ms) = new.id_ms {
            self.id_ms_min = self.id_ms_min.min(ms);
            self.id_ms_max = self.id_ms_max.max(ms);
        }
        self.appended_max = self.appended_max.max(new.appended_ms);
        let key_hash = new.key_hash.unwrap_or_default();
        let (id_hash, offset, pos) = (new.id_hash, new.offset, new.pos);
        self.events.push(TableEvent { id_hash, key_hash, offset, topic, pos, id_prev, key_prev });
    }

    /// Adds several events, faster than one by one.
    pub(crate) fn insert_all(&mut self, batch: &[Insert]) {
        for group in batch.chunks(GROUP) {
            self.warm(group);
            for new in group {
                self.insert(new);
            }
        }
    }

    /// Reads the memory that inserts will need. The reads do not depend on each other, so the processor waits
    /// for all of them at once: a table does not fit its caches, and an insert spends most of its time
    /// waiting for memory.
    fn warm(&self, group: &[Insert]) {
        let mut heads = [NONE; GROUP];
        let mut read = 0;
        for (head, new) in heads.iter_mut().zip(group) {
            read ^= self.ids.peek(mix(new.topic, new.id_hash));
            *head = new.key_hash.map_or(NONE, |hash| self.keys.peek(mix(new.topic, hash)));
        }
        for head in heads {
            read ^= event(&self.events, head).map_or(0, |e| e.pos);
        }
        std::hint::black_box(read);
    }

    /// Offsets and positions under a hash, newest first. Ghosts are never in memory.
    pub(crate) fn chain(&self, kind: EntryKind, topic: u32, hash: u64) -> Chain<'_> {
        let hashed = mix(topic, hash);
        let next = match kind {
            EntryKind::Id => self.ids.find(hashed, |item| {
                event(&self.events, item).is_some_and(|e| e.id_hash == hash && e.topic == topic)
            }),
            EntryKind::Key => self.keys.find(hashed, |item| {
                event(&self.events, item).is_some_and(|e| e.key_hash == hash && e.topic == topic)
            }),
            EntryKind::Ghost => NONE,
        };
        self.chain_from(kind, next)
    }

    /// Continues a walk over a chain of this table at the event `next`.
    pub(crate) fn chain_from(&self, kind: EntryKind, next: u32) -> Chain<'_> {
        Chain { events: &self.events, by_key: kind == EntryKind::Key, next }
    }

    /// The number of events in the table.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// The number of entries of a kind.
    pub(crate) fn entries(&self, kind: EntryKind) -> usize {
        match kind {
            EntryKind::Id => self.events.len(),
            EntryKind::Key => self.events.iter().filter(|e| e.key_prev != KEYLESS).count(),
            EntryKind::Ghost => 0,
        }
    }

    /// The memory that the events in the table need, without reserved memory.
    pub(crate) fn bytes(&self) -> usize {
        self.events.len() * size_of::<TableEvent>() + (self.ids.used() + self.keys.used()) * 10
    }

    /// Empties the table and keeps about the memory that it needed, so that two tables can take turns.
    pub(crate) fn clear(&mut self) {
        let needed = self.events.len();
        self.events.clear();
        if self.events.capacity() / 8 > needed {
            self.events.shrink_to((needed * 2).max(EVENTS_KEPT_MIN));
        }
        if needed > 0 {
            self.ids.clear();
            self.keys.clear();
        }
        self.id_ms_min = u64::MAX;
        self.id_ms_max = 0;
        self.appended_max = 0;
    }

    /// The entries of a kind in the order of a run.
    pub(crate) fn sorted(&self, kind: EntryKind) -> Vec<IndexEntry> {
        let entries = self.events.iter().filter_map(|e| {
            let hash = match kind {
                EntryKind::Id => e.id_hash,
                EntryKind::Key if e.key_prev != KEYLESS => e.key_hash,
                EntryKind::Key | EntryKind::Ghost => return None,
            };
            Some(IndexEntry { topic: e.topic, pos: e.pos, hash, offset: e.offset })
        });
        sort::sorted(entries, self.entries(kind))
    }
}

/// A walk from newer to older events of one hash.
#[derive(Debug)]
pub(crate) struct Chain<'a> {
    events: &'a [TableEvent],
    by_key: bool,
    /// The event that comes next.
    pub(crate) next: u32,
}

impl Iterator for Chain<'_> {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        let event = event(self.events, self.next)?;
        self.next = if self.by_key { event.key_prev } else { event.id_prev };
        Some((event.offset, event.pos))
    }
}

/// The event with this index. `NONE` and `KEYLESS` are above every index, so they are no event.
fn event(events: &[TableEvent], item: u32) -> Option<&TableEvent> {
    events.get(item as usize)
}

fn mix(topic: u32, hash: u64) -> u64 {
    let mixed =
        (hash ^ u64::from(topic).wrapping_mul(0xA24B_AED4_963E_E407)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(offset: u64, id_hash: u64, key_hash: Option<u64>) -> Insert {
        let topic = (offset % 3) as u32;
        Insert {
            topic,
            pos: offset as u32 * 2,
            offset,
            id_hash,
            id_ms: Some(offset),
            key_hash,
            appended_ms: offset,
        }
    }

    #[test]
    fn chains_are_newest_first_and_apart_by_topic_and_kind() {
        let mut table = MemTable::new();
        for round in 0..2 {
            let event = |offset| insert(offset, offset, (offset % 2 == 0).then_some(offset % 10));
            table.insert_all(&(0..20_000).map(event).collect::<Vec<_>>());
            (20_000..30_000).for_each(|offset| table.insert(&event(offset)));
            assert_eq!(table.chain(EntryKind::Id, 1, 7).collect::<Vec<_>>(), [(7, 14)]);
            assert_eq!(table.chain(EntryKind::Id, 0, 7).next(), None);
            let wanted = (0..30_000).rev().filter(|o| o % 10 == 4 && o % 3 == 2).map(|o| (o, o as u32 * 2));
            assert_eq!(table.chain(EntryKind::Key, 2, 4).collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
            assert_eq!(table.chain(EntryKind::Key, 2, 5).next(), None, "round {round}");
            assert_eq!((table.id_ms_min, table.id_ms_max, table.appended_max), (0, 29_999, 29_999));
            for (kind, count) in [(EntryKind::Id, 30_000), (EntryKind::Key, 15_000)] {
                let sorted = table.sorted(kind);
                assert_eq!((sorted.len(), table.entries(kind)), (count, count));
                assert!(sorted.is_sorted_by_key(IndexEntry::key));
            }
            table.clear();
            assert_eq!((table.len(), table.bytes()), (0, 0));
        }
        assert!(table.events.capacity() >= 30_000);
        table.clear();
        assert!(table.events.capacity() < 30_000);
    }
}
