//! Leases: how they begin, are acked, nacked and extended, and end.

use std::sync::Arc;

use promethean_model::{Offset, StoredEvent};

use super::Machine;
use super::unfinished::{ActiveLease, NO_DEADLINE, Stage, UnfinishedEvent};
use crate::effect::{Delivery, DeliveryFailure, Effect};
use crate::input::{FailureNote, LeaseRef, Leaving, MemberNo, Now, ReplyNo};

const EXTEND_MS_MIN: u64 = 1_000;

impl Machine {
    /// Leases an event to a member whose credit is taken, and hands it the delivery.
    pub(super) fn lease(
        &mut self,
        member: MemberNo,
        event: StoredEvent,
        failed: u32,
        effects: &mut Vec<Effect>,
    ) -> Stage {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.counts.redelivered += u64::from(failed > 0);
        let lease = LeaseRef { offset: event.offset, serial };
        self.members.hand(member, Delivery { lease, attempt: failed + 1, event }, effects);
        Stage::Leased(ActiveLease { member, serial, deadline: NO_DEADLINE })
    }

    /// Starts the ack timeout of leases, or acks them for members with `auto_ack`.
    pub(super) fn written(&mut self, member: MemberNo, leases: &[LeaseRef], now: Now) {
        let Some(limits) = self.members.get(member).map(|member| &member.limits) else { return };
        let (auto_ack, deadline) = (limits.auto_ack, now.monotonic_ms.saturating_add(limits.ack_timeout_ms));
        for lease in leases {
            match self.current(member, *lease) {
                Some(_) if auto_ack => {
                    self.counts.acked += 1;
                    self.finish(lease.offset);
                }
                // The member may have extended the lease before the machine heard that it was written.
                Some(ActiveLease { deadline: NO_DEADLINE, .. }) => self.set_deadline(lease.offset, deadline),
                _ => {}
            }
        }
    }

    /// Finishes the events of the leases.
    pub(super) fn ack(
        &mut self,
        member: MemberNo,
        leases: &[LeaseRef],
        reply: Option<ReplyNo>,
        effects: &mut Vec<Effect>,
    ) {
        let mut stale = 0;
        for lease in leases {
            if self.current(member, *lease).is_some() {
                self.counts.acked += 1;
                self.finish(lease.offset);
            } else {
                stale += 1;
            }
        }
        self.answer(reply, stale, leases.len(), effects);
    }

    /// Fails the attempts of the leases.
    pub(super) fn nack(
        &mut self,
        member: MemberNo,
        leases: &[LeaseRef],
        (delay_ms, note): (Option<u64>, Option<&Arc<FailureNote>>),
        now: Now,
        reply: Option<ReplyNo>,
        effects: &mut Vec<Effect>,
    ) {
        let mut stale = 0;
        for lease in leases {
            if self.current(member, *lease).is_some() {
                let delay_ms = delay_ms.unwrap_or_else(|| self.backoff_ms(lease.offset));
                self.counts.nacked += 1;
                self.fail(lease.offset, (DeliveryFailure::Nack, note), delay_ms, now);
            } else {
                stale += 1;
            }
        }
        self.answer(reply, stale, leases.len(), effects);
    }

    /// Moves the deadlines of the leases.
    pub(super) fn extend(
        &mut self,
        member: MemberNo,
        leases: &[LeaseRef],
        by_ms: Option<u64>,
        now: Now,
        reply: Option<ReplyNo>,
        effects: &mut Vec<Effect>,
    ) {
        let default_ms = self.members.get(member).map_or(0, |member| member.limits.ack_timeout_ms);
        let by_ms = by_ms.unwrap_or(default_ms).max(EXTEND_MS_MIN);
        let mut stale = 0;
        for lease in leases {
            if self.current(member, *lease).is_some() {
                self.set_deadline(lease.offset, now.monotonic_ms.saturating_add(by_ms));
            } else {
                stale += 1;
            }
        }
        if let Some(reply) = reply {
            effects.push(Effect::Reply { reply, stale });
        }
    }

    /// Ends the leases whose deadline has passed. `earliest_deadline` is only a lower bound, so that a lease
    /// that ends early costs nothing; when the bound is reached the machine looks at all leases and makes it
    /// exact again.
    pub(super) fn expire(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.in_grace || now.monotonic_ms < self.earliest_deadline {
            return;
        }
        let over: Vec<(MemberNo, LeaseRef)> = (self.unfinished.leases())
            .filter(|(_, _, lease)| lease.deadline <= now.monotonic_ms)
            .map(|(offset, _, lease)| (lease.member, LeaseRef { offset, serial: lease.serial }))
            .collect();
        for (_, lease) in &over {
            self.fail(lease.offset, (DeliveryFailure::Expired, None), 0, now);
        }
        self.counts.lease_expired += over.len() as u64;
        revoke(over, effects);
        self.earliest_deadline =
            self.unfinished.leases().map(|(_, _, lease)| lease.deadline).min().unwrap_or(u64::MAX);
    }

