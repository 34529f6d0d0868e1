//! A simple reference of delivery: plain maps that follow the inputs of a machine. All effects of the machine
//! are judged by them. The reference does not scan, bound, batch or index anything.

use std::collections::{BTreeMap, BTreeSet};

use promethean_delivery::{Allowance, Attempts, LeaseRef, MemberNo, Order, Progress, ReplyNo, SavedProgress};
use promethean_model::{Offset, OffsetRange, StoredEvent};

pub(super) struct Event {
    pub(super) stored: StoredEvent,
    pub(super) wanted: bool,
    pub(super) partition: u32,
    pub(super) exists: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Lease {
    pub(super) member: MemberNo,
    pub(super) serial: u64,
    pub(super) deadline: Option<u64>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Failed {
    pub(super) count: u32,
    pub(super) committed: u32,
    /// When the last attempt failed, monotonic.
    pub(super) at: u64,
    /// When the next attempt is due; `None` if it failed before a restart, since the wall clock may have
    /// jumped.
    pub(super) due: Option<u64>,
    /// Whether `due` is exact; if not it is the earliest time that the jitter allows.
    pub(super) exact: bool,
}

pub(super) struct Member {
    pub(super) allowance: Allowance,
    pub(super) paused: bool,
    pub(super) auto_ack: bool,
    pub(super) timeout: u64,
    pub(super) batch: usize,
    pub(super) unwritten: Vec<LeaseRef>,
}

/// The durable state.
#[derive(Default)]
pub(super) struct Store {
    pub(super) floor: u64,
    pub(super) finished: Vec<OffsetRange>,
    pub(super) attempts: BTreeMap<u64, Attempts>,
    /// Open dead letters, and whether each is being redriven.
    pub(super) letters: BTreeMap<u64, bool>,
    /// Dead letters that are open only because closing them failed. Their events may die again.
    unclosed: BTreeSet<u64>,
}

impl Store {
    pub(super) fn has(&self, offset: u64) -> bool {
        offset < self.floor || self.finished.iter().any(|range| range.contains(Offset(offset)))
    }

    /// Applies a commit; returns the dead letters it closed, as they were.
    fn apply(&mut self, progress: &Progress, exists: impl Fn(u64) -> bool) -> Vec<(u64, bool)> {
        self.floor = progress.floor.0;
        self.finished.clone_from(&progress.finished);
        if progress.seek.is_some() {
            self.attempts.clear();
        }
        for offset in &progress.forget {
            self.attempts.remove(&offset.0);
        }
        for row in &progress.failed {
            self.attempts.insert(row.offset.0, *row);
        }
        for letter in &progress.dead {
            let before = self.letters.insert(letter.offset.0, false);
            let unclosed = self.unclosed.remove(&letter.offset.0);
            assert!(before != Some(false) || unclosed, "{} died twice", letter.offset);
        }
        let mut closed: Vec<u64> = progress.redriven.iter().map(|offset| offset.0).collect();
        if let Some(to) = progress.seek {
            assert!(progress.dead.iter().all(|dead| dead.offset < to), "dead, and delivered again");
            for (offset, redriving) in self.letters.range_mut(to.0..) {
                if exists(*offset) {
                    closed.push(*offset);
                } else {
                    // The event is gone: its dead letter stays open.
                    *redriving = false;
                    self.unclosed.remove(offset);
                }
            }
        }
        self.unclosed.retain(|offset| !closed.contains(offset));
        let closed = closed.into_iter().filter_map(|offset| Some((offset, self.letters.remove(&offset)?)));
        let closed = closed.collect();
        for offset in &progress.reopened {
            if let Some(redriving) = self.letters.get_mut(&offset.0) {
                *redriving = false;
            }
        }
        assert!(
            self.unclosed.iter().all(|offset| !self.has(*offset)),
            "finished, and a letter that looks open"
        );
        closed
    }

    pub(super) fn saved_progress(&self, first_serial: u64, exists: impl Fn(u64) -> bool) -> SavedProgress {
        let unclosed = |o: &u64| !self.has(*o) && exists(*o);
        let lost = |o: &u64| !self.has(*o) && !exists(*o);
        let redriven =
            self.letters.iter().filter(|(o, redriving)| **redriving && self.has(**o) || unclosed(o));
        let reopened = self.letters.iter().filter(|(o, redriving)| **redriving && lost(o));
        SavedProgress {
            floor: Offset(self.floor),
            finished: self.finished.clone(),
            attempts: self.attempts.values().copied().collect(),
            redriven: redriven.map(|(o, _)| Offset(*o)).collect(),
            reopened: reopened.map(|(o, _)| Offset(*o)).collect(),
            paused: false,
            first_serial,
        }
    }
}

pub(super) struct Waiting {
    pub(super) reply: ReplyNo,
    pub(super) stale: usize,
    pub(super) acked: Vec<u64>,
}

impl Waiting {
    /// Forgets acks from `to` on, since a seek delivers their events again.
    fn undo_from(&mut self, to: u64) {
        self.acked.retain(|offset| *offset < to);
    }
}

pub(super) struct Sent {
    pub(super) progress: Progress,
    pub(super) replies: Vec<Waiting>,
    pub(super) seek: Option<u64>,
    pub(super) seek_since: Option<u64>,
    pub(super) dead: BTreeMap<u64, (u32, bool)>,
}

pub(super) struct Reference {
    pub(super) order: Order,
    pub(super) partitions: Option<u32>,
    pub(super) max_attempts: u32,
    pub(super) dead_letters: bool,
    pub(super) log: Vec<Event>,
    pub(super) earliest: u64,
    /// The durable end as the machine knows it.
    pub(super) end: u64,
    /// Events that are wanted, exist and are not done, and leased events.
    pub(super) undone: BTreeSet<u64>,
    /// Events acked or dead since the last seek, durable or not.
    pub(super) done: BTreeSet<u64>,
    pub(super) extras: BTreeSet<u64>,
    pub(super) leases: BTreeMap<u64, Lease>,
    pub(super) failed: BTreeMap<u64, Failed>,
    pub(super) members: BTreeMap<MemberNo, Member>,
    pub(super) owners: Vec<Option<MemberNo>>,
    pub(super) paused: bool,
    /// The lowest target of the seeks that are not committed.
    pub(super) seeking: Option<u64>,
    /// Whether a seek is durable and the machine does not know it yet.
    pub(super) sought: bool,
    pub(super) pend_failed: BTreeSet<u64>,
    pub(super) pend_dead: BTreeMap<u64, (u32, bool)>,
    pub(super) pend_redriven: BTreeSet<u64>,
    pub(super) pend_replies: Vec<Waiting>,
    pub(super) sent: Option<Sent>,
    pub(super) store: Store,
}

impl Reference {
    pub(super) fn exists(&self, offset: u64) -> bool {
        offset >= self.earliest && self.log.get(offset as usize).is_some_and(|event| event.exists)
    }

    pub(super) fn key(&self, offset: u64) -> Option<&str> {
        self.log[offset as usize].stored.key()
    }

    pub(super) fn current(&self, member: MemberNo, lease: LeaseRef) -> bool {
        self.leases.get(&lease.offset.0).is_some_and(|l| l.member == member && l.serial == lease.serial)
    }

    /// Whether an earlier event of its key is not done.
    pub(super) fn is_blocked(&self, offset: u64) -> bool {
        let Some(key) = self.key(offset).filter(|_| self.order == Order::Key) else { return false };
        self.undone.range(..offset).any(|earlier| self.key(*earlier) == Some(key))
    }

    pub(super) fn end_lease(&mut self, offset: u64) {
        self.leases.remove(&offset).unwrap();
        if !self.exists(offset) {
            self.undone.remove(&offset);
            self.extras.remove(&offset);
        }
    }

    pub(super) fn finish(&mut self, offset: u64) {
        let extra = self.extras.remove(&offset);
        self.end_lease(offset);
        self.failed.remove(&offset);
        if extra {
            self.pend_dead.remove(&offset);
            self.pend_redriven.insert(offset);
        } else {
            self.undone.remove(&offset);
            self.done.insert(offset);
        }
    }

    /// Fails an attempt; `delay_ms` is `None` for the server's backoff.
    pub(super) fn fail(&mut self, offset: u64, at: u64, delay_ms: Option<u64>) {
        let failed = self.failed.entry(offset).or_default();
        failed.count += 1;
        let base = 100 << (failed.count - 1).min(20);
        let least = delay_ms.unwrap_or(base.min(30_000) * 8 / 10);
        (failed.at, failed.due, failed.exact) = (at, Some(at + least), delay_ms.is_some());
        let count = failed.count;
        if self.dead_letters && count >= self.max_attempts {
            let extra = self.extras.contains(&offset);
            self.finish(offset);
            self.pend_redriven.remove(&offset);
            self.pend_dead.insert(offset, (count, extra));
        } else {
            self.pend_failed.insert(offset);
            self.end_lease(offset);
        }
    }

    /// Ends a lease whose member has no right to it any more. What had reached a lost member has failed,
    /// whichever part of the server heard of the loss first.
    pub(super) fn lose_lease(&mut self, offset: u64, is_lost: bool, at: u64) {
        if is_lost && self.leases[&offset].deadline.is_some() {
            self.fail(offset, at, Some(0));
        } else {
            self.end_lease(offset);
        }
    }

    pub(super) fn seek(&mut self, to: u64) {
        for offset in self.leases.keys().copied().collect::<Vec<_>>() {
            self.end_lease(offset);
        }
        self.failed.clear();
        self.pend_failed.clear();
        self.extras.split_off(&to);
        self.pend_dead.split_off(&to);
        self.pend_redriven.split_off(&to);
        self.pend_replies.iter_mut().for_each(|waiting| waiting.undo_from(to));
        self.done.clear();
        self.undone = (to..self.log.len() as u64).filter(|o| self.is_wanted(*o)).collect();
        self.seeking = Some(self.seeking.map_or(to, |before| before.min(to)));
        if let Some(sent) = &mut self.sent {
            sent.seek_since = Some(sent.seek_since.map_or(to, |before| before.min(to)));
        }
    }

    pub(super) fn redrive(&mut self, offset: u64) {
        self.store.letters.insert(offset, true);
        if self.undone.contains(&offset) {
            self.pend_redriven.insert(offset);
        } else if self.exists(offset) {
            self.extras.insert(offset);
        }
    }

    /// Makes the commit that is out durable; returns it with the dead letters it closed, as they were.
    pub(super) fn committed(&mut self) -> (Sent, Vec<(u64, bool)>) {
        let sent = self.sent.take().unwrap();
        let mut store = std::mem::take(&mut self.store);
        let closed = store.apply(&sent.progress, |offset| self.exists(offset));
        self.store = store;
        for row in &sent.progress.failed {
            if let Some(failed) = self.failed.get_mut(&row.offset.0).filter(|_| sent.seek_since.is_none()) {
                failed.committed = row.failed;
            }
        }
        (sent, closed)
    }

    /// Whether a seek is not durable yet; until then nothing may be delivered.
    pub(super) fn is_seeking(&self) -> bool {
        self.sought || self.seeking.is_some() || self.sent.as_ref().is_some_and(|sent| sent.seek.is_some())
    }

    pub(super) fn is_closing(&self, letter: u64) -> bool {
        let by_seek = |seek: Option<u64>| seek.is_some_and(|to| letter >= to);
        let by_sent = |sent: &Sent| by_seek(sent.seek) || sent.progress.redriven.contains(&Offset(letter));
        self.pend_redriven.contains(&letter)
            || by_seek(self.seeking)
            || self.sent.as_ref().is_some_and(by_sent)
    }

    /// Opens dead letters again that the last commit could not close.
    pub(super) fn unclosed(&mut self, letters: &[(u64, bool)]) {
        self.store.letters.extend(letters.iter().copied());
        // A letter below a later seek is an ordinary open letter again.
        let delivered = letters.iter().map(|(offset, _)| *offset).filter(|offset| !self.store.has(*offset));
        self.store.unclosed.extend(delivered.collect::<Vec<_>>());
        let died_again = &self.pend_dead;
        self.pend_redriven
            .extend(letters.iter().map(|(offset, _)| *offset).filter(|o| !died_again.contains_key(o)));
    }

    pub(super) fn commit_failed(&mut self) {
        let mut sent = self.sent.take().unwrap();
        let mut redriven: BTreeSet<u64> = sent.progress.redriven.iter().map(|offset| offset.0).collect();
        let mut dead = sent.dead;
        match sent.seek_since {
            Some(to) => {
                dead.split_off(&to);
                redriven.split_off(&to);
                sent.replies.iter_mut().for_each(|waiting| waiting.undo_from(to));
            }
            None => self.pend_failed.extend(sent.progress.failed.iter().map(|row| row.offset.0)),
        }
        // Of two changes of the same dead letter the newer one wins.
        redriven.retain(|offset| !self.pend_dead.contains_key(offset));
        dead.retain(|offset, _| !self.pend_redriven.contains(offset) && !self.pend_dead.contains_key(offset));
        self.pend_redriven.extend(redriven);
        self.pend_dead.extend(dead);
        let newer = std::mem::take(&mut self.pend_replies);
        self.pend_replies = sent.replies.into_iter().chain(newer).collect();
        self.seeking = [self.seeking, sent.seek].into_iter().flatten().min();
    }

    /// Forgets everything that a crash loses.
    pub(super) fn crash(&mut self) {
        self.members.clear();
        self.leases.clear();
        self.pend_failed.clear();
        self.pend_dead.clear();
        self.pend_redriven.clear();
        self.pend_replies.clear();
        self.sent = None;
        self.seeking = None;
        self.done.clear();
        self.end = 0;
        self.undone =
            (0..self.log.len() as u64).filter(|o| self.is_wanted(*o) && !self.store.has(*o)).collect();
        self.extras.clear();
        // A letter whose event is gone stays open.
        let mut unclosed = std::mem::take(&mut self.store.unclosed);
        unclosed.retain(|offset| self.exists(*offset));
        self.store.unclosed = unclosed;
        for (offset, redriving) in self.store.letters.clone() {
            if redriving {
                self.redrive(offset);
            } else if self.undone.contains(&offset) {
                self.pend_redriven.insert(offset);
            }
        }
        let rows = self.store.attempts.iter();
        self.failed = rows
            .map(|(o, r)| (*o, Failed { count: r.failed, committed: r.failed, ..Failed::default() }))
            .collect();
        self.failed.retain(|offset, _| self.undone.contains(offset) || self.extras.contains(offset));
    }

    fn is_wanted(&self, offset: u64) -> bool {
        self.exists(offset) && self.log[offset as usize].wanted
    }
}
