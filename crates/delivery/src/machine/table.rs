//! The events that are known and not finished, and where each of them stands.

use std::collections::{BTreeMap, BTreeSet};

use promethean_model::Offset;

use crate::types::MemberNo;

/// The partition of an event that was not read since it was named (a redriven one).
pub(super) const UNREAD: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Entry {
    /// The hash of its key, where the group is ordered.
    pub(super) key: Option<u64>,
    pub(super) partition: u32,
    /// Attempts that failed.
    pub(super) failed: u32,
    /// Redriven: finished as far as the cursor and the order of keys are concerned.
    pub(super) extra: bool,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum State {
    Leased(Lease),
    /// Its failure is not durable yet; to be delivered again from `due` (monotonic) on.
    Failing {
        due: u64,
    },
    Backoff {
        due: u64,
    },
    /// An earlier event of its key is not finished.
    Blocked,
    /// To be read and delivered.
    Ready,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) member: MemberNo,
    pub(super) serial: u64,
    /// Monotonic; `NO_DEADLINE` until it is written.
    pub(super) deadline: u64,
}

pub(super) const NO_DEADLINE: u64 = u64::MAX;

/// The entries by offset. The counts and indexes follow from the states of the entries; only `index` and `unindex`
/// change them.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: BTreeMap<u64, Entry>,
    /// partition -> offsets
    ready: BTreeMap<u32, BTreeSet<u64>>,
    /// (due, offset)
    backoff: BTreeSet<(u64, u64)>,
    pub(super) leased: usize,
    pub(super) failing: usize,
    pub(super) blocked: usize,
    pub(super) extras: usize,
    /// Neither leased nor redriven: what the look-ahead bounds.
    pub(super) waiting: usize,
}

impl Table {
    pub(super) fn get(&self, offset: Offset) -> Option<&Entry> {
        self.entries.get(&offset.0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Offset, &Entry)> {
        self.entries.iter().map(|(offset, entry)| (Offset(*offset), entry))
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = (Offset, &Entry, Lease)> {
        self.iter().filter_map(|(offset, entry)| match entry.state {
            State::Leased(lease) => Some((offset, entry, lease)),
            _ => None,
        })
    }

    pub(super) fn insert(&mut self, offset: Offset, entry: Entry) {
        self.index(offset.0, &entry);
        let before = self.entries.insert(offset.0, entry);
        debug_assert!(before.is_none(), "{offset} was known already");
    }

    pub(super) fn remove(&mut self, offset: Offset) -> Option<Entry> {
        let entry = self.entries.remove(&offset.0)?;
        self.unindex(offset.0, &entry);
        Some(entry)
    }

    /// Changes an entry; `change` must not keep it from being indexed by what it says.
    pub(super) fn change(&mut self, offset: Offset, change: impl FnOnce(&mut Entry)) {
        if let Some(mut entry) = self.remove(offset) {
            change(&mut entry);
            self.insert(offset, entry);
        }
    }

    pub(super) fn set(&mut self, offset: Offset, state: State) {
        self.change(offset, |entry| entry.state = state);
    }

    /// Moves the deadline of a lease, which no index depends on.
    pub(super) fn set_deadline(&mut self, offset: Offset, deadline: u64) {
        if let Some(Entry { state: State::Leased(lease), .. }) = self.entries.get_mut(&offset.0) {
            lease.deadline = deadline;
        }
    }

    /// Keeps the redriven entries below `to`.
    pub(super) fn reset_below(&mut self, to: Offset) {
        let kept = std::mem::take(self);
        for (offset, entry) in kept.entries {
            if entry.extra && offset < to.0 {
                self.insert(Offset(offset), Entry { failed: 0, state: State::Ready, ..entry });
            }
        }
    }

    /// The partitions that have ready events, with those events.
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

    /// Makes the events ready whose backoff is over.
    pub(super) fn wake(&mut self, now_ms: u64) {
        while let Some(&(due, offset)) = self.backoff.first() {
            if due > now_ms {
                break;
            }
            self.set(Offset(offset), State::Ready);
        }
    }

    fn index(&mut self, offset: u64, entry: &Entry) {
        match entry.state {
            State::Leased(_) => self.leased += 1,
            State::Failing { .. } => self.failing += 1,
            State::Backoff { due } => _ = self.backoff.insert((due, offset)),
            State::Blocked => self.blocked += 1,
            State::Ready => _ = self.ready.entry(entry.partition).or_default().insert(offset),
        }
        self.extras += usize::from(entry.extra);
        self.waiting += usize::from(waits(entry));
    }

    fn unindex(&mut self, offset: u64, entry: &Entry) {
        match entry.state {
            State::Leased(_) => self.leased -= 1,
            State::Failing { .. } => self.failing -= 1,
            State::Backoff { due } => _ = self.backoff.remove(&(due, offset)),
            State::Blocked => self.blocked -= 1,
            State::Ready => {
                if let Some(offsets) = self.ready.get_mut(&entry.partition) {
                    offsets.remove(&offset);
                    if offsets.is_empty() {
                        self.ready.remove(&entry.partition);
                    }
                }
            }
        }
        self.extras -= usize::from(entry.extra);
        self.waiting -= usize::from(waits(entry));
    }
}

const fn waits(entry: &Entry) -> bool {
    !entry.extra && !matches!(entry.state, State::Leased(_))
}
