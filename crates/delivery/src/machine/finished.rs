//! The finished offsets: all below the floor, and ranges above it.

use std::collections::BTreeMap;

use promethean_model::{Offset, OffsetRange};

/// The finished offsets of a claim. Invariant: ranges touch neither each other nor the floor.
#[derive(Debug, Default)]
pub(super) struct FinishedRanges {
    floor: u64,
    /// start -> end
    ranges: BTreeMap<u64, u64>,
    /// How many offsets the ranges cover.
    covered: u64,
}

impl FinishedRanges {
    pub(super) fn below(floor: Offset) -> Self {
        Self { floor: floor.0, ..Self::default() }
    }

    pub(super) const fn floor(&self) -> Offset {
        Offset(self.floor)
    }

    /// How many ranges lie above the floor.
    pub(super) fn ranges(&self) -> usize {
        self.ranges.len()
    }

    /// The end of the last range, or the floor.
    pub(super) fn top(&self) -> Offset {
        self.ranges.last_key_value().map_or(self.floor(), |(_, end)| Offset(*end))
    }

    /// How many offsets below `end` the ranges cover. Fast while few ranges reach beyond `end`.
    pub(super) fn covered_below(&self, end: Offset) -> u64 {
        let beyond: u64 = (self.ranges.iter().rev())
            .take_while(|(_, range_end)| **range_end > end.0)
            .map(|(start, range_end)| range_end - (*start).max(end.0))
            .sum();
        self.covered - beyond
    }

    pub(super) fn to_vec(&self) -> Vec<OffsetRange> {
        self.ranges.iter().map(|(start, end)| OffsetRange::new(Offset(*start), Offset(*end))).collect()
    }

    /// Floor and ranges as they would be if `unfinished`, ascending, were not finished.
    pub(super) fn without(&self, unfinished: &[Offset]) -> (Offset, Vec<OffsetRange>) {
        let mut ranges = Vec::with_capacity(self.ranges.len() + unfinished.len());
        let mut floor = self.floor();
        let mut holes = unfinished.iter().copied().peekable();
        let below = OffsetRange::new(Offset::ZERO, floor);
        for range in std::iter::once(below).chain(self.to_vec()) {
            let mut rest = range;
            while let Some(hole) = holes.next_if(|hole| *hole < range.end) {
                ranges.push(OffsetRange::new(rest.start, hole));
                rest.start = hole.next();
            }
            ranges.push(rest);
        }
        if let Some(first) = ranges.first() {
            floor = first.end;
        }
        ranges.remove(0);
        ranges.retain(|range| !range.is_empty());
        (floor, ranges)
    }

    pub(super) fn contains(&self, offset: Offset) -> bool {
        offset.0 < self.floor || self.end_of(offset).is_some()
    }

    /// The first offset from `offset` on that is not finished.
    pub(super) fn first_unfinished_from(&self, offset: Offset) -> Offset {
        let offset = offset.max(self.floor());
        self.end_of(offset).unwrap_or(offset)
    }

    /// Adds one offset. Acks that come in order only move the floor.
    pub(super) fn add(&mut self, offset: Offset) {
        if offset.0 == self.floor && offset < Offset::MAX {
            self.floor += 1;
            self.absorb();
        } else {
            self.add_range(OffsetRange::single(offset));
        }
    }

    /// Adds a range; returns how many of its offsets were not finished before.
    pub(super) fn add_range(&mut self, range: OffsetRange) -> u64 {
        let (mut start, mut end) = (range.start.0.max(self.floor), range.end.0);
        if start >= end {
            return 0;
        }
        let mut known = 0;
        // Merge every range that overlaps or touches, from the last one at or below the end downwards.
        while let Some((&at, &until)) = self.ranges.range(..=end).next_back() {
            if until < start {
                break;
            }
            known += until.min(range.end.0).saturating_sub(at.max(range.start.0));
            (start, end) = (start.min(at), end.max(until));
            self.covered -= until - at;
            self.ranges.remove(&at);
        }
        let added = range.end.0 - range.start.0.max(self.floor) - known;
        self.covered += end - start;
        self.ranges.insert(start, end);
        self.absorb();
        added
    }

    fn end_of(&self, offset: Offset) -> Option<Offset> {
        let (_, end) = self.ranges.range(..=offset.0).next_back()?;
        (*end > offset.0).then_some(Offset(*end))
    }

    /// Moves the floor over the ranges that touch it.
    fn absorb(&mut self) {
        while let Some((&start, &end)) = self.ranges.first_key_value() {
            if start > self.floor {
                break;
            }
            self.covered -= end - start;
            self.floor = self.floor.max(end);
            self.ranges.remove(&start);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn in_order_makes_no_ranges() {
        let mut finished = FinishedRanges::below(Offset(5));
        for offset in 5..10 {
            finished.add(Offset(offset));
            assert_eq!((finished.floor(), finished.ranges()), (Offset(offset + 1), 0));
        }
    }

    proptest! {
        #[test]
        fn without_some_is_the_set_without_them(
            floor in 0u64..9,
            adds in proptest::collection::vec((0u64..40, 0u64..9), 0..12),
            holes in proptest::collection::btree_set(0u64..40, 0..9),
        ) {
            let mut finished = FinishedRanges::below(Offset(floor));
            for (start, len) in adds {
                finished.add_range(OffsetRange::new(Offset(start), Offset(start + len)));
            }
            let holes: Vec<Offset> =
                holes.into_iter().map(Offset).filter(|hole| finished.contains(*hole)).collect();
            let (floor, ranges) = finished.without(&holes);
            let has = |at| at < floor || ranges.iter().any(|range| range.contains(at));
            for at in (0..60).map(Offset) {
                prop_assert_eq!(has(at), finished.contains(at) && !holes.contains(&at));
            }
            let ends: Vec<u64> = ranges.iter().flat_map(|r| [r.start.0, r.end.0]).collect();
            prop_assert!(ends.windows(2).all(|w| w[0] < w[1]) && ends.first().is_none_or(|s| *s > floor.0));
        }

        #[test]
        fn is_a_set_of_numbers(floor in 0u64..20, adds in proptest::collection::vec((0u64..60, 0u64..9), 0..40)) {
            let mut finished = FinishedRanges::below(Offset(floor));
            let mut set: BTreeSet<u64> = (0..floor).collect();
            for (start, len) in adds {
                let range = OffsetRange::new(Offset(start), Offset(start + len));
                let before = set.len();
                set.extend(start..start + len);
                if len == 1 {
                    finished.add(Offset(start));
                } else {
                    prop_assert_eq!(finished.add_range(range), (set.len() - before) as u64);
                }
                let expected_floor = (0..).find(|offset| !set.contains(offset)).unwrap();
                prop_assert_eq!(finished.floor(), Offset(expected_floor));
                for offset in 0..80 {
                    prop_assert_eq!(finished.contains(Offset(offset)), set.contains(&offset));
                    let covered = (expected_floor..offset).filter(|o| set.contains(o)).count();
                    prop_assert_eq!(finished.covered_below(Offset(offset.max(expected_floor))), covered as u64);
                }
                let ranges = finished.to_vec();
                prop_assert_eq!(ranges.len(), finished.ranges());
                let ends: Vec<u64> = ranges.iter().flat_map(|r| [r.start.0, r.end.0]).collect();
                prop_assert!(ends.windows(2).all(|w| w[0] < w[1]) && ends.first().is_none_or(|s| *s > expected_floor));
            }
        }
    }
}
