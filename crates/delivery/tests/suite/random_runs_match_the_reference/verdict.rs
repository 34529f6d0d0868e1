//! Judges the effects and the status of a machine by the reference.

use std::collections::{BTreeMap, BTreeSet};

use promethean_delivery::{
    Delivery, DeliveryStatus, MachineBounds, MemberNo, Now, Order, Progress, Reason, decode_finished,
    encode_finished,
};
use promethean_model::Offset;

use super::reference::{Lease, LetterChanges, Member, Reference, Sent};

impl Reference {
    pub(super) fn judge_delivery(&mut self, to: MemberNo, delivery: &Delivery, now: Now) {
        let offset = delivery.lease.offset.0;
        assert!(!self.paused && !self.is_seeking(), "delivered {offset} while nothing may be");
        assert!(offset < self.log.len() as u64 && delivery.event == self.log[offset as usize].stored);
        // The event was read before it was removed, and delivered after.
        let late = !self.exists(offset) && self.log[offset as usize].wanted && !self.done.contains(&offset);
        if late && !self.store.has(offset) {
            self.undone.insert(offset);
        }
        let extra = self.extras.contains(&offset);
        assert!(
            extra || self.undone.contains(&offset),
            "delivered {offset}, which is finished or not wanted"
        );
        assert!(!self.leases.contains_key(&offset), "{offset} is leased already");
        assert!(extra || !self.is_blocked(offset), "delivered {offset} before an earlier one of its key");
        let failed = self.failed.get(&offset).copied().unwrap_or_default();
        assert_eq!(delivery.attempt, failed.count + 1, "attempt of {offset}");
        assert_eq!(failed.count, failed.committed, "{offset} again before its failure was durable");
        assert!(failed.due.is_none_or(|due| due <= now.monotonic_ms), "{offset} before its time");
        if self.partitions.is_some() {
            let partition = self.log[offset as usize].partition as usize;
            assert_eq!(self.owners.get(partition).copied().flatten(), Some(to), "owner of {offset}");
        }
        let lease = Lease { member: to, serial: delivery.lease.serial, deadline: None };
        self.leases.insert(offset, lease);
        self.owed.entry(offset).and_modify(|delivered| *delivered = true);
        let held = self.leases.values().filter(|lease| lease.member == to).count();
        let member = self.members.get_mut(&to).unwrap();
        assert!(!member.paused && held <= member.allowance.credit.max(), "{to:?} got more than it takes");
        member.unwritten.push(delivery.lease);
    }

    pub(super) fn judge_commit(&mut self, progress: Progress, letters: usize) {
        assert!(self.sent.is_none(), "two commits at once");
        let floor = progress.floor;
        assert!(
            self.undone.first().is_none_or(|first| floor.0 <= *first),
            "floor {floor} passes {:?}",
            self.undone.first()
        );
        for range in &progress.finished {
            assert_eq!(self.undone.range(range.start.0..range.end.0).next(), None, "{range} is not finished");
        }
        let has = |offset: u64| progress.finished.iter().any(|range| range.contains(Offset(offset)));
        // The seek delivers the events from its target on again.
        let to = self.seeking.unwrap_or(u64::MAX);
        let below = || self.pend_letters.dead.range(..to);
        let later: BTreeMap<u64, (u32, bool)> =
            below().skip(letters).map(|(offset, dead)| (*offset, *dead)).collect();
        for offset in self.done.range(floor.0..) {
            assert_ne!(
                has(*offset),
                later.get(offset).is_some_and(|(_, extra)| !extra),
                "{offset} is done and not in {progress:?}"
            );
        }
        let data = encode_finished(&progress.finished, floor);
        assert_eq!(decode_finished(&data, floor).as_ref(), Ok(&progress.finished));
        let failed: BTreeSet<u64> = progress.failed.iter().map(|row| row.offset.0).collect();
        assert_eq!(failed, self.pend_failed, "failed attempts");
        for row in &progress.failed {
            let failed = self.failed.get_mut(&row.offset.0).unwrap();
            assert_eq!(row.failed, failed.count);
            let delay = u64::try_from(row.due_ms - row.last_ms).unwrap();
            let least = failed.due.unwrap() - failed.at;
            assert!(
                if failed.exact { delay == least } else { (least..=least * 3 / 2).contains(&delay) },
                "{row:?}"
            );
            (failed.due, failed.exact) = (Some(failed.at + delay), true);
        }
        let dead: Vec<(u64, u32)> =
            progress.dead.iter().map(|dead| (dead.attempts.offset.0, dead.attempts.failed)).collect();
        let expected: Vec<(u64, u32)> =
            below().take(letters).map(|(offset, (count, _))| (*offset, *count)).collect();
        assert_eq!(dead, expected, "dead letters");
        for dead in &progress.dead {
            let said = self.notes.get(&dead.attempts.offset.0).and_then(Option::as_deref);
            assert_eq!(dead.note.as_ref().map(|note| note.reason()), said, "what was said last");
        }
        let closed = self.judge_closed(&progress, to);
        assert_eq!(progress.seek.map(|to| to.0), self.seeking);
        self.pend_failed.clear();
        // A reply may be about any of the dead events, so all replies wait for the last of them.
        let replies = if later.is_empty() { std::mem::take(&mut self.pend_replies) } else { Vec::new() };
        let mut letters = std::mem::take(&mut self.pend_letters);
        letters.dead.retain(|offset, _| !later.contains_key(offset));
        self.pend_letters.dead = later;
        let settled = dead.into_iter().map(|(offset, _)| offset).chain(closed);
        let serves = settled.filter(|offset| self.owed.get(offset) == Some(&true)).collect();
        let seek = self.seeking.take();
        self.sent = Some(Sent { replies, seek, seek_since: None, letters, applied: None, serves, progress });
    }

