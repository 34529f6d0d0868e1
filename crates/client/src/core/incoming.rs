//! Frames of the server.

use bytes::Bytes;
use promethean_model::wire::Op;
use tokio::time::Instant;
use tungstenite::Utf8Bytes;

use super::{Core, FrameWaiter};
use crate::answers::AnswerSlot;
use crate::effects::LockEffects;
use crate::error::{ClientError, lease_lost};
use crate::frames::decode::{ErrFields, EventsFields, Mark, OkFields, ServerFrame, mark_of};
use crate::frames::encode::FrameMark;
use crate::member::table::{RowId, StaleLeases};
use crate::member::{AckItem, Member, MemberState};

impl Core {
    /// Takes a frame of the server.
    pub(crate) fn receive(&mut self, text: Utf8Bytes, now: Instant, effects: &mut LockEffects) {
        match ServerFrame::read(text.as_str()) {
            Ok(ServerFrame::Ok(fields)) => match fields.corr.0 {
                Some(FrameMark::Publish(number)) => self.outbox.done(number, *fields, effects),
                Some(FrameMark::Request(number)) => {
                    if let Some(waiter) = self.waiters.remove(&number) {
                        self.done(waiter, *fields, now, effects);
                    }
                }
                None => {}
            },
            Ok(ServerFrame::Err(fields)) => self.refused(*fields, now, effects),
            Ok(ServerFrame::Events(fields)) => {
                let frame = Bytes::from(text.clone());
                self.deliver(fields, &frame, now, effects);
            }
            Ok(ServerFrame::Rebalance(fields)) => {
                let id = self.member_of(&fields.topic, &fields.group);
                if let Some(member) = id.and_then(|id| self.members.get(&id)) {
                    member.rebalanced(fields, effects);
                }
            }
            Err(error) => match mark_of(text.as_str()) {
                Mark(None) => self.report(error, effects),
                // The call that waits for this answer must not wait for ever.
                corr => {
                    let error = error.with_side_effects(true);
                    self.refused(ErrFields { corr, topic: None, group: None, error }, now, effects);
                }
            },
        }
    }

    /// A request was done.
    fn done(&mut self, waiter: FrameWaiter, fields: OkFields, now: Instant, effects: &mut LockEffects) {
        match waiter {
            FrameWaiter::Caller(sender) => drop(sender.send(Ok(fields))),
            FrameWaiter::Fetch { member, sender } => {
                self.fetch_answered(member, effects);
                drop(sender.send(Ok(())));
            }
            FrameWaiter::Subscribe { member: id, epoch } => {
                if let Some(member) = self.members.get_mut(&id).filter(|member| member.epoch == epoch) {
                    member.subscribed(now, effects);
                    self.pause_again(id);
                }
            }
            FrameWaiter::Settle { member, items, is_ack } => {
                let lost = StaleLeases::new(&fields, items.len());
                let (lost, done) = items.into_iter().partition(|item| lost.contains(&item.key.id));
                self.settle_done(member, done, is_ack, Ok(()), now, effects);
                self.settle_done(member, lost, is_ack, Err(lease_lost()), now, effects);
            }
            FrameWaiter::Extend { member: id, rows, sent_at, by, slot } => {
                let lost = StaleLeases::new(&fields, rows.len());
                if let Some(member) = self.members.get_mut(&id) {
                    member.table.extended(&rows, sent_at + by, &lost, effects);
                }
                let result = if fields.stale == Some(true) { Err(lease_lost()) } else { Ok(()) };
                if let Some(slot) = slot {
                    effects.wake(self.settled.answer(slot, result));
                }
            }
            FrameWaiter::Ignored => {}
        }
    }

    /// The server has answered a `FETCH`, so the next one may be sent.
    fn fetch_answered(&mut self, id: u64, effects: &mut LockEffects) {
        if let Some(member) = self.members.get_mut(&id) {
            member.is_fetching = false;
            member.wake_all(effects);
        }
    }

    /// A subscription that was paused is paused on the new connection too.
    fn pause_again(&mut self, id: u64) {
        if let Some(text) = self.members.get(&id).filter(|m| m.is_paused).map(|m| m.frame(Op::Pause)) {
            self.request(text, FrameWaiter::Ignored);
        }
    }

    fn settle_done(
        &mut self,
        id: u64,
        items: Vec<AckItem>,
        is_ack: bool,
        result: Result<(), ClientError>,
        now: Instant,
        effects: &mut LockEffects,
    ) {
        if items.is_empty() {
            return;
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.unanswered -= items.len();
            if let Some(error) = result.as_ref().err().filter(|_| is_ack && member.options.has_handler) {
                member.report(error.clone(), effects);
                // The handler is done, so the event is only acked when it comes again.
                member.unknown(&items, now);
            }
            effects.wake_all(&mut member.watchers);
        }
        for slot in items.into_iter().filter_map(|item| item.slot) {
            effects.wake(self.settled.answer(slot, result.clone()));
        }
    }

