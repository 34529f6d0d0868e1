//! The task of an owner: it gives inputs to the delivery machine and carries out the machine's effects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use promethean_delivery::{
    Allowance, DeliveryCounts, DeliveryStatus, Effect, Input, Leaving, Machine, MemberNo, Now, ReplyNo,
    SmallMap,
};
use promethean_model::Offset;
use promethean_store::port::EndWatch;

use super::inbox::{Inbox, InboxItem};
use super::load::{self, FailedRead, PageRead, read_page};
use super::message::{Answer, MemberStatus, NewMember, OwnerMessage, OwnerView};
use super::progress::{self, CommitOutcome, Committed, Committing};
use super::shared_credit::SharedCredit;
use super::wakeups::{OwnerFuture, WakeTimer};
use super::{ClaimOwner, Groups};
use crate::error::BusError;
use crate::rows::GroupRow;

/// How often the gauges of a busy group are updated.
const SHOW_EVERY_MS: u64 = 100;
/// How long to wait after an error of the store before the next try.
const RETRY_MS: u64 = 1_000;
/// The most members in a view; at least as many as a status has blocked keys.
const MEMBERS_SHOWN: usize = 100;

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The future that takes the claim over and then serves it.
pub(super) fn run(groups: &Arc<Groups>, owner: &Arc<ClaimOwner>, row: &GroupRow) -> OwnerFuture {
    OwnerFuture::Starting(Box::pin(take_over(Arc::clone(groups), Arc::clone(owner), row.clone())))
}

/// Loads the claim's state and makes the task. `None` if loading failed; then all waiting senders have the
/// error.
async fn take_over(groups: Arc<Groups>, owner: Arc<ClaimOwner>, row: GroupRow) -> Option<Box<OwnerTask>> {
    let watch = groups.base.store.watch(&owner.topic);
    let loaded = match load::load(&groups, &owner, &row).await {
        Ok(loaded) => loaded,
        Err(error) => {
            groups.owners.remove(&owner, error, || false);
            return None;
        }
    };
    Some(Box::new(OwnerTask {
        now: groups.base.now(),
        groups,
        owner,
        machine: loaded.machine,
        epoch: loaded.epoch,
        watch,
        end: Offset::ZERO,
        members: SmallMap::default(),
        answers: BTreeMap::new(),
        next_reply: 0,
        read: None,
        commit: None,
        effects: Vec::new(),
        messages: VecDeque::new(),
        failure: None,
        ending: None,
        enders: Vec::new(),
        paused: loaded.paused,
        closing: false,
        waiting: false,
        shown_ms: 0,
        counted: DeliveryCounts::default(),
        expired: 0,
        timer: WakeTimer::default(),
        in_grace: false,
    }))
}

pub(super) struct OwnerTask {
    pub(super) groups: Arc<Groups>,
    pub(super) owner: Arc<ClaimOwner>,
    pub(super) machine: Machine,
    pub(super) epoch: u64,
    pub(super) watch: EndWatch,
    /// The durable end that the machine was last told.
    pub(super) end: Offset,
    pub(super) members: SmallMap<MemberNo, TaskMember>,
    pub(super) answers: BTreeMap<ReplyNo, Answer<usize>>,
    pub(super) next_reply: u64,
    pub(super) read: Option<Boxed<Result<PageRead, FailedRead>>>,
    pub(super) commit: Option<Committing>,
    /// Empty between steps. Kept so that its memory is used again while the owner is busy.
    pub(super) effects: Vec<Effect>,
    pub(super) messages: VecDeque<OwnerMessage>,
    pub(super) failure: Option<Box<BusError>>,
    /// Why the task ends as soon as no commit is in flight.
    pub(super) ending: Option<Box<BusError>>,
    /// Senders that wait for the end of this owner: they are dropped when the task ends.
    pub(super) enders: Vec<Answer<()>>,
    pub(super) paused: bool,
    pub(super) closing: bool,
    /// Whether all work is done and the task only waits to be woken.
    pub(super) waiting: bool,
    pub(super) shown_ms: u64,
    /// The counts that the metrics already include.
    pub(super) counted: DeliveryCounts,
    pub(super) expired: u64,
    pub(super) timer: WakeTimer,
    /// Whether the machine lets no lease expire.
    pub(super) in_grace: bool,
    /// The time of the last wake-up. It is used until the task waits again, because the work in between takes
    /// almost no time.
    pub(super) now: Now,
}

