//! A simple reference of delivery: plain maps that follow the inputs of a machine. All effects of the machine
//! are judged by them. The reference does not scan, bound, batch or index anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use promethean_delivery::{Allowance, LeaseRef, LetterRef, MemberNo, Order, Progress, ReplyNo};
use promethean_model::StoredEvent;

use super::store::{Letter, Store};

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
    /// All changes of letters, also the ones that the commit leaves to its seek.
    pub(super) letters: LetterChanges,
    /// Whether it is durable, which the machine does not know yet. Holds the letters that it could not close.
    pub(super) applied: Option<Vec<LetterRef>>,
    /// Redrives whose event was delivered and is finished or dead by this commit.
    pub(super) serves: BTreeSet<u64>,
}

/// Changes of dead letters that are not durable.
#[derive(Default)]
pub(super) struct LetterChanges {
    /// Attempts of events that died, and whether the cursor counted the event as finished before.
    pub(super) dead: BTreeMap<u64, (u32, bool)>,
    pub(super) closing: BTreeSet<u64>,
    /// Redriven events that are delivered anyway.
    pub(super) asked: BTreeSet<u64>,
}

impl LetterChanges {
    fn serve(&mut self, offset: u64) {
        if self.asked.remove(&offset) {
            self.closing.insert(offset);
        }
    }
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
    /// Events that did not die the last time that they were finished.
    pub(super) acked: BTreeSet<u64>,
    pub(super) leases: BTreeMap<u64, Lease>,
    pub(super) failed: BTreeMap<u64, Failed>,
    /// What a member said last of why an attempt failed, for each event.
    pub(super) notes: BTreeMap<u64, Option<String>>,
    pub(super) members: BTreeMap<MemberNo, Member>,
    pub(super) owners: Vec<Option<MemberNo>>,
    pub(super) paused: bool,
    /// The lowest target of the seeks that are not committed.
    pub(super) seeking: Option<u64>,
    /// The target of the last seek. It may be beyond the end: what is published below it is finished.
    pub(super) sought_to: u64,
    /// Whether a seek is durable and the machine does not know it yet.
    pub(super) sought: bool,
    pub(super) pend_failed: BTreeSet<u64>,
    pub(super) pend_letters: LetterChanges,
    pub(super) pend_replies: Vec<Waiting>,
    pub(super) sent: Option<Sent>,
    pub(super) store: Store,
    /// Redrives that were answered and are not served yet, and whether their event was delivered since. A crash
    /// must not lose them.
    pub(super) owed: BTreeMap<u64, bool>,
    /// Messages about redrives that the machine does not have yet.
    pub(super) mail: VecDeque<Vec<LetterRef>>,
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
        self.acked.insert(offset);
        self.end_lease(offset);
        self.failed.remove(&offset);
        if extra {
            self.pend_letters.dead.remove(&offset);
            self.pend_letters.closing.insert(offset);
        } else {
            self.undone.remove(&offset);
            self.done.insert(offset);
            self.pend_letters.serve(offset);
            if let Some(sent) = &mut self.sent {
                sent.letters.serve(offset);
            }
        }
    }

    /// Fails an attempt; `delay_ms` is `None` for the server's backoff.
    pub(super) fn fail(&mut self, offset: u64, at: u64, delay_ms: Option<u64>) {
        if !self.failed.contains_key(&offset) {
            self.notes.insert(offset, None);
        }
        let failed = self.failed.entry(offset).or_default();
        failed.count += 1;
        let base = 100 << (failed.count - 1).min(20);
        let least = delay_ms.unwrap_or(base.min(30_000) * 8 / 10);
        (failed.at, failed.due, failed.exact) = (at, Some(at + least), delay_ms.is_some());
        let count = failed.count;
        if self.dead_letters && count >= self.max_attempts {
            let extra = self.extras.contains(&offset);
            let first = self.pend_letters.dead.get(&offset).is_none_or(|(_, extra)| *extra);
            self.finish(offset);
            self.acked.remove(&offset);
            self.pend_letters.closing.remove(&offset);
            self.pend_letters.dead.insert(offset, (count, extra && first));
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
        for offset in self.extras.split_off(&to) {
            self.pend_letters.closing.remove(&offset);
            self.pend_letters.asked.insert(offset);
        }
        self.pend_replies.iter_mut().for_each(|waiting| waiting.undo_from(to));
        self.done.clear();
        self.undone = (to..self.log.len() as u64).filter(|o| self.is_wanted(*o)).collect();
        self.seeking = Some(to);
        self.sought_to = to;
        if let Some(sent) = &mut self.sent {
            sent.seek_since = Some(to);
        }
        let above = self.pend_letters.asked.split_off(&to);
        let passed = std::mem::replace(&mut self.pend_letters.asked, above);
        passed.into_iter().for_each(|offset| self.redriven(offset));
    }

    /// Follows the machine when it hears of a redrive.
    pub(super) fn redriven(&mut self, offset: u64) {
        if self.extras.contains(&offset) {
            return;
        }
        self.pend_letters.closing.remove(&offset);
        if self.undone.contains(&offset) {
            self.pend_letters.asked.insert(offset);
        } else if self.exists(offset) {
            self.extras.insert(offset);
        }
        // An event that a member holds is served by what becomes of that lease.
        let leased = self.leases.contains_key(&offset);
        self.owed.entry(offset).and_modify(|delivered| *delivered |= leased);
    }

    /// Makes the commit that is out durable; returns the dead letters it closed, as they were.
    pub(super) fn apply(&mut self) -> Vec<(u64, Letter)> {
        let sent = self.sent.take().unwrap();
        let mut store = std::mem::take(&mut self.store);
        let closed = store.apply(&sent.progress, |offset| self.exists(offset));
        self.store = store;
        let closed_now: BTreeSet<u64> = closed.iter().map(|(offset, _)| *offset).collect();
        for offset in self.owed.keys().copied().collect::<Vec<_>>() {
            // The letter of an event that is not finished is closed: from now on the event is like any other.
            let ordinary = closed_now.contains(&offset) && self.is_wanted(offset) && !self.store.has(offset);
            let sought = sent.seek.is_some_and(|to| offset >= to);
            if ordinary || sought || sent.serves.contains(&offset) {
                self.owed.remove(&offset);
            }
        }
        self.sent = Some(sent);
        self.judge_owed();
        closed
    }

    /// Checks that a crash would not lose a redrive: its event is not finished, or its letter says so.
    fn judge_owed(&self) {
        for offset in self.owed.keys().filter(|offset| self.exists(**offset)) {
            let redriving = self.store.letters.get(offset).is_some_and(|letter| letter.redriving);
            let wanted = self.is_wanted(*offset) && !self.store.has(*offset);
            assert!(redriving || wanted, "the redrive of {offset} would be lost by a crash");
        }
    }

    /// Follows the machine when it hears that the commit is durable.
    pub(super) fn committed(&mut self) -> Sent {
        let sent = self.sent.take().unwrap();
        for row in &sent.progress.failed {
            if let Some(failed) = self.failed.get_mut(&row.offset.0).filter(|_| sent.seek_since.is_none()) {
                failed.committed = row.failed;
            }
        }
        sent
    }

    /// Whether a seek is not durable yet; until then nothing may be delivered.
    pub(super) fn is_seeking(&self) -> bool {
        self.sought || self.seeking.is_some() || self.sent.as_ref().is_some_and(|sent| sent.seek.is_some())
    }

    /// Opens dead letters again that the commit which is out could not close.
    pub(super) fn leave_open(&mut self, letters: &[(u64, Letter)]) {
        self.store.letters.extend(letters.iter().copied());
        // A letter below a later seek is an ordinary open letter again.
        let delivered = letters.iter().map(|(offset, _)| *offset).filter(|offset| !self.store.has(*offset));
        self.store.unclosed.extend(delivered.collect::<Vec<_>>());
    }

    /// Follows the machine when it hears of dead letters that a commit could not close.
    pub(super) fn unclosed(&mut self, letters: &[LetterRef]) {
        for letter in letters {
            let offset = letter.offset.0;
            // A later seek went beyond the event of a redriven letter, and the event is gone. The machine finds
            // that out when it reads the event; then the letter stays open.
            let open = self.store.letters.get(&offset);
            let passed = !self.exists(offset) && open.is_some_and(|open| open.redriving);
            let LetterChanges { dead, closing, asked } = &mut self.pend_letters;
            // The event died again, or its letter was redriven since.
            let newer =
                dead.contains_key(&offset) || asked.contains(&offset) || self.extras.contains(&offset);
            if !passed && !newer {
                closing.insert(offset);
            }
        }
    }

    pub(super) fn commit_failed(&mut self) {
        let mut sent = self.sent.take().unwrap();
        let older = &mut sent.letters;
        let mut passed = BTreeSet::new();
        match sent.seek_since {
            Some(to) => {
                sent.replies.iter_mut().for_each(|waiting| waiting.undo_from(to));
                let above = older.asked.split_off(&to);
                passed = std::mem::replace(&mut older.asked, above);
            }
            None => self.pend_failed.extend(sent.progress.failed.iter().map(|row| row.offset.0)),
        }
        // Of two changes of the same dead letter the newer one wins.
        let newer = &mut self.pend_letters;
        for (offset, dead) in std::mem::take(&mut older.dead) {
            if !newer.closing.contains(&offset) {
                newer.dead.entry(offset).or_insert(dead).1 &= dead.1;
            }
        }
        older.closing.retain(|offset| !newer.dead.contains_key(offset) && !newer.asked.contains(offset));
        newer.closing.append(&mut older.closing);
        let is_dead =
            |offset: &u64| newer.dead.contains_key(offset) && sent.seek_since.is_none_or(|to| *offset < to);
        older.asked.retain(|offset| !is_dead(offset) && !newer.closing.contains(offset));
        newer.asked.append(&mut older.asked);
        let newer = std::mem::take(&mut self.pend_replies);
        self.pend_replies = sent.replies.into_iter().chain(newer).collect();
        self.seeking = self.seeking.or(sent.seek);
        passed.into_iter().for_each(|offset| self.redriven(offset));
    }

    /// Forgets everything that a crash loses.
    pub(super) fn crash(&mut self) {
        self.members.clear();
        self.leases.clear();
        self.pend_failed.clear();
        self.pend_letters = LetterChanges::default();
        self.mail.clear();
        self.pend_replies.clear();
        self.sent = None;
        self.seeking = None;
        let end = self.log.len() as u64;
        // Beyond the end only a durable seek has finished anything.
        self.sought_to = (end..).find(|offset| !self.store.has(*offset)).unwrap_or(end);
        self.done.clear();
        self.end = 0;
        self.undone =
            (0..self.log.len() as u64).filter(|o| self.is_wanted(*o) && !self.store.has(*o)).collect();
        self.extras.clear();
        // A letter whose event is gone stays open.
        let mut unclosed = std::mem::take(&mut self.store.unclosed);
        unclosed.retain(|offset| self.exists(*offset));
        self.store.unclosed = unclosed;
        self.judge_owed();
        for (offset, letter) in self.store.letters.clone() {
            if letter.redriving {
                self.redriven(offset);
            } else if self.undone.contains(&offset) {
                self.pend_letters.closing.insert(offset);
            }
        }
        self.owed.values_mut().for_each(|delivered| *delivered = false);
        // Reasons are kept in memory only.
        self.notes.clear();
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
