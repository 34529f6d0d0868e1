//! The entries of a damaged keyspace that can be read.
//!
//! The engine stops at a block that does not verify, from either side. So the keys between are probed: a probe reads
//! from a key in the middle of a gap forward and backward, and what is left of the gap is probed again.
//!
//! ```text
//! whole | damaged | whole | damaged | whole
//! ----->                             <-----     from both ends
//!                  <--mid-->                    a probe
//! ```
//!
//! A value that an undamaged older table has is never read in place of one in a damaged newer block: a reader begins by
//! loading the blocks of all tables at its key, and fails if one of them does not verify.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

/// Probes of one keyspace, at most.
const PROBES_MAX: usize = 4_000;
/// Bytes after the common beginning of two keys that count for the middle between them.
const MIDDLE_BYTES: usize = 16;

/// The keys before and after entries that cannot be read. `None` stands for the first and the last key there can be.
pub(super) type KeyGap = (Option<Vec<u8>>, Option<Vec<u8>>);

/// A function that is called with each key and value.
pub(super) type EntryVisit<'a, E> = dyn FnMut(&[u8], &[u8]) -> Result<(), E> + 'a;

/// Keys from the first to before the second. Without a second key, to the last one.
type KeyInterval = (Vec<u8>, Option<Vec<u8>>);

/// An entry that was read, or `None` for one that cannot be read.
pub(super) type ReadEntry = Option<(Vec<u8>, Vec<u8>)>;

/// Reads entries of a keyspace between two bounds, from the front or from the back.
pub(super) trait ReadEntries {
    /// The entries between two bounds; from the back if `backward`.
    fn entries(
        &self,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        backward: bool,
    ) -> Box<dyn Iterator<Item = ReadEntry> + '_>;
}

/// Visits every entry of an interval that can be read, in any order. Returns the gaps that are left.
pub(super) fn visit_readable<E>(
    source: &dyn ReadEntries,
    (first, end): KeyInterval,
    visit: &mut EntryVisit<'_, E>,
) -> Result<Vec<KeyGap>, E> {
    let whole = (first, end);
    // An entry of each piece that was read.
    let mut pieces = BTreeSet::new();
    let Some(from) = forward(source, &whole, visit, &mut pieces)? else { return Ok(Vec::new()) };
    let rest = (from, whole.1.clone());
    // The entries end between the two readers, or one of them has read everything.
    let Some(to) = backward(source, &rest, visit, &mut pieces)? else { return Ok(Vec::new()) };
    let mut left = VecDeque::from([(rest.0, to)]);
    let mut gaps = Vec::new();
    for _ in 0..PROBES_MAX {
        let Some(interval) = left.pop_front() else { break };
        let Some(middle) = middle(&interval) else {
            gaps.push(interval);
            continue;
        };
        let upper = (middle.clone(), interval.1.clone());
        if let Some(from) = forward(source, &upper, visit, &mut pieces)? {
            left.push_back((from, interval.1.clone()));
        }
        let lower = (interval.0.clone(), Some(middle));
        if let Some(to) = backward(source, &lower, visit, &mut pieces)? {
            left.push_back((interval.0, to));
        }
    }
    gaps.extend(left);
    Ok(named(gaps, &whole, &pieces))
}

/// Reads from the front. Returns where the part begins that cannot be read; `None` if all was read.
fn forward<E>(
    source: &dyn ReadEntries,
    (first, end): &KeyInterval,
    visit: &mut EntryVisit<'_, E>,
    pieces: &mut BTreeSet<Vec<u8>>,
) -> Result<Option<Vec<u8>>, E> {
    let mut from = first.clone();
    let mut is_first = true;
    for entry in source.entries(bounds(first, end.as_deref()), false) {
        let Some((key, value)) = entry else { return Ok(Some(from)) };
        visit(&key, &value)?;
        if std::mem::take(&mut is_first) {
            pieces.insert(key.clone());
        }
        from = key;
        from.push(0);
    }
    Ok(None)
}

/// Reads from the back. Returns where the part ends that cannot be read; `None` if all was read.
#[expect(clippy::option_option, reason = "an end that is not given is the last key")]
fn backward<E>(
    source: &dyn ReadEntries,
    (first, end): &KeyInterval,
    visit: &mut EntryVisit<'_, E>,
    pieces: &mut BTreeSet<Vec<u8>>,
) -> Result<Option<Option<Vec<u8>>>, E> {
    let mut to = end.clone();
    let mut is_first = true;
    for entry in source.entries(bounds(first, end.as_deref()), true) {
        let Some((key, value)) = entry else { return Ok(Some(to)) };
        visit(&key, &value)?;
        if std::mem::take(&mut is_first) {
            pieces.insert(key.clone());
        }
        to = Some(key);
    }
    Ok(None)
}

fn bounds(first: &[u8], end: Option<&[u8]>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let end = end.map_or(Bound::Unbounded, |end| Bound::Excluded(end.to_vec()));
    (Bound::Included(first.to_vec()), end)
}