/// A member as its owner's task sees it.
pub(super) struct TaskMember {
    /// The name that users see.
    name: Option<Arc<str>>,
    inbox: Arc<Inbox>,
    pub(super) shared: Option<SharedCredit>,
}

impl OwnerTask {
    pub(super) fn look_at_end(&mut self) -> Result<(), BusError> {
        // Reading the end marks it as seen: only a later change wakes the task.
        let end = self.watch.end();
        if end < self.end {
            // A closed store reports no topics.
            if self.groups.base.store.health().refusing.as_deref() == Some("closed") {
                return Err(BusError::Closed);
            }
            return Err(BusError::TopicDeleted { topic: self.owner.topic.clone() });
        }
        if end > self.end {
            self.end = end;
            self.step(Input::End(end));
        }
        Ok(())
    }

    pub(super) fn obey(&mut self, message: OwnerMessage) -> Result<(), BusError> {
        match message {
            OwnerMessage::Tell(input) => {
                match &input {
                    Input::Pause(None) => self.paused = true,
                    Input::Resume(None) => self.paused = false,
                    _ => {}
                }
                self.step(input);
            }
            OwnerMessage::Request(request, answer) => {
                let reply = ReplyNo(self.next_reply);
                self.next_reply += 1;
                self.answers.insert(reply, answer);
                self.step(request.input(reply));
            }
            OwnerMessage::Join(new_member, answer) => self.join(new_member, answer),
            OwnerMessage::Leave(member, how) => self.leave(member, how),
            OwnerMessage::Look(answer) => drop(answer.send(Ok(self.view()))),
            OwnerMessage::Retire(answer) => self.retire(answer),
            OwnerMessage::AwaitEnd(answer) if self.members.is_empty() => self.enders.push(answer),
            OwnerMessage::AwaitEnd(answer) => {
                let _ = answer.send(Err(self.busy()));
            }
            OwnerMessage::TopicDeleted(answer) => {
                self.enders.push(answer);
                self.ending = Some(Box::new(BusError::TopicDeleted { topic: self.owner.topic.clone() }));
            }
            OwnerMessage::Close => {
                self.closing = true;
                for member in self.members.keys().collect::<Vec<_>>() {
                    self.leave(member, Leaving::Released);
                }
                // A shutdown waits for no retry: a commit that was refused is tried once more, now.
                self.step(Input::CommitNow);
            }
        }
        Ok(())
    }

    fn join(&mut self, new_member: NewMember, answer: Answer<()>) {
        let NewMember { member, limits, allowance, name, inbox, shared } = new_member;
        // A caller that no longer waits for the answer would never send `Leave`.
        if answer.send(Ok(())).is_err() {
            return;
        }
        let credit = allowance.credit.of_user(self.owner.number);
        let allowance = Allowance { credit: credit.clone(), ..allowance };
        let shared = shared.map(|membership| SharedCredit { membership, credit });
        self.members.insert(member, TaskMember { name, inbox, shared });
        for waiting in std::mem::take(&mut self.enders) {
            let _ = waiting.send(Err(self.busy()));
        }
        self.step(Input::Join { member, limits, allowance });
    }

    fn leave(&mut self, member: MemberNo, how: Leaving) {
        if let Some(member_here) = self.members.remove(member) {
            self.step(Input::Leave { member, how });
            if self.closing {
                member_here.inbox.end(BusError::Closed);
            }
        }
    }

