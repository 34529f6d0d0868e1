//! Subscriptions of a client.

use std::task::Waker;
use std::time::Duration;

use promethean_model::wire::Op;
use tokio::time::Instant;

use super::{Core, FrameWaiter, IDS_MAX};
use crate::answers::AnswerSlot;
use crate::effects::LockEffects;
use crate::error::{ClientError, lease_lost};
use crate::frames::encode;
use crate::member::table::{LeaseKey, RowId};
use crate::member::{AckItem, Member, MemberState};

impl Core {
    pub(crate) fn add_member(&mut self, member: Member) -> Result<u64, ClientError> {
        if self.is_leaving || self.is_over() {
            return Err(self.over_error());
        }
        let (topic, group) = (&member.options.topic, &member.options.group);
        let is_same = |other: &Member| {
            other.state != MemberState::Ended
                && other.options.topic == *topic
                && other.options.group == *group
        };
        if self.members.values().any(is_same) {
            let message = format!(
                "this client has a subscription to `{topic}` in `{group}`; raise its `concurrency`, use another \
                 group, or create a second client"
            );
            return Err(ClientError::new("already_subscribed", message));
        }
        self.member_count += 1;
        self.members.insert(self.member_count, member);
        self.subscribe(self.member_count);
        Ok(self.member_count)
    }

    /// Subscribes, for the first time or again, if there is a connection.
    pub(super) fn subscribe(&mut self, id: u64) {
        let is_open = self.is_open();
        let Some(member) = self.members.get_mut(&id).filter(|member| member.is_open() && is_open) else {
            return;
        };
        member.epoch += 1;
        member.retry_at = None;
        let (text, epoch) = (member.subscribe_frame(), member.epoch);
        self.request(text, FrameWaiter::Subscribe { member: id, epoch });
    }

    /// The subscription is over, by the server's or the client's decision.
    pub(crate) fn end_member(&mut self, id: u64, failure: Option<ClientError>, effects: &mut LockEffects) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.state == MemberState::Ended {
            return;
        }
        // Before that, the call that subscribes reports it; a loop returns it.
        let is_unheard = member.options.has_handler && member.state == MemberState::Active;
        if let Some(failure) = failure.clone().filter(|_| is_unheard) {
            member.report(failure, effects);
        }
        member.state = MemberState::Ended;
        member.failure = failure;
        let acks = member.down(Instant::now(), effects);
        member.wake_all(effects);
        if member.is_detached {
            self.members.remove(&id);
        }
        self.reject(acks, &lease_lost(), effects);
    }

    /// The owner of a subscription is gone.
    pub(crate) fn detach_member(&mut self, id: u64) {
        let Some(member) = self.members.get_mut(&id) else { return };
        member.is_detached = true;
        if member.state == MemberState::Ended {
            self.members.remove(&id);
        }
    }

    /// Plans to send the acks of a member with the next write.
    pub(crate) fn plan_acks(&mut self, id: u64) {
        if !self.acking.contains(&id) {
            self.acking.push(id);
        }
    }

    /// Sends the collected acks of a member.
    pub(crate) fn flush_acks(&mut self, id: u64) {
        while let Some(member) = self.members.get_mut(&id).filter(|member| !member.acks.is_empty()) {
            let rest = member.acks.split_off(member.acks.len().min(IDS_MAX));
            let items = std::mem::replace(&mut member.acks, rest);
            self.settle(id, items, Op::Ack, |_| {});
        }
    }

    /// Sends one `ACK` or `NACK`.
    pub(crate) fn settle(&mut self, id: u64, items: Vec<AckItem>, op: Op, more: impl FnOnce(&mut String)) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let mut text = member.frame(op);
        match items.as_slice() {
            [item] => encode::field(&mut text, "id", &item.key.id),
            items => encode::ids(&mut text, items.iter().map(|item| &item.key.id)),
        }
        more(&mut text);
        member.unanswered += items.len();
        self.request(text, FrameWaiter::Settle { member: id, items, is_ack: op == Op::Ack });
    }

    /// Extends leases, each for as long as it lasted at first or for `by`.
    pub(crate) fn extend(
        &mut self,
        id: u64,
        rows: Vec<RowId>,
        by: Duration,
        slot: Option<AnswerSlot>,
        now: Instant,
    ) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let mut text = member.frame(Op::Modack);
        let ids: Vec<_> = rows.iter().filter_map(|row| member.table.extending(*row)).collect();
        match ids.as_slice() {
            [] => return,
            [one] => encode::field(&mut text, "id", one),
            ids => encode::ids(&mut text, ids.iter()),
        }
        encode::field(&mut text, "extend_ms", &(by.as_millis() as u64));
        self.request(text, FrameWaiter::Extend { member: id, rows, sent_at: now, by, slot });
    }

    /// Settles a lease that its owner has worked on. Returns whether it was held.
    pub(crate) fn release(
        &mut self,
        id: u64,
        row: RowId,
        effects: &mut LockEffects,
    ) -> Option<(LeaseKey, bool)> {
        let member = self.members.get_mut(&id)?;
        let row = member.table.remove(row)?;
        if member.state == MemberState::Closing {
            effects.wake_all(&mut member.watchers);
        }
        Some((row.key, row.is_held))
    }

    pub(crate) fn watch_member(&mut self, id: u64, waker: &Waker) {
        if let Some(member) = self.members.get_mut(&id) {
            crate::effects::remember(&mut member.watchers, waker);
        }
    }
}
