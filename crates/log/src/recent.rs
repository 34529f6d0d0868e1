//! Lookups of index entries that are sequenced and not in the index yet.
//!
//! Each lookup extends the map by the entries that came since the last one. So sequencing an event costs
//! nothing here, and a lookup does not scan the whole group again.

use std::collections::HashMap;

use crate::index::{EntryKind, Insert};

/// A map over a list of entries that only grows. Call `clear` when the list is emptied.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    ids: Chains,
    keys: Chains,
}

/// The index of the newest entry of each topic and hash, and for each entry the index of the one before it.
#[derive(Debug, Default)]
struct Chains {
    newest: HashMap<(u32, u64), usize>,
    before: Vec<Option<usize>>,
}

impl Recent {
    /// Finds the entries under a hash, newest first.
    pub(crate) fn find<'a>(
        &'a mut self,
        entries: &'a [Insert],
        kind: EntryKind,
        topic: u32,
        hash: u64,
    ) -> impl Iterator<Item = &'a Insert> + use<'a> {
        let (chains, hash_of): (_, fn(&Insert) -> Option<u64>) = match kind {
            EntryKind::Key => (&mut self.keys, |new| new.key_hash),
            _ => (&mut self.ids, |new| Some(new.id_hash)),
        };
        chains.catch_up(entries, hash_of);
        let chains = &*chains;
        let mut next = chains.newest.get(&(topic, hash)).copied();
        std::iter::from_fn(move || {
            let place = next?;
            next = chains.before.get(place).copied().flatten();
            entries.get(place)
        })
    }

    pub(crate) fn clear(&mut self) {
        for chains in [&mut self.ids, &mut self.keys] {
            chains.newest.clear();
            chains.before.clear();
        }
    }
}

impl Chains {
    fn catch_up(&mut self, entries: &[Insert], hash_of: fn(&Insert) -> Option<u64>) {
        for (place, new) in entries.iter().enumerate().skip(self.before.len()) {
            let before = hash_of(new).and_then(|hash| self.newest.insert((new.topic, hash), place));
            self.before.push(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64) -> Insert {
        let key_hash = (!offset.is_multiple_of(5)).then_some(offset % 7);
        let (id_hash, topic) = (offset % 11, (offset % 2) as u32);
        Insert { topic, pos: 0, offset, id_hash, id_ms: None, key_hash, appended_ms: 0 }
    }

    #[test]
    fn finds_what_a_scan_finds_however_often_it_looks() {
        let mut recent = Recent::default();
        for round in 0..2 {
            let mut entries = Vec::new();
            for offset in 0..300 {
                entries.push(entry(offset + round * 1000));
                let hash = offset % 11;
                let found: Vec<u64> =
                    recent.find(&entries, EntryKind::Id, 1, hash).map(|new| new.offset).collect();
                let scan = entries.iter().rev().filter(|new| new.topic == 1 && new.id_hash == hash);
                assert_eq!(found, scan.map(|new| new.offset).collect::<Vec<_>>());
                if offset % 3 == 0 {
                    let found: Vec<u64> =
                        recent.find(&entries, EntryKind::Key, 0, 4).map(|new| new.offset).collect();
                    let scan = entries.iter().rev().filter(|new| new.topic == 0 && new.key_hash == Some(4));
                    assert_eq!(found, scan.map(|new| new.offset).collect::<Vec<_>>());
                }
            }
            recent.clear();
        }
    }
}
