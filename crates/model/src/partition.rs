//! Which partition a key belongs to, and which member owns a partition. Clients compute the same, so neither
//! may change.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use xxhash_rust::xxh3::xxh3_64;

use crate::id::EventId;
use crate::name::MemberId;

/// The bucket of `key` among `buckets` buckets, by "A Fast, Minimal Memory, Consistent Hash Algorithm"
/// (Lamping and Veach). Going from n to n + 1 buckets moves keys to the new bucket only. 0 buckets count as
/// 1.
pub fn jump_hash(key: u64, buckets: u32) -> u32 {
    let buckets = i64::from(buckets.max(1));
    let mut key = key;
    let mut bucket = 0_i64;
    let mut jump = 0_i64;
    while jump < buckets {
        bucket = jump;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        jump = ((bucket + 1) as f64 * ((1_i64 << 31) as f64 / ((key >> 33) + 1) as f64)) as i64;
    }
    // It is below `buckets`, which came from a u32.
    bucket as u32
}

/// The partition of an event: the jump hash of XXH3-64 (seed 0) of the key's UTF-8 or, without a key, of the
/// id's text in lower case, so that a client needs nothing but text to compute it.
pub fn partition_of(key: Option<&str>, id: &EventId, partitions: u32) -> u32 {
    let hash = match key {
        Some(key) => xxh3_64(key.as_bytes()),
        None => xxh3_64(id.encode_text(&mut [0; EventId::TEXT_BYTES]).as_bytes()),
    };
    jump_hash(hash, partitions)
}

/// The member that owns a partition: the member with the highest XXH3-64 (seed 0) of `partition:member`; of
/// equal ones, the member whose name sorts first. The order of `members` does not matter.
pub fn rendezvous_owner(partition: u32, members: &[MemberId]) -> Option<&MemberId> {
    let mut text = String::new();
    members.iter().max_by_key(|member| (score(partition, member, &mut text), Reverse(*member)))
}

/// The partitions of each member, ascending. Every member has an entry, and every partition is in one entry.
pub fn assign(partitions: u32, members: &[MemberId]) -> BTreeMap<MemberId, Vec<u32>> {
    let mut assigned: BTreeMap<MemberId, Vec<u32>> =
        members.iter().map(|member| (member.clone(), Vec::new())).collect();
    for partition in 0..partitions {
        let owned = rendezvous_owner(partition, members).and_then(|owner| assigned.get_mut(owner));
        if let Some(owned) = owned {
            owned.push(partition);
        }
    }
    assigned
}

