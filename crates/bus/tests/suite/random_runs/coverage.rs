//! What happened in the runs of a suite, and how often. What never happened is not tested.

use std::collections::BTreeMap;

/// What happens in the fixed seeds on every kind of store.
const EVERYWHERE: [&str; 7] = [
    "batches published",
    "events acked",
    "seeks",
    "buses closed",
    "events removed by compaction",
    "failures of lost members",
    "jumps of the clock",
];
const ON_DISK: [&str; 2] = ["power cuts", "torn states"];
const IN_MEMORY: [&str; 7] = [
    "groups paused",
    "topics deleted",
    "events removed by retention",
    "writes refused: failed",
    "writes refused: busy",
    "buses left behind",
    "acks after the process stood still",
];
/// What a user does too seldom for a few seeds: it happens in some hundred.
const SELDOM: [&str; 5] = [
    "events redriven to the group",
    "events redriven to the topic",
    "letters dropped",
    "groups deleted",
    "writes refused: full",
];
/// Seeds from which on all that is seldom must happen.
const SEEDS_MANY: usize = 300;

#[derive(Debug, Default)]
pub(super) struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub(super) fn count(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    pub(super) fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, times)| self.count(what, *times));
    }

    pub(super) fn check(&self, on_disk: bool, seeds: usize) {
        let seldom = if seeds < SEEDS_MANY { &[][..] } else { &SELDOM };
        let own = if on_disk { &ON_DISK[..] } else { &IN_MEMORY };
        let needed = EVERYWHERE.iter().chain(own).chain(seldom);
        let missing: Vec<_> = needed.filter(|what| self.0.get(*what).copied().unwrap_or(0) == 0).collect();
        assert!(missing.is_empty(), "never happened: {missing:?} in {self:#?}");
    }
}
