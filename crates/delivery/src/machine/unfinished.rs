//! The events that are known and not finished, with the stage of each.

use std::collections::{BTreeMap, BTreeSet};

use promethean_model::Offset;

use crate::effect::LetterRef;
use crate::input::MemberNo;

/// The partition of a redriven event that was not read yet.
pub(super) const PARTITION_UNKNOWN: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct UnfinishedEvent {
    /// The hash of its key, where the group is ordered by key.
    pub(super) key: Option<u64>,
    pub(super) partition: u32,
    /// How many attempts failed.
    pub(super) failed: u32,
    /// If it is redriven, how often: for the cursor and for the order of keys it is finished.
    pub(super) redriven: Option<u32>,
    pub(super) stage: Stage,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    Leased(ActiveLease),
    /// Its failure is not durable yet; the next attempt is due at `due` (monotonic).
    Failing {
        due: u64,
    },
    /// It waits for its next attempt at `due` (monotonic).
    Backoff {
        due: u64,
    },
    /// It waits for an earlier event of its key.
    Blocked,
    /// It can be read and delivered.
    Ready,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ActiveLease {
    pub(super) member: MemberNo,
    pub(super) serial: u64,
    /// Monotonic; `NO_DEADLINE` until the delivery is written.
    pub(super) deadline: u64,
}

pub(super) const NO_DEADLINE: u64 = u64::MAX;

/// The unfinished events by offset. The counts and indexes follow from the stages of the events; only `index`
/// and `unindex` change them.
#[derive(Debug, Default)]
pub(super) struct UnfinishedEvents {
    entries: BTreeMap<u64, UnfinishedEvent>,
    /// partition -> offsets
    ready: BTreeMap<u32, BTreeSet<u64>>,
    /// (due, offset)
    backoff: BTreeSet<(u64, u64)>,
    pub(super) leased: usize,
    pub(super) failing: usize,
    pub(super) blocked: usize,
    pub(super) redriven: usize,
    /// Events that are neither leased nor redriven; the look-ahead bounds them.
    pub(super) waiting: usize,
}

impl UnfinishedEvents {
    pub(super) fn get(&self, offset: Offset) -> Option<&UnfinishedEvent> {
        self.entries.get(&offset.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Offset, &UnfinishedEvent)> {
        self.entries.iter().map(|(offset, entry)| (Offset(*offset), entry))
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = (Offset, &UnfinishedEvent, ActiveLease)> {
        self.iter().filter_map(|(offset, entry)| match entry.stage {
            Stage::Leased(lease) => Some((offset, entry, lease)),
            _ => None,
        })
    }

    pub(super) fn insert(&mut self, offset: Offset, entry: UnfinishedEvent) {
        self.index(offset.0, &entry);
        let before = self.entries.insert(offset.0, entry);
        debug_assert!(before.is_none(), "{offset} was known already");
    }

    pub(super) fn remove(&mut self, offset: Offset) -> Option<UnfinishedEvent> {
        let entry = self.entries.remove(&offset.0)?;
        self.unindex(offset.0, &entry);
        Some(entry)
    }

    /// Changes an event and indexes it again.
    pub(super) fn change(&mut self, offset: Offset, change: impl FnOnce(&mut UnfinishedEvent)) {
        if let Some(mut entry) = self.remove(offset) {
            change(&mut entry);
            self.insert(offset, entry);
        }
    }

    pub(super) fn set(&mut self, offset: Offset, stage: Stage) {
        self.change(offset, |entry| entry.stage = stage);
    }

    /// Moves the deadline of a lease; no index depends on it.
    pub(super) fn set_deadline(&mut self, offset: Offset, deadline: u64) {
        if let Some(UnfinishedEvent { stage: Stage::Leased(lease), .. }) = self.entries.get_mut(&offset.0) {
            lease.deadline = deadline;
        }
    }

    /// Removes all events except the redriven ones below `to`, which are ready again with no failed attempts.
    /// Returns the redriven events from `to` on.
    pub(super) fn reset_below(&mut self, to: Offset) -> Vec<LetterRef> {
        let before = std::mem::take(self);
        let mut removed = Vec::new();
        for (offset, entry) in before.entries {
            let Some(redrives) = entry.redriven else { continue };
            let offset = Offset(offset);
            if offset < to {
                self.insert(offset, UnfinishedEvent { failed: 0, stage: Stage::Ready, ..entry });
            } else {
                removed.push(LetterRef { offset, redrives });
            }
        }
        removed
    }

    /// The partitions that have ready events, with the offsets of the events.
    pub(super) fn ready(&self) -> impl Iterator<Item = (u32, &BTreeSet<u64>)> {
        self.ready.iter().map(|(partition, offsets)| (*partition, offsets))
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn has_backoff(&self) -> bool {
        !self.backoff.is_empty()
    }

    /// When the first backoff ends.
    pub(super) fn first_due(&self) -> Option<u64> {
        self.backoff.first().map(|(due, _)| *due)
    }

    /// Makes events ready whose backoff is over.
    pub(super) fn wake(&mut self, now_ms: u64) {
        while let Some(&(due, offset)) = self.backoff.first() {
            if due > now_ms {
                break;
            }
            self.set(Offset(offset), Stage::Ready);
        }
    }

    fn index(&mut self, offset: u64, entry: &UnfinishedEvent) {
        match entry.stage {
            Stage::Leased(_) => self.leased += 1,
            Stage::Failing { .. } => self.failing += 1,
            Stage::Backoff { due } => _ = self.backoff.insert((due, offset)),
            Stage::Blocked => self.blocked += 1,
            Stage::Ready => _ = self.ready.entry(entry.partition).or_default().insert(offset),
        }
        self.redriven += usize::from(entry.redriven.is_some());
        self.waiting += usize::from(waits(entry));
    }

    fn unindex(&mut self, offset: u64, entry: &UnfinishedEvent) {
        match entry.stage {
            Stage::Leased(_) => self.leased -= 1,
            Stage::Failing { .. } => self.failing -= 1,
            Stage::Backoff { due } => _ = self.backoff.remove(&(due, offset)),
            Stage::Blocked => self.blocked -= 1,
            Stage::Ready => {
                if let Some(offsets) = self.ready.get_mut(&entry.partition) {
                    offsets.remove(&offset);
                    if offsets.is_empty() {
                        self.ready.remove(&entry.partition);
                    }
                }
            }
        }
        self.redriven -= usize::from(entry.redriven.is_some());
        self.waiting -= usize::from(waits(entry));
    }
}

const fn waits(entry: &UnfinishedEvent) -> bool {
    entry.redriven.is_none() && !matches!(entry.stage, Stage::Leased(_))
}
