//! The entries of a run and the key they are sorted by.

/// The kinds of entries. The numbers are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum EntryKind {
    /// Events by their id.
    Id = 1,
    /// Events by their key.
    Key = 2,
    /// Ids of events that are gone, kept for the dedupe window.
    Ghost = 3,
}

impl EntryKind {
    /// Every kind.
    pub(crate) const ALL: [EntryKind; 3] = [EntryKind::Id, EntryKind::Key, EntryKind::Ghost];

    /// The kind with this number on disk.
    pub(crate) fn from_byte(byte: u8) -> Option<EntryKind> {
        EntryKind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Bytes of one entry.
    pub(crate) fn entry_len(self) -> usize {
        match self {
            EntryKind::Id | EntryKind::Key => ENTRY_LEN,
            EntryKind::Ghost => GHOST_LEN,
        }
    }
}

/// Bytes of an id or key entry.
pub(crate) const ENTRY_LEN: usize = 24;
/// Bytes of a ghost entry.
pub(crate) const GHOST_LEN: usize = 48;
/// Bytes of the key that begins every entry.
pub(crate) const KEY_LEN: usize = 20;

/// One event under the hash of its id or of its key: `topic u32 | hash u64 | offset u64 | pos u32`,
/// big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    /// The topic's number.
    pub(crate) topic: u32,
    /// The position of the record in its segment, when it was appended.
    pub(crate) pos: u32,
    /// Hash of the id or key.
    pub(crate) hash: u64,
    /// The event's offset.
    pub(crate) offset: u64,
}

impl IndexEntry {
    /// The key that the entry sorts by.
    pub(crate) fn key(&self) -> SortKey {
        SortKey::entry(self.topic, self.hash, self.offset)
    }

    /// The bytes on disk.
    pub(crate) fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut raw = [0; ENTRY_LEN];
        raw[0..4].copy_from_slice(&self.topic.to_be_bytes());
        raw[4..12].copy_from_slice(&self.hash.to_be_bytes());
        raw[12..20].copy_from_slice(&self.offset.to_be_bytes());
        raw[20..24].copy_from_slice(&self.pos.to_be_bytes());
        raw
    }

    /// Reads the entry in these bytes.
    pub(crate) fn decode(raw: &[u8; ENTRY_LEN]) -> IndexEntry {
        IndexEntry {
            topic: be32(&raw[0..]),
            hash: be64(&raw[4..]),
            offset: be64(&raw[12..]),
            pos: be32(&raw[20..]),
        }
    }
}

/// The id of an event that is gone: `topic u32 | id 16 | offset u64 | ts i64 | content u64 | zero u32`,
/// big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GhostEntry {
    /// The topic's number.
    pub(crate) topic: u32,
    /// The event's id.
    pub(crate) id: [u8; 16],
    /// The offset it had.
    pub(crate) offset: u64,
    /// The time it carried, in ms.
    pub(crate) ts: i64,
    /// Hash of key and payload, to tell a duplicate from a conflict.
    pub(crate) content: u64,
}

impl GhostEntry {
    /// The key that the entry sorts by.
    pub(crate) fn key(&self) -> SortKey {
        SortKey::ghost(self.topic, &self.id)
    }

    /// The bytes on disk.
    pub(crate) fn encode(&self) -> [u8; GHOST_LEN] {
        let mut raw = [0; GHOST_LEN];
        raw[0..4].copy_from_slice(&self.topic.to_be_bytes());
        raw[4..20].copy_from_slice(&self.id);
        raw[20..28].copy_from_slice(&self.offset.to_be_bytes());
        raw[28..36].copy_from_slice(&self.ts.to_be_bytes());
        raw[36..44].copy_from_slice(&self.content.to_be_bytes());
        raw
    }