    /// A request was refused, or a subscription ended.
    fn refused(&mut self, fields: ErrFields, now: Instant, effects: &mut LockEffects) {
        let ErrFields { corr, topic, group, error } = fields;
        let number = match corr.0 {
            Some(FrameMark::Publish(number)) => return self.outbox.refused(number, error, now, effects),
            Some(FrameMark::Request(number)) => number,
            None => return self.ended_by_server(topic.zip(group), error, now, effects),
        };
        match self.waiters.remove(&number) {
            Some(FrameWaiter::Caller(sender)) => drop(sender.send(Err(error))),
            Some(FrameWaiter::Fetch { member, sender }) => {
                self.fetch_answered(member, effects);
                drop(sender.send(Err(error)));
            }
            Some(FrameWaiter::Subscribe { member: id, epoch }) => {
                let Some(member) = self.members.get_mut(&id).filter(|member| member.epoch == epoch) else {
                    return;
                };
                match member.refused(error, now, effects) {
                    Some(error) => self.end_member(id, Some(error), effects),
                    None => self.pause_again(id),
                }
            }
            Some(FrameWaiter::Settle { member, items, is_ack }) => {
                self.settle_done(member, items, is_ack, Err(error), now, effects);
            }
            Some(FrameWaiter::Extend { member, rows, slot, .. }) => {
                self.extend_refused(member, &rows, slot, error, effects);
            }
            Some(FrameWaiter::Ignored) | None => {}
        }
    }

    fn extend_refused(
        &mut self,
        id: u64,
        rows: &[RowId],
        slot: Option<AnswerSlot>,
        mut error: ClientError,
        effects: &mut LockEffects,
    ) {
        // None of the leases is held.
        let is_lost = error.is("unknown_id");
        if let Some(member) = self.members.get_mut(&id) {
            member.table.not_extended(rows);
            rows.iter().filter(|_| is_lost).for_each(|row| member.table.lose_row(*row, effects));
        }
        if is_lost {
            error = lease_lost();
        }
        if let Some(slot) = slot {
            effects.wake(self.settled.answer(slot, Err(error)));
        }
    }

    /// An `ERR` that answers no frame tells that a subscription ended.
    fn ended_by_server(
        &mut self,
        target: Option<(String, String)>,
        error: ClientError,
        now: Instant,
        effects: &mut LockEffects,
    ) {
        let named = target.and_then(|(topic, group)| self.member_of(&topic, &group));
        // Servers that do not name it in fields name it in the message.
        let is_meant = |member: &Member| {
            let (topic, group) = (&member.options.topic, &member.options.group);
            error.message().contains(&format!("`{topic}` in `{group}`"))
                || error.message().contains(&format!("subscribe:{topic}`"))
        };
        let ended: Vec<u64> = match named {
            Some(id) => vec![id],
            None => self.members.iter().filter(|(_, m)| is_meant(m)).map(|(id, _)| *id).collect(),
        };
        if ended.is_empty() {
            return self.report(error, effects);
        }
        for id in ended {
            let member = self.members.get_mut(&id);
            let acks =
                member.and_then(|member| member.ended_itself(&error, now).then(|| member.down(now, effects)));
            match acks {
                Some(acks) => {
                    self.reject(acks, &lease_lost(), effects);
                    self.subscribe(id);
                }
                None => self.end_member(id, Some(error.clone()), effects),
            }
        }
    }

    fn deliver(&mut self, fields: EventsFields<'_>, frame: &Bytes, now: Instant, effects: &mut LockEffects) {
        let EventsFields { corr, topic, group, events } = fields;
        let fetch = match corr.0 {
            Some(FrameMark::Request(number)) => self.waiters.remove(&number),
            _ => None,
        };
        if let Some(FrameWaiter::Fetch { member, sender }) = fetch {
            self.fetch_answered(member, effects);
            drop(sender.send(Ok(())));
        }
        let Some(id) = self.member_of(&topic, &group) else { return };
        let Some(member) = self.members.get_mut(&id) else { return };
        let has_acks = member.accept(events, frame, now, effects);
        if has_acks {
            self.plan_acks(id);
        }
    }

    fn member_of(&mut self, topic: &str, group: &str) -> Option<u64> {
        let fits = |member: &Member| {
            *member.options.topic == *topic
                && *member.options.group == *group
                && member.state != MemberState::Ended
        };
        if self.members.get(&self.last_member).is_some_and(fits) {
            return Some(self.last_member);
        }
        let found = self.members.iter().find(|(_, member)| fits(member)).map(|(id, _)| *id)?;
        self.last_member = found;
        Some(found)
    }
}