    fn retire(&mut self, answer: Answer<()>) {
        if !self.members.is_empty() {
            // A failed send means that the sender no longer waits.
            let _ = answer.send(Err(self.busy()));
            return;
        }
        let group = self.owner.group.clone();
        let subject = self.owner.topic.to_string();
        self.ending = Some(Box::new(BusError::UnknownGroup { group, subject }));
        self.enders.push(answer);
    }

    fn busy(&self) -> BusError {
        BusError::GroupBusy { group: self.owner.group.clone(), members: self.members.len() }
    }

    pub(super) fn answered(&mut self, answer: Result<PageRead, FailedRead>) {
        match answer {
            Ok(PageRead { input, permit }) => {
                self.step(input);
                // What the machine could not use is dropped by now.
                drop(permit);
            }
            Err(FailedRead { request, error }) => {
                self.failure = Some(Box::new(error));
                let retry_at_ms = self.now.monotonic_ms.saturating_add(RETRY_MS);
                self.step(Input::ReadFailed { request, retry_at_ms });
            }
        }
    }

    pub(super) fn committed(&mut self, outcome: CommitOutcome) -> Result<(), BusError> {
        match outcome.result {
            Ok(Committed::Split(letters)) => {
                self.step(Input::CommitSplit { token: outcome.token, letters });
                Ok(())
            }
            Ok(Committed::All(unclosed)) => {
                self.failure = None;
                // At a shutdown the letters stay open; the next owner closes them.
                if !unclosed.is_empty() && !self.closing {
                    // Before `Committed`, which allows the machine to make the next commit.
                    let retry_at_ms = self.now.monotonic_ms.saturating_add(RETRY_MS);
                    self.step(Input::Unclosed { letters: unclosed, retry_at_ms });
                }
                self.step(Input::Committed(outcome.token));
                Ok(())
            }
            // A shutdown does not wait for the store to recover; events whose ack was not committed are
            // delivered again.
            Err(error) if self.is_the_end(&error) => Err(error),
            Err(error) => {
                self.failure = Some(Box::new(error));
                let retry_at_ms = self.now.monotonic_ms.saturating_add(RETRY_MS);
                self.step(Input::CommitFailed { token: outcome.token, retry_at_ms });
                Ok(())
            }
        }
    }

    fn is_the_end(&self, error: &BusError) -> bool {
        match error {
            // Only the owner's own topic counts: a dead-letter topic that is being deleted is created again
            // by the next try.
            BusError::TopicDeleted { topic } => *topic == self.owner.topic,
            error => error.is_final() || self.closing || *self.groups.base.shutdown.borrow(),
        }
    }

