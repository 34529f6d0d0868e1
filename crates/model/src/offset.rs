//! Positions in a topic.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The position of an event in its topic: 0, 1, 2 ... without gaps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// The first offset of every topic.
    pub const ZERO: Self = Self(0);
    /// Greater than the offset of any event, since a topic cannot hold 2^64 of them.
    pub const MAX: Self = Self(u64::MAX);

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The offset after this one. `MAX` stays `MAX`: no event has it.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The offset before this one, unless this is the first.
    pub const fn prev(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(offset) => Some(Self(offset)),
            None => None,
        }
    }

    /// The offset `count` above this one, unless that overflows.
    pub const fn checked_add(self, count: u64) -> Option<Self> {
        match self.0.checked_add(count) {
            Some(offset) => Some(Self(offset)),
            None => None,
        }
    }

    /// The offset `count` below this one, unless that is below the first.
    pub const fn checked_sub(self, count: u64) -> Option<Self> {
        match self.0.checked_sub(count) {
            Some(offset) => Some(Self(offset)),
            None => None,
        }
    }

    /// The number of offsets from `earlier` up to this one; 0 if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl From<u64> for Offset {
    fn from(offset: u64) -> Self {
        Self(offset)
    }
}

impl From<Offset> for u64 {
    fn from(offset: Offset) -> Self {
        offset.0
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The offsets from `start` up to but not including `end`; empty if `end` is not greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OffsetRange {
    /// The first offset inside.
    pub start: Offset,
    /// The first offset after.
    pub end: Offset,
}

impl OffsetRange {
    /// The range `start..end`.
    pub const fn new(start: Offset, end: Offset) -> Self {
        Self { start, end }
    }

    /// The range that holds `offset` alone.
    pub const fn single(offset: Offset) -> Self {
        Self { start: offset, end: offset.next() }
    }

    /// The number of offsets inside.
    pub const fn len(&self) -> u64 {
        self.end.since(self.start)
    }

    /// Whether none is inside.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `offset` is inside.
    pub const fn contains(&self, offset: Offset) -> bool {
        self.start.0 <= offset.0 && offset.0 < self.end.0
    }

    /// The offsets inside, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Offset> + use<> {
        (self.start.0..self.end.0).map(Offset)
    }

    /// The offsets inside both ranges; possibly none.
    pub fn intersect(&self, other: &Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

impl fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(Offset(6).next(), Offset(7));
        assert_eq!(Offset::MAX.next(), Offset::MAX);
        assert_eq!(Offset::ZERO.prev(), None);
        assert_eq!(Offset::MAX.checked_add(1), None);
        assert_eq!(Offset(5).checked_sub(6), None);
        assert_eq!(Offset(5).checked_sub(5), Some(Offset::ZERO));
        assert_eq!((Offset(9).since(Offset(4)), Offset(4).since(Offset(9))), (5, 0));
    }

    #[test]
    fn ranges_are_half_open() {
        let range = OffsetRange::new(Offset(3), Offset(6));
        assert_eq!(range.len(), 3);
        assert!(range.contains(Offset(3)) && range.contains(Offset(5)) && !range.contains(Offset(6)));
        assert_eq!(range.iter().map(Offset::get).collect::<Vec<_>>(), [3, 4, 5]);
        assert!(OffsetRange::new(Offset(6), Offset(3)).is_empty());
        assert!(range.intersect(&OffsetRange::new(Offset(6), Offset(9))).is_empty());
        assert_eq!(range.intersect(&OffsetRange::single(Offset(4))), OffsetRange::single(Offset(4)));
        assert_eq!(range.to_string(), "3..6");
    }

    #[test]
    fn is_a_number_in_json() {
        assert_eq!(serde_json::to_string(&Offset(7)).unwrap(), "7");
        assert_eq!(serde_json::from_str::<Offset>("18446744073709551615").unwrap(), Offset::MAX);
        assert!(serde_json::from_str::<Offset>("-1").is_err());
    }
}