fn score(partition: u32, member: &MemberId, text: &mut String) -> u64 {
    text.clear();
    // Writing to a String cannot fail.
    let _ = write!(text, "{partition}:{member}");
    xxh3_64(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// As the paper derives it: from bucket b the next candidate is floor((b + 1) / r), with r drawn from (0,
    /// 1].
    fn jump_by_draws(key: u64, buckets: u32) -> u32 {
        let mut state = key;
        let mut draw = || {
            state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
            ((state >> 33) + 1) as f64 / 2_f64.powi(31)
        };
        let mut candidate = 0.0;
        let mut bucket = 0.0;
        while candidate < f64::from(buckets) {
            bucket = candidate;
            candidate = ((bucket + 1.0) * (1.0 / draw())).floor();
        }
        bucket as u32
    }

    #[test]
    fn known_vectors() {
        let vectors = [
            (0, 1, 0),
            (3, 1, 0),
            (0, 2, 0),
            (4, 2, 1),
            (42, 57, 43),
            (256, 1024, 520),
            (0xdead_10cc, 666, 361),
            (u64::MAX, 128, 92),
            (2, 1001, 338),
            (8, 1001, 191),
            (2, 100_001, 80_343),
            (2_201, 100_001, 22_152),
            (2_202, 100_001, 15_018),
            (10_863_919_174_838_991, 11, 6),
            (2_016_238_256_797_177_309, 11, 3),
            (1_673_758_223_894_951_030, 11, 5),
            (128, 1 << 31, 1_644_467_860),
        ];
        for (key, buckets, bucket) in vectors {
            assert_eq!(jump_hash(key, buckets), bucket, "jump_hash({key}, {buckets})");
        }
    }

    #[test]
    fn buckets_fill_evenly() {
        const BUCKETS: u32 = 16;
        const KEYS: u32 = 64_000;
        let id = EventId::from_bytes([0; 16]);
        let mut counts = [0_u32; BUCKETS as usize];
        for n in 0..KEYS {
            counts[partition_of(Some(&format!("key-{n}")), &id, BUCKETS) as usize] += 1;
        }
        // 4,000 expected each, standard deviation 61.
        assert!(counts.iter().all(|count| (3_700..=4_300).contains(count)), "{counts:?}");
    }

    #[test]
    fn without_a_key_the_ids_text_counts() {
        let text = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
        let id: EventId = text.parse().unwrap();
        assert_eq!(partition_of(None, &id, 1000), partition_of(Some(text), &id, 1000));
        assert_eq!(partition_of(Some(""), &id, 1000), jump_hash(xxh3_64(b""), 1000));
        assert_eq!(partition_of(None, &id, 0), 0);
    }

    /// Clients in other languages must agree with these.
    #[test]
    fn hashes_never_change() {
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        let id = EventId::from_bytes([0; 16]);
        let partitions = ["a", "host:stt:1234", "caf\u{e9}", ""].map(|key| partition_of(Some(key), &id, 64));
        assert_eq!(partitions, [14, 0, 7, 52]);
        let owners = (0..8).map(|p| rendezvous_owner(p, &members(["a", "b", "c"])).unwrap().to_string());
        assert_eq!(owners.collect::<String>(), "acccaccc");
    }

    #[test]
    fn members_share_evenly() {
        for names in [["a", "b", "c", "d"], ["worker-1", "worker-2", "worker-3", "worker-4"]] {
            let counts: Vec<usize> = assign(4_000, &members(names)).values().map(Vec::len).collect();
            // 1,000 expected each, standard deviation 27.
            assert!(counts.iter().all(|count| (870..=1_130).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn nobody_owns_without_members() {
        assert_eq!(rendezvous_owner(0, &[]), None);
        assert!(assign(8, &[]).is_empty());
        assert_eq!(assign(0, &members(["a"])).into_values().collect::<Vec<_>>(), [Vec::<u32>::new()]);
    }

    fn members<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<MemberId> {
        names.into_iter().map(|name| name.parse().unwrap()).collect()
    }

    fn owners(partitions: u32, members: &[MemberId]) -> Vec<Option<MemberId>> {
        (0..partitions).map(|partition| rendezvous_owner(partition, members).cloned()).collect()
    }

    fn member_sets() -> impl Strategy<Value = BTreeSet<String>> {
        proptest::collection::btree_set("[a-zA-Z0-9_.:-]{1,8}", 1..12)
    }

    proptest! {
        #[test]
        fn jump_hash_is_the_papers(key in any::<u64>(), buckets in 1..100_000_u32) {
            let bucket = jump_hash(key, buckets);
            prop_assert!(bucket < buckets);
            prop_assert_eq!(bucket, jump_by_draws(key, buckets));
        }

        #[test]
        fn one_more_bucket_takes_and_nothing_else_moves(key in any::<u64>(), buckets in 1..100_000_u32) {
            let (before, after) = (jump_hash(key, buckets), jump_hash(key, buckets + 1));
            prop_assert!(after == before || after == buckets);
        }

        #[test]
        fn every_bucket_count_terminates(key in any::<u64>(), buckets in any::<u32>()) {
            prop_assert!(jump_hash(key, buckets) < buckets.max(1));
        }

        #[test]
        fn every_partition_has_one_owner(names in member_sets(), partitions in 0..200_u32) {
            let members = members(names.iter().map(String::as_str));
            let assigned = assign(partitions, &members);
            prop_assert_eq!(assigned.keys().collect::<Vec<_>>(), members.iter().collect::<Vec<_>>());
            let mut all: Vec<u32> = assigned.values().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..partitions).collect::<Vec<_>>());
            for (member, owned) in &assigned {
                prop_assert!(owned.is_sorted());
                for partition in owned {
                    prop_assert_eq!(rendezvous_owner(*partition, &members), Some(member));
                }
            }
        }

        #[test]
        fn order_of_members_does_not_matter(names in member_sets(), partition in any::<u32>()) {
            let ascending = members(names.iter().map(String::as_str));
            let descending = members(names.iter().rev().map(String::as_str));
            prop_assert_eq!(rendezvous_owner(partition, &ascending), rendezvous_owner(partition, &descending));
        }

        /// Read backwards, the same holds for a member that leaves.
        #[test]
        fn a_joining_member_only_takes(names in member_sets(), joins in "[a-z]{9}", partitions in 0..200_u32) {
            let before = members(names.iter().map(String::as_str));
            let after = members(names.iter().map(String::as_str).chain([joins.as_str()]));
            for (old, new) in owners(partitions, &before).into_iter().zip(owners(partitions, &after)) {
                prop_assert!(new == old || new.as_ref().is_some_and(|owner| owner.as_str() == joins));
            }
        }
    }
}