    /// Removes a member and ends its leases.
    pub(super) fn leave(&mut self, member: MemberNo, how: Leaving, now: Now) {
        let held: Vec<(Offset, bool)> = (self.unfinished.leases())
            .filter(|(_, _, lease)| lease.member == member)
            .map(|(offset, _, lease)| (offset, lease.deadline != NO_DEADLINE))
            .collect();
        for (offset, written) in held {
            match how {
                // A delivery that was not written never reached the member: a full queue behind a broken
                // connection must not turn unseen events into dead letters.
                Leaving::Lost if written => self.fail(offset, (DeliveryFailure::MemberLost, None), 0, now),
                Leaving::Lost | Leaving::Released => self.release(offset),
            }
        }
        self.members.leave(member);
    }

    /// Sets the owners of the partitions and ends the leases that an owner lost. What was written to a lost
    /// member has failed: otherwise an event that ends its member would be delivered for ever.
    pub(super) fn assign(
        &mut self,
        owners: Vec<Option<MemberNo>>,
        lost: &[MemberNo],
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        if self.config.partitions.is_none() {
            return;
        }
        self.owning = owners.iter().copied().flatten().collect();
        self.owners = owners;
        let failed: Vec<(MemberNo, LeaseRef)> = (self.unfinished.leases())
            .filter(|(_, entry, lease)| {
                lost.contains(&lease.member)
                    && lease.deadline != NO_DEADLINE
                    && self.owner(entry.partition) != Some(lease.member)
            })
            .map(|(offset, _, lease)| (lease.member, LeaseRef { offset, serial: lease.serial }))
            .collect();
        for (_, lease) in &failed {
            self.fail(lease.offset, (DeliveryFailure::MemberLost, None), 0, now);
        }
        revoke(failed, effects);
        self.revoke_where(effects, |machine, entry, lease| {
            machine.owner(entry.partition) != Some(lease.member)
        });
    }

    /// Ends the leases that `ends` selects without a failed attempt, and revokes them from their members.
    pub(super) fn revoke_where(
        &mut self,
        effects: &mut Vec<Effect>,
        ends: impl Fn(&Self, &UnfinishedEvent, &ActiveLease) -> bool,
    ) {
        let ended: Vec<(MemberNo, LeaseRef)> = (self.unfinished.leases())
            .filter(|(_, entry, lease)| ends(self, entry, lease))
            .map(|(offset, _, lease)| (lease.member, LeaseRef { offset, serial: lease.serial }))
            .collect();
        for (_, lease) in &ended {
            self.release(lease.offset);
        }
        revoke(ended, effects);
    }

    /// The member that receives the events of a partition.
    pub(super) fn owner(&self, partition: u32) -> Option<MemberNo> {
        self.owners.get(partition as usize).copied().flatten()
    }

    /// Gives back the credit of an event that was leased.
    pub(super) fn give_back(&self, stage: Stage) {
        if let Stage::Leased(lease) = stage
            && let Some(member) = self.members.get(lease.member)
        {
            member.allowance.credit.put(1);
        }
    }

    /// The lease, if it is the current lease of its event and belongs to the member.
    fn current(&self, member: MemberNo, lease: LeaseRef) -> Option<ActiveLease> {
        match self.unfinished.get(lease.offset)?.stage {
            Stage::Leased(current) if current.serial == lease.serial && current.member == member => {
                Some(current)
            }
            _ => None,
        }
    }

    /// Ends a lease without a failed attempt.
    fn release(&mut self, offset: Offset) {
        if let Some(entry) = self.unfinished.get(offset) {
            self.give_back(entry.stage);
        }
        self.unfinished.set(offset, Stage::Ready);
    }

    fn set_deadline(&mut self, offset: Offset, deadline: u64) {
        // `NO_DEADLINE` means that the delivery was not written yet.
        let deadline = deadline.min(NO_DEADLINE - 1);
        self.unfinished.set_deadline(offset, deadline);
        self.earliest_deadline = self.earliest_deadline.min(deadline);
    }

    /// Replies after the commit if a lease was current, at once if all were stale.
    fn answer(&mut self, reply: Option<ReplyNo>, stale: usize, of: usize, effects: &mut Vec<Effect>) {
        match reply {
            Some(reply) if stale == of => effects.push(Effect::Reply { reply, stale }),
            Some(reply) => {
                self.uncommitted.replies.push((reply, stale));
                self.uncommitted.urgent = true;
            }
            None => {}
        }
    }
}

fn revoke(mut ended: Vec<(MemberNo, LeaseRef)>, effects: &mut Vec<Effect>) {
    ended.sort_unstable();
    for leases in ended.chunk_by(|a, b| a.0 == b.0) {
        if let Some((member, _)) = leases.first() {
            effects.push(Effect::Revoke(*member, leases.iter().map(|(_, lease)| *lease).collect()));
        }
    }
}
