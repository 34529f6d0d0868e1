//! The reference of delivery: plain maps, updated by every input, against which every effect is judged. It does not scan,
//! bound, batch or index anything.

use std::collections::{BTreeMap, BTreeSet};

use promethean_bus::delivery::types::{Attempts, LeaseRef, MemberNo, Order, Progress, ReplyNo};
use promethean_bus::delivery::{Allowance, Start};
use promethean_model::{Offset, OffsetRange};
use promethean_store::port::StoredEvent;

pub(crate) struct Event {
    pub(crate) stored: StoredEvent,
    pub(crate) wanted: bool,
    pub(crate) partition: u32,
    pub(crate) exists: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) member: MemberNo,
    pub(crate) serial: u64,
    pub(crate) deadline: Option<u64>,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Failed {
    pub(crate) count: u32,
    pub(crate) committed: u32,
    /// When the last attempt failed, monotonic.
    pub(crate) at: u64,
    /// `None`: noted before a restart, so the time is known only up to jumps of the wall clock.
    pub(crate) due: Option<u64>,
    /// Whether `due` is known to the millisecond; else it is the earliest that the jitter allows.
    pub(crate) exact: bool,
}

pub(crate) struct Member {
    pub(crate) allowance: Allowance,
    pub(crate) paused: bool,
    pub(crate) auto_ack: bool,
    pub(crate) timeout: u64,
    pub(crate) batch: usize,
    pub(crate) unwritten: Vec<LeaseRef>,
}

/// The durable state.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) floor: u64,
    pub(crate) finished: Vec<OffsetRange>,
    pub(crate) attempts: BTreeMap<u64, Attempts>,
    /// Open letters, each with whether it is being redriven.
    pub(crate) letters: BTreeMap<u64, bool>,
    /// Letters that are open only because they could not be closed. Their events may become dead letters again.
    unclosed: BTreeSet<u64>,
}

impl Store {
    pub(crate) fn has(&self, offset: u64) -> bool {
        offset < self.floor || self.finished.iter().any(|range| range.contains(Offset(offset)))
    }

    /// The letters that it closed, as they were.
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
                    // Only the letter still holds its event.
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

