//! Which partition a key belongs to, and which member owns a partition. Clients compute the same, so none of it changes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use xxhash_rust::xxh3::xxh3_64;

use crate::id::EventId;
use crate::name::MemberId;

/// The bucket of `key` among `buckets`, by "A Fast, Minimal Memory, Consistent Hash Algorithm" (Lamping and Veach).
/// Going from n to n + 1 buckets moves keys to the new bucket only. No buckets count as one.
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
    // Below `buckets`, which came from a u32.
    bucket as u32
}

/// The partition of an event: the jump hash of XXH3-64 (seed 0) of the key's UTF-8 or, without a key, of the id's text
/// in lower case, so that a client needs nothing but text to compute it.
pub fn partition_of(key: Option<&str>, id: &EventId, partitions: u32) -> u32 {
    let hash = match key {
        Some(key) => xxh3_64(key.as_bytes()),
        None => xxh3_64(id.encode_text(&mut [0; EventId::TEXT_BYTES]).as_bytes()),
    };
    jump_hash(hash, partitions)
}

/// The member that owns a partition: the one with the highest XXH3-64 (seed 0) of `partition:member`, of equals the
/// one whose name sorts first. It does not depend on the order of `members`.
pub fn rendezvous_owner(partition: u32, members: &[MemberId]) -> Option<&MemberId> {
    let mut text = String::new();
    members.iter().max_by_key(|member| (score(partition, member, &mut text), Reverse(*member)))
}

/// The partitions of each member, ascending. Every member has an entry, every partition is in one of them.
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
mod tests;
