//! The sort of a table's entries, faster than a general sort because hashes are evenly spread.

use super::entry::IndexEntry;

/// The wanted number of entries in a bucket: few enough to sort in the processor's nearest cache.
const BUCKET: usize = 64;
/// Fewer entries are sorted without buckets: two passes over them would take longer.
const BUCKETED_MIN: usize = 4096;

/// Sorts the `count` entries into the order of a run.
///
/// Hashes are evenly spread, so their first bits tell about where an entry belongs. Entries go into buckets
/// by topic and these bits, and the buckets are in the order of a run; then each bucket is sorted.
pub(super) fn sorted(entries: impl Iterator<Item = IndexEntry> + Clone, count: usize) -> Vec<IndexEntry> {
    let mut sorted: Vec<IndexEntry> = Vec::new();
    if count < BUCKETED_MIN {
        sorted.extend(entries);
        sorted.sort_unstable_by_key(IndexEntry::key);
        return sorted;
    }
    let buckets = HashBuckets::new(entries.clone(), count);
    let mut ends = buckets.starts(entries.clone());
    let Some(filler) = entries.clone().next() else { return sorted };
    sorted.resize(count, filler);
    for entry in entries {
        if let Some(at) = ends.get_mut(buckets.of(&entry)) {
            if let Some(place) = sorted.get_mut(*at) {
                *place = entry;
            }
            *at += 1;
        }
    }
    // Each start has moved to the end of its bucket by now.
    let mut start = 0;
    for end in ends {
        if let Some(bucket) = sorted.get_mut(start..end) {
            bucket.sort_unstable_by_key(IndexEntry::key);
        }
        start = end;
    }
    sorted
}

struct HashBuckets {
    first_topic: u32,
    topics: usize,
    /// Bits of the hash that tell buckets of a topic apart.
    bits: u32,
}

impl HashBuckets {
    fn new(entries: impl Iterator<Item = IndexEntry>, count: usize) -> HashBuckets {
        let (first, last) = entries
            .fold((u32::MAX, 0), |(first, last), entry| (first.min(entry.topic), last.max(entry.topic)));
        let topics = last.saturating_sub(first) as usize + 1;
        let bits = (count / BUCKET / topics).max(1).ilog2();
        // Topic ids far apart would need more buckets than there are entries; then several topics share a
        // bucket.
        HashBuckets { first_topic: first, topics: topics.min(count), bits }
    }

    fn of(&self, entry: &IndexEntry) -> usize {
        let topic = ((entry.topic - self.first_topic) as usize).min(self.topics - 1);
        let high = entry.hash.checked_shr(u64::BITS - self.bits).unwrap_or(0) as usize;
        (topic << self.bits) + high
    }

    /// The index of each bucket's first entry.
    fn starts(&self, entries: impl Iterator<Item = IndexEntry>) -> Vec<usize> {
        let mut counts = vec![0; self.topics << self.bits];
        for entry in entries {
            if let Some(count) = counts.get_mut(self.of(&entry)) {
                *count += 1;
            }
        }
        let mut at = 0;
        for count in &mut counts {
            at += std::mem::replace(count, at);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn equals_a_plain_sort(
            seed in any::<u64>(),
            count in (BUCKETED_MIN - 2)..(BUCKETED_MIN * 3),
            topics in prop_oneof![1..4u32, 1..2000u32, Just(u32::MAX)],
            hashes in prop_oneof![1..4u64, Just(u64::MAX)],
        ) {
            let entries: Vec<IndexEntry> = (0..count as u64)
                .map(|offset| {
                    let random = xxhash_rust::xxh3::xxh3_64_with_seed(&offset.to_le_bytes(), seed);
                    let topic = (random.rotate_left(17) % u64::from(topics)) as u32;
                    IndexEntry { topic, pos: offset as u32, hash: random % hashes, offset }
                })
                .collect();
            let mut plain = entries.clone();
            plain.sort_unstable_by_key(IndexEntry::key);
            prop_assert_eq!(sorted(entries.into_iter(), count), plain);
        }
    }
}