    /// Checks the letters that a commit closes and opens again. `to` is the target of its seek.
    fn judge_closed(&mut self, progress: &Progress, to: u64) -> BTreeSet<u64> {
        let redriven: BTreeSet<u64> = progress.redriven.iter().map(|letter| letter.offset.0).collect();
        assert_eq!(redriven.len(), progress.redriven.len(), "a letter is closed twice");
        let LetterChanges { dead, closing, asked } = &self.pend_letters;
        let expected: BTreeSet<u64> = closing.union(asked).copied().filter(|offset| *offset < to).collect();
        for offset in redriven.symmetric_difference(&expected) {
            // The event was removed while it was leased.
            assert!(redriven.contains(offset) && !self.exists(*offset), "redriven {offset}");
        }
        for offset in &progress.reopened {
            assert!(!self.exists(offset.0), "the letter of {offset} stays open though its event is there");
            assert!(!redriven.contains(&offset.0), "the letter of {offset} is open and closed");
            assert!(!dead.contains_key(&offset.0), "the letter of {offset} is opened twice");
            self.extras.remove(&offset.0);
        }
        for offset in &redriven {
            assert!(!dead.contains_key(offset), "the letter of {offset} is opened and closed at once");
        }
        redriven
    }

    /// Checks that a commit leaves failed attempts only of events that are not finished, and that replies
    /// come after it.
    pub(super) fn judge_rows(&self, sent: &Sent) {
        for (offset, row) in &self.store.attempts {
            let gone = !self.exists(*offset);
            let later = sent.seek_since.is_some()
                || self.done.contains(offset)
                || self.pend_letters.closing.contains(offset)
                || self.pend_letters.asked.contains(offset)
                || self.pend_letters.dead.contains_key(offset);
            let failed = self.failed.get(offset);
            assert!(gone || later || failed.is_some_and(|f| f.count >= row.failed), "left {row:?}");
        }
        for (offset, failed) in &self.failed {
            let row = self.store.attempts.get(offset).map_or(0, |row| row.failed);
            assert!(
                !self.exists(*offset) || sent.seek_since.is_some() || row == failed.committed,
                "{offset}: {row} of {}",
                failed.committed
            );
        }
        for waiting in &sent.replies {
            let durable = |offset: &u64| self.store.has(*offset);
            assert!(
                sent.seek.is_some() || waiting.acked.iter().all(durable),
                "answered before {:?} was durable",
                waiting.acked
            );
        }
    }

    pub(super) fn judge_status(&self, status: &DeliveryStatus) {
        assert!(self.undone.first().is_none_or(|first| status.floor.0 <= *first), "floor {}", status.floor);
        assert!(status.lag >= self.undone.range(..self.end).count() as u64);
        assert!(status.redriven >= self.extras.len(), "lost a redriven one of {:?}", self.extras);
        assert_eq!(status.in_flight, self.leases.len(), "in flight");
        for (no, member) in &self.members {
            let held = self.leases.values().filter(|lease| lease.member == *no).count();
            assert_eq!(
                member.allowance.credit.free() + held,
                member.allowance.credit.max(),
                "credit of {no:?}"
            );
        }
    }