/// A key between the ends of an interval, as near to the middle as can be told. `None` if there is none.
fn middle((first, end): &KeyInterval) -> Option<Vec<u8>> {
    let end = end.clone().unwrap_or_else(|| vec![u8::MAX; MIDDLE_BYTES]);
    let common = first.iter().zip(&end).take_while(|(one, other)| one == other).count();
    let number = |key: &[u8]| {
        let mut bytes = [0; MIDDLE_BYTES];
        for (to, byte) in bytes.iter_mut().zip(key.iter().skip(common)) {
            *to = *byte;
        }
        u128::from_be_bytes(bytes)
    };
    let (low, high) = (number(first), number(&end));
    let middle = low + high.checked_sub(low)? / 2;
    let mut key = first.get(..common)?.to_vec();
    key.extend(middle.to_be_bytes());
    // Zeros at the end make no other place, and a shorter key reads better in a report.
    while key.len() > common && key.last() == Some(&0) {
        key.pop();
    }
    (key > *first && key < end).then_some(key)
}

/// The gaps in the order of their keys. Two without a readable entry between them are one.
fn named(mut gaps: Vec<KeyInterval>, whole: &KeyInterval, pieces: &BTreeSet<Vec<u8>>) -> Vec<KeyGap> {
    gaps.sort();
    let mut merged: Vec<KeyInterval> = Vec::new();
    for gap in gaps {
        let is_one = |last: &&mut KeyInterval| {
            last.1
                .as_ref()
                .is_some_and(|end| *end >= gap.0 || pieces.range(end.clone()..gap.0.clone()).next().is_none())
        };
        match merged.last_mut().filter(is_one) {
            Some(last) => last.1 = gap.1,
            None => merged.push(gap),
        }
    }
    let before =
        |first: Vec<u8>| (first != whole.0).then(|| first.strip_suffix(&[0]).unwrap_or(&first).to_vec());
    merged
        .into_iter()
        .map(|(first, end)| (before(first), end.filter(|end| Some(end) != whole.1.as_ref())))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Entries in blocks, some of which do not verify. As the engine, it loses the entry before a damaged block too.
    struct Blocks {
        entries: BTreeMap<Vec<u8>, (usize, Vec<u8>)>,
        damaged: Vec<usize>,
    }

    impl ReadEntries for Blocks {
        fn entries(
            &self,
            bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
            backward: bool,
        ) -> Box<dyn Iterator<Item = ReadEntry> + '_> {
            let range = self.entries.range(bounds);
            let mut found: Vec<_> = if backward { range.rev().collect() } else { range.collect() };
            let is_bad = |(_, (block, _)): &(&Vec<u8>, &(usize, Vec<u8>))| self.damaged.contains(block);
            if let Some(at) = found.iter().position(is_bad) {
                found.truncate(at.saturating_sub(1));
                let good = found.into_iter().map(|(key, (_, value))| Some((key.clone(), value.clone())));
                return Box::new(good.chain([None]));
            }
            Box::new(found.into_iter().map(|(key, (_, value))| Some((key.clone(), value.clone()))))
        }
    }

    fn blocks(damaged: &[usize]) -> Blocks {
        let entry = |n: usize| (format!("row {n:05}").into_bytes(), (n / 50, n.to_string().into_bytes()));
        Blocks { entries: (0..2_000).map(entry).collect(), damaged: damaged.to_vec() }
    }

    fn read(blocks: &Blocks) -> (Vec<Vec<u8>>, Vec<KeyGap>) {
        let mut keys = Vec::new();
        let gaps = visit_readable::<()>(blocks, (b"row ".to_vec(), Some(b"row!".to_vec())), &mut |key, _| {
            keys.push(key.to_vec());
            Ok(())
        });
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count, "an entry is visited once");
        (keys, gaps.unwrap())
    }

    #[test]
    fn entries_between_two_damaged_blocks_are_read() {
        assert_eq!(read(&blocks(&[])), (blocks(&[]).entries.into_keys().collect(), Vec::new()));
        for damaged in [vec![7], vec![0], vec![39], vec![3, 30], vec![0, 20, 21, 39], (0..40).collect()] {
            let blocks = blocks(&damaged);
            let (keys, gaps) = read(&blocks);
            let good = blocks.entries.iter().filter(|(_, (block, _))| !damaged.contains(block));
            // The entries beside a damaged block cannot always be told from it.
            let good: Vec<&Vec<u8>> = good.map(|(key, _)| key).collect();
            assert!(
                keys.len() + 2 * damaged.len() >= good.len(),
                "{damaged:?}: {} of {}",
                keys.len(),
                good.len()
            );
            assert!(keys.iter().all(|key| good.contains(&key)), "{damaged:?}");
            let is_named = |key: &Vec<u8>| {
                gaps.iter().any(|(before, after)| {
                    before.as_ref().is_none_or(|before| before <= key)
                        && after.as_ref().is_none_or(|after| key < after)
                })
            };
            let lost = blocks.entries.keys().filter(|key| !keys.contains(key));
            assert!(lost.into_iter().all(is_named), "{damaged:?}: {gaps:?}");
            assert!(!gaps.is_empty() && gaps.len() <= damaged.len(), "{damaged:?}: {gaps:?}");
        }
    }

    #[test]
    fn the_middle_is_between() {
        let between = |first: &[u8], end: Option<&[u8]>| middle(&(first.to_vec(), end.map(<[u8]>::to_vec)));
        assert_eq!(between(b"a", Some(b"c")), Some(b"b".to_vec()));
        assert_eq!(between(b"xa", Some(b"xa\x00")), None);
        assert_eq!(between(b"a", Some(b"a")), None);
        assert!(between(b"\x0a", None).is_some_and(|key| key > b"\x0a".to_vec()));
        assert!(between(b"a", Some(b"b")).is_some_and(|key| key > b"a".to_vec() && key < b"b".to_vec()));
    }
}