    pub(super) fn step(&mut self, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        self.machine.step(input, self.now, &mut effects);
        for effect in effects.drain(..) {
            self.perform(effect);
        }
        self.effects = effects;
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Read { request, from, limit } => {
                let (groups, owner) = (Arc::clone(&self.groups), Arc::clone(&self.owner));
                self.read = Some(Box::pin(read_page(groups, owner, request, from, limit)));
            }
            Effect::Commit(progress) => {
                self.commit = Some(progress::commit(&self.groups, &self.owner, self.epoch, progress));
            }
            Effect::Deliver(member, deliveries) => {
                self.owner.metrics.delivered.add(deliveries.len() as u64);
                if let Some(TaskMember { inbox, .. }) = self.members.get(member) {
                    inbox.put(InboxItem::Leases(Arc::clone(&self.owner), deliveries.into()));
                }
            }
            Effect::Revoke(member, leases) => {
                if let Some(TaskMember { inbox, .. }) = self.members.get(member) {
                    inbox.revoke(&self.owner, &leases);
                }
            }
            Effect::Reply { reply, stale } => {
                if let Some(answer) = self.answers.remove(&reply) {
                    // A failed send means that the sender no longer waits.
                    let _ = answer.send(Ok(stale));
                }
            }
        }
    }

    /// Whether the owner has ended: it has no members and all its progress is written.
    pub(super) fn is_done(&mut self) -> bool {
        let idle = self.members.is_empty() && self.commit.is_none() && self.machine.is_settled();
        idle && self
            .groups
            .owners
            .remove(&self.owner, BusError::Closed, || !self.closing && !self.owner.mailbox.is_empty())
    }

    /// Ends the task: answers all waiting senders with the error and ends the members' inboxes.
    pub(super) fn stop(&mut self, why: &BusError) {
        self.groups.owners.remove(&self.owner, why.clone(), || false);
        (self.read, self.commit) = (None, None);
        self.show();
        for answer in std::mem::take(&mut self.answers).into_values() {
            // A failed send means that the sender no longer waits.
            let _ = answer.send(Err(why.clone()));
        }
        for member_here in self.members.values() {
            match &member_here.shared {
                // The other topics of the pattern stay joined.
                Some(shared) if matches!(why, BusError::TopicDeleted { .. }) => {
                    if let Some(membership) = shared.membership.upgrade() {
                        membership.forget(&self.owner);
                    }
                }
                _ => member_here.inbox.end(why.clone()),
            }
        }
        // Gives the members' credit back, so that other topics can use it.
        let members = std::mem::take(&mut self.members);
        for member in members.keys() {
            let now = self.groups.base.now();
            self.machine.step(Input::Leave { member, how: Leaving::Released }, now, &mut Vec::new());
        }
        members.values().filter_map(|member_here| member_here.shared.as_ref()).for_each(SharedCredit::leave);
    }

    pub(super) fn view(&self) -> OwnerView {
        let status = self.machine.status();
        OwnerView {
            member_list: self.member_list(&status),
            status,
            reason: self.machine.reason(self.groups.base.now()),
            members: self.members.len(),
            paused: self.paused,
            failure: self.failure.as_deref().cloned(),
        }
    }

    /// The members for users to see: first the members whose events block others, then any.
    fn member_list(&self, status: &DeliveryStatus) -> Vec<MemberStatus> {
        let leases = self.machine.leases_by_member();
        let blocking: BTreeSet<MemberNo> = status.blocked_keys.iter().filter_map(|key| key.member).collect();
        let others = self.members.keys().filter(|member| !blocking.contains(member));
        let shown = blocking.iter().copied().chain(others).take(MEMBERS_SHOWN);
        let status = |number: MemberNo| MemberStatus {
            number,
            name: self.members.get(number).and_then(|member| member.name.clone()),
            in_flight: leases.get(&number).copied().unwrap_or(0),
        };
        shown.map(status).collect()
    }

    /// Updates the metrics: every 100 ms while the owner is busy, at once when it comes to rest.
    pub(super) fn show(&mut self) {
        let now_ms = self.now.monotonic_ms;
        let at_rest = self.read.is_none() && self.commit.is_none();
        if !at_rest && now_ms < self.shown_ms.saturating_add(SHOW_EVERY_MS) {
            return;
        }
        self.shown_ms = now_ms;
        let (metrics, status) = (&self.owner.metrics, self.machine.status());
        if at_rest && status.in_flight == 0 {
            // The owner may rest for long: it gives the memory back.
            (self.effects, self.messages) = (Vec::new(), VecDeque::new());
        }
        metrics.set_members(self.members.len() as i64);
        metrics.set_inflight(status.in_flight as i64);
        metrics.set_lag(i64::try_from(status.lag).unwrap_or(i64::MAX));
        metrics.set_blocked_keys(status.blocked_keys.len() as i64);
        let (counts, before) = (status.counts, std::mem::replace(&mut self.counted, status.counts));
        metrics.redelivered.add(counts.redelivered - before.redelivered);
        metrics.acked.add(counts.acked - before.acked);
        metrics.nacked.add(counts.nacked - before.nacked);
        metrics.lease_expired.add(counts.lease_expired - before.lease_expired);
        metrics.expired.add(status.expired - self.expired);
        self.expired = status.expired;
    }
}