    /// The reasons that are right, where no bound is near and the machine knows of all removed events.
    pub(super) fn reason(&self, unseen: bool, lag: u64, now: Now) -> Vec<Option<Reason>> {
        if lag == 0 && self.extras.is_empty() {
            return vec![Some(Reason::CaughtUp)];
        }
        if self.members.is_empty() {
            return vec![Some(Reason::NoMembers)];
        }
        if self.paused || self.members.values().all(|member| member.paused) {
            return vec![Some(Reason::Paused)];
        }
        if self.is_seeking() {
            return vec![None];
        }
        let left: Vec<u64> = self.undone.range(..self.end).chain(&self.extras).copied().collect();
        let idle = |o: &u64| !self.leases.contains_key(o);
        let failed = |o: &u64| self.failed.get(o).copied().unwrap_or_default();
        let is_due = |o: &u64| failed(o).due.is_none_or(|due| due <= now.monotonic_ms);
        let durable = |o: &u64| failed(o).count == failed(o).committed;
        let blocked = |o: &u64| !self.extras.contains(o) && self.is_blocked(*o);
        let ready: Vec<u64> =
            left.iter().copied().filter(|o| idle(o) && is_due(o) && durable(o) && !blocked(o)).collect();
        if unseen || !ready.is_empty() {
            let all: BTreeSet<MemberNo> = match self.partitions {
                None => self.members.keys().copied().collect(),
                Some(_) => self.owners.iter().flatten().copied().collect(),
            };
            let mut of = all.clone();
            if self.partitions.is_some() && !unseen {
                of = ready
                    .iter()
                    .filter_map(|o| {
                        self.owners.get(self.log[*o as usize].partition as usize).copied().flatten()
                    })
                    .collect();
            }
            // An event that is read and not scanned, or redriven and not read, may belong to any member.
            return vec![self.no_taker(&of, now), self.no_taker(&all, now)];
        }
        if left.iter().any(|o| idle(o) && is_due(o) && !durable(o)) {
            return vec![None];
        }
        let any = |test: &dyn Fn(&u64) -> bool| left.iter().any(test);
        vec![if self.order == Order::Key && any(&|o| idle(o) && blocked(o)) {
            Some(Reason::BlockedKey)
        } else if any(&|o| idle(o)) {
            Some(Reason::Backoff)
        } else {
            Some(Reason::Leased)
        }]
    }

    fn no_taker(&self, of: &BTreeSet<MemberNo>, now: Now) -> Option<Reason> {
        let of: Vec<&Member> = of.iter().filter_map(|no| self.members.get(no)).collect();
        let credit = |m: &&&Member| !m.paused && m.allowance.credit.free() > 0;
        let rate =
            |m: &&&Member| m.allowance.rate.as_ref().is_none_or(|r| r.ready_at(now) <= now.monotonic_ms);
        if of.iter().any(|m| credit(&m) && rate(&m)) {
            None
        } else if of.is_empty() {
            Some(Reason::NoMembers)
        } else if of.iter().all(|m| m.paused) {
            Some(Reason::Paused)
        } else if of.iter().any(|m| credit(&m)) {
            Some(Reason::Rate)
        } else {
            Some(Reason::Credit)
        }
    }

    /// Checks that the given reason is possible.
    pub(super) fn judge_reason(
        &self,
        reason: Option<Reason>,
        status: &DeliveryStatus,
        bounds: MachineBounds,
    ) {
        let so = match reason {
            Some(Reason::CaughtUp) => status.lag == 0 && self.undone.range(..self.end).next().is_none(),
            Some(Reason::NoMembers) => self.members.is_empty() || self.partitions.is_some(),
            Some(Reason::Paused) => self.paused || self.members.values().any(|member| member.paused),
            Some(Reason::Credit) => self.members.values().any(|member| member.allowance.credit.free() == 0),
            Some(Reason::Rate) => self.members.values().any(|member| member.allowance.rate.is_some()),
            Some(Reason::BlockedKey) => self.order == Order::Key && status.blocked > 0,
            Some(Reason::Backoff) => status.failed > 0,
            Some(Reason::Leased) => !self.leases.is_empty(),
            Some(Reason::Window) => status.ranges + status.failed >= bounds.window,
            // Only the groups of projectors have these, and no machine delivers to them.
            Some(Reason::Halted | Reason::Retrying | Reason::Stuck) => false,
            None => true,
        };
        assert!(so, "{reason:?} is not so: {status:?}");
    }
}