    pub(crate) fn start(&self, first_serial: u64, exists: impl Fn(u64) -> bool) -> Start {
        let unclosed = |o: &u64| !self.has(*o) && exists(*o);
        let lost = |o: &u64| !self.has(*o) && !exists(*o);
        let redriven =
            self.letters.iter().filter(|(o, redriving)| **redriving && self.has(**o) || unclosed(o));
        let reopened = self.letters.iter().filter(|(o, redriving)| **redriving && lost(o));
        Start {
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

pub(crate) struct Waiting {
    pub(crate) reply: ReplyNo,
    pub(crate) stale: usize,
    pub(crate) acked: Vec<u64>,
}

impl Waiting {
    /// A seek delivers acked events again.
    fn undo_from(&mut self, to: u64) {
        self.acked.retain(|offset| *offset < to);
    }
}

pub(crate) struct Sent {
    pub(crate) progress: Progress,
    pub(crate) replies: Vec<Waiting>,
    pub(crate) seek: Option<u64>,
    pub(crate) seek_since: Option<u64>,
    pub(crate) dead: BTreeMap<u64, (u32, bool)>,
}

pub(crate) struct Model {
    pub(crate) order: Order,
    pub(crate) partitions: Option<u32>,
    pub(crate) max_attempts: u32,
    pub(crate) dead_letters: bool,
    pub(crate) log: Vec<Event>,
    pub(crate) earliest: u64,
    /// The events that the machine was told of, or has read.
    pub(crate) end: u64,
    /// Events that the group wants, that exist and are not done; or that are in flight.
    pub(crate) undone: BTreeSet<u64>,
    /// Acked or dead since the last seek, whether durable or not.
    pub(crate) done: BTreeSet<u64>,
    pub(crate) extras: BTreeSet<u64>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    pub(crate) failed: BTreeMap<u64, Failed>,
    pub(crate) members: BTreeMap<MemberNo, Member>,
    pub(crate) owners: Vec<Option<MemberNo>>,
    pub(crate) paused: bool,
    /// The lowest place that a seek went to and that is not committed.
    pub(crate) seeking: Option<u64>,
    /// A seek is durable, and the machine does not know it yet.
    pub(crate) sought: bool,
    pub(crate) pend_failed: BTreeSet<u64>,
    pub(crate) pend_dead: BTreeMap<u64, (u32, bool)>,
    pub(crate) pend_redriven: BTreeSet<u64>,
    pub(crate) pend_replies: Vec<Waiting>,
    pub(crate) sent: Option<Sent>,
    pub(crate) store: Store,
}

impl Model {
    pub(crate) fn exists(&self, offset: u64) -> bool {
        offset >= self.earliest && self.log.get(offset as usize).is_some_and(|event| event.exists)
    }

    pub(crate) fn key(&self, offset: u64) -> Option<&str> {
        self.log[offset as usize].stored.key()
    }

    pub(crate) fn current(&self, member: MemberNo, lease: LeaseRef) -> bool {
        self.leases.get(&lease.offset.0).is_some_and(|l| l.member == member && l.serial == lease.serial)
    }

    /// An earlier event of its key is not done.
    pub(crate) fn is_blocked(&self, offset: u64) -> bool {
        let Some(key) = self.key(offset).filter(|_| self.order == Order::Key) else { return false };
        self.undone.range(..offset).any(|earlier| self.key(*earlier) == Some(key))
    }

    pub(crate) fn end_lease(&mut self, offset: u64) {
        self.leases.remove(&offset).unwrap();
        if !self.exists(offset) {
            self.undone.remove(&offset);
            self.extras.remove(&offset);
        }
    }

    pub(crate) fn finish(&mut self, offset: u64) {
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

    /// An attempt fails; `delay_ms` is `None` for the server's backoff.
    pub(crate) fn fail(&mut self, offset: u64, at: u64, delay_ms: Option<u64>) {
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

    pub(crate) fn seek(&mut self, to: u64) {
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

    pub(crate) fn redrive(&mut self, offset: u64) {
        self.store.letters.insert(offset, true);
        if self.undone.contains(&offset) {
            self.pend_redriven.insert(offset);
        } else if self.exists(offset) {
            self.extras.insert(offset);
        }
    }

    /// The sent commit is durable, and has closed these letters.
    pub(crate) fn committed(&mut self) -> (Sent, Vec<(u64, bool)>) {
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

    /// No event is delivered until a seek is durable.
    pub(crate) fn is_seeking(&self) -> bool {
        self.sought || self.seeking.is_some() || self.sent.as_ref().is_some_and(|sent| sent.seek.is_some())
    }

    pub(crate) fn is_closing(&self, letter: u64) -> bool {
        let by_seek = |seek: Option<u64>| seek.is_some_and(|to| letter >= to);
        let by_sent = |sent: &Sent| by_seek(sent.seek) || sent.progress.redriven.contains(&Offset(letter));
        self.pend_redriven.contains(&letter)
            || by_seek(self.seeking)
            || self.sent.as_ref().is_some_and(by_sent)
    }

    /// Letters that could not be closed with the commit that closes them.
    pub(crate) fn unclosed(&mut self, letters: &[(u64, bool)]) {
        self.store.letters.extend(letters.iter().copied());
        // An event that a later seek has skipped keeps its letter.
        let delivered = letters.iter().map(|(offset, _)| *offset).filter(|offset| !self.store.has(*offset));
        self.store.unclosed.extend(delivered.collect::<Vec<_>>());
        let died_again = &self.pend_dead;
        self.pend_redriven
            .extend(letters.iter().map(|(offset, _)| *offset).filter(|o| !died_again.contains_key(o)));
    }

    pub(crate) fn commit_failed(&mut self) {
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
        // For one event only the last change counts.
        redriven.retain(|offset| !self.pend_dead.contains_key(offset));
        dead.retain(|offset, _| !self.pend_redriven.contains(offset) && !self.pend_dead.contains_key(offset));
        self.pend_redriven.extend(redriven);
        self.pend_dead.extend(dead);
        let newer = std::mem::take(&mut self.pend_replies);
        self.pend_replies = sent.replies.into_iter().chain(newer).collect();
        self.seeking = [self.seeking, sent.seek].into_iter().flatten().min();
    }

    /// The state after a crash.
    pub(crate) fn crash(&mut self) {
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
        // A letter whose event was removed is the only copy of it.
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