    /// Reads the entry in these bytes.
    pub(crate) fn decode(raw: &[u8; GHOST_LEN]) -> GhostEntry {
        GhostEntry {
            topic: be32(&raw[0..]),
            id: raw[4..].first_chunk().copied().unwrap_or_default(),
            offset: be64(&raw[20..]),
            ts: be64(&raw[28..]).cast_signed(),
            content: be64(&raw[36..]),
        }
    }
}

/// An entry's first 20 bytes as numbers, which compare faster: topic, hash and offset, or topic and id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SortKey {
    head: u128,
    tail: u32,
}

impl SortKey {
    /// The key of an id or key entry.
    pub(crate) fn entry(topic: u32, hash: u64, offset: u64) -> SortKey {
        let head = u128::from(topic) << 96 | u128::from(hash) << 32 | u128::from(offset >> 32);
        SortKey { head, tail: offset as u32 }
    }

    /// The key of a ghost.
    pub(crate) fn ghost(topic: u32, id: &[u8; 16]) -> SortKey {
        let id = u128::from_be_bytes(*id);
        SortKey { head: u128::from(topic) << 96 | id >> 32, tail: id as u32 }
    }

    /// The key that begins these bytes.
    pub(crate) fn of<const N: usize>(raw: &[u8; N]) -> SortKey {
        const { assert!(N >= KEY_LEN) };
        SortKey::of_slice(raw)
    }

    /// The key that begins an entry of either length; the entry must be whole.
    pub(crate) fn of_slice(raw: &[u8]) -> SortKey {
        let head = raw.first_chunk().map_or(0, |head| u128::from_be_bytes(*head));
        SortKey { head, tail: raw.get(16..).map_or(0, be32) }
    }

    /// The bytes on disk.
    pub(crate) fn encode(self) -> [u8; KEY_LEN] {
        let mut raw = [0; KEY_LEN];
        raw[0..16].copy_from_slice(&self.head.to_be_bytes());
        raw[16..20].copy_from_slice(&self.tail.to_be_bytes());
        raw
    }

    /// The topic, which begins the key of every kind.
    pub(crate) fn topic(self) -> u32 {
        (self.head >> 96) as u32
    }
}

/// The offset in an entry of this kind; it must be whole.
pub(crate) fn offset_in(kind: EntryKind, raw: &[u8]) -> u64 {
    let at = match kind {
        EntryKind::Id | EntryKind::Key => 12,
        EntryKind::Ghost => 20,
    };
    raw.get(at..).map_or(0, be64)
}

fn be32(raw: &[u8]) -> u32 {
    raw.first_chunk().map_or(0, |raw| u32::from_be_bytes(*raw))
}

fn be64(raw: &[u8]) -> u64 {
    raw.first_chunk().map_or(0, |raw| u64::from_be_bytes(*raw))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_survive_their_bytes_and_sort_like_them(
            a in any::<(u32, u64, u64, u32)>(), b in any::<(u32, u64, u64, u32)>(), id in any::<[u8; 16]>(), ts: i64,
        ) {
            let entry = |(topic, hash, offset, pos)| IndexEntry { topic, pos, hash, offset };
            let (x, y) = (entry(a), entry(b));
            prop_assert_eq!(IndexEntry::decode(&x.encode()), x);
            prop_assert_eq!(x.key().cmp(&y.key()), (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
            prop_assert_eq!(x.key(), SortKey::of(&x.encode()));
            prop_assert_eq!(x.key().encode(), *x.encode().first_chunk::<KEY_LEN>().unwrap());
            prop_assert_eq!(x.key().topic(), x.topic);
            prop_assert_eq!(offset_in(EntryKind::Id, &x.encode()), x.offset);

            let ghost = GhostEntry { topic: a.0, id, offset: a.2, ts, content: a.1 };
            prop_assert_eq!(GhostEntry::decode(&ghost.encode()), ghost);
            prop_assert_eq!(ghost.key(), SortKey::of(&ghost.encode()));
            prop_assert_eq!(offset_in(EntryKind::Ghost, &ghost.encode()), ghost.offset);
        }
    }
}
