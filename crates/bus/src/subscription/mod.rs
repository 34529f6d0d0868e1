//! A member of a group: it takes leases from its subscription, and acks them.

mod create;
mod held;
mod join;
mod request;

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use promethean_delivery::{Input, LeaseRef, Leaving, MemberChange, MemberNo, Subject};
use promethean_model::{GroupName, IgnorePoison};
use promethean_store::port::StoredEvent;
use tokio::sync::oneshot;

pub use self::held::{Held, Over};
pub use self::request::{MemberOptions, Subscribe};
use crate::error::BusError;
use crate::groups::{
    ClaimOwner, GivenBack, GroupEntry, InboxItem, Leased, Membership, OwnerMessage, OwnerRequest, Settled,
    by_owner,
};

/// A member of a group. Dropping it leaves the group; the events that it has leased are delivered to other
/// members at once.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) membership: Arc<Membership>,
    /// How the member leaves if the subscription is dropped.
    pub(crate) leaving: Leaving,
    /// Counts as one subscription of the group; `None` after the member has left.
    pub(crate) entered: Mutex<Option<GroupEntry>>,
}

/// One event that a worker handles until its lease is over. A clone is the same lease.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The event.
    pub event: StoredEvent,
    /// 1 for the first delivery.
    pub attempt: u32,
    lease: LeaseRef,
    owner: Arc<ClaimOwner>,
    membership: Arc<Membership>,
}

/// One item that a subscription receives.
#[derive(Debug)]
pub enum SubscriptionItem {
    /// Events of one topic.
    Leases(Vec<Lease>),
    /// The partitions of the member changed; the epoch they belong to.
    Rebalance {
        /// Grows with every change.
        epoch: u64,
        /// What changed.
        change: MemberChange,
    },
    /// Leases that were kept with [`Subscription::hold`] and are over.
    Over(Over),
}

impl Leased for Lease {
    fn owner(&self) -> &Arc<ClaimOwner> {
        &self.owner
    }

    fn lease(&self) -> LeaseRef {
        self.lease
    }

    fn published_ms(&self) -> i64 {
        self.event.ts
    }
}

impl Subscription {
    /// The group.
    pub fn group(&self) -> &GroupName {
        &self.membership.group
    }

    /// The topic or pattern as it was asked for.
    pub fn subject(&self) -> &Subject {
        &self.membership.subject
    }

    /// Waits for the next events; their leases begin now. Cancel-safe.
    pub async fn next(&mut self, leases_max: usize) -> Result<SubscriptionItem, BusError> {
        let item = self.take(leases_max).await?;
        if let SubscriptionItem::Leases(leases) = &item {
            self.written(leases);
        }
        Ok(item)
    }

    /// Waits for the next events without beginning their leases. A caller that first passes the events on
    /// begins the leases later with [`Subscription::written`]. Cancel-safe.
    pub async fn take(&mut self, leases_max: usize) -> Result<SubscriptionItem, BusError> {
        std::future::poll_fn(|cx| self.poll_take(cx, leases_max)).await
    }

    /// Like [`Subscription::take`], for callers that poll many subscriptions. Only the task that polled last
    /// is woken.
    pub fn poll_take(&self, cx: &Context<'_>, leases_max: usize) -> Poll<Result<SubscriptionItem, BusError>> {
        let membership = &self.membership;
        let item = match &membership.lifter {
            Some(lifter) => lifter.poll_take(membership, cx, leases_max),
            None => membership.inbox.poll_take(cx, leases_max),
        };
        item.map_ok(|item| self.subscription_item(item))
    }

    /// Takes an item if there is one now. Events that must be lifted count as present when they are lifted.
    pub fn try_take(&self, leases_max: usize) -> Option<Result<SubscriptionItem, BusError>> {
        let membership = &self.membership;
        let item = match &membership.lifter {
            Some(lifter) => lifter.try_take(membership, leases_max),
            None => membership.inbox.take(leases_max),
        };
        item.map(|item| item.map(|item| self.subscription_item(item)))
    }

    fn subscription_item(&self, item: InboxItem) -> SubscriptionItem {
        match item {
            InboxItem::Leases(owner, deliveries) => {
                let lease = |delivery: promethean_delivery::Delivery| Lease {
                    event: delivery.event,
                    attempt: delivery.attempt,
                    lease: delivery.lease,
                    owner: Arc::clone(&owner),
                    membership: Arc::clone(&self.membership),
                };
                SubscriptionItem::Leases(deliveries.into_iter().map(lease).collect())
            }
            InboxItem::Rebalance(epoch, change) => SubscriptionItem::Rebalance { epoch, change },
            InboxItem::Over(owner, leases) => SubscriptionItem::Over(Over::new(owner, leases)),
        }
    }

    /// Begins the leases of events that reached their worker; acks them if the member acks automatically.
    pub fn written(&self, leases: &[Lease]) {
        let member = self.membership.member;
        // `send_now` does not wait: a cancelled wait would leave leases whose time never begins. The number
        // of these messages is bounded by the number of leases.
        for (owner, leases) in by_owner(leases) {
            // The leases of an owner that has ended are over. If its end ends the subscription, the next
            // `take` returns the error.
            let _ = owner.mailbox.send_now(OwnerMessage::Tell(Input::Written { member, leases }));
        }
    }

    /// Acks events, and waits until the ack is durable.
    pub async fn ack(&self, leases: &[Lease]) -> Result<Settled, BusError> {
        self.membership.ack(leases).await
    }

    /// Acks events without waiting until the ack is durable, which it soon is. Waits only while the owner's
    /// mailbox is full.
    pub async fn ack_soon(&self, leases: &[Lease]) -> Result<(), BusError> {
        self.observe_latency(leases);
        let member = self.membership.member;
        let mut failed = Ok(());
        for (owner, leases) in by_owner(leases) {
            let sent =
                owner.mailbox.send(OwnerMessage::Tell(Input::Ack { member, leases, reply: None })).await;
            failed = failed.and(sent.or_else(|error| self.membership.unless_over(error)));
        }
        failed
    }

    /// Gives events back: they are delivered again after `delay_ms`, or after the server's backoff.
    pub async fn nack(&self, leases: &[Lease], delay_ms: Option<u64>) -> Result<Settled, BusError> {
        self.give_back(leases, GivenBack { delay_ms, note: None }).await
    }

    /// As [`Subscription::nack`], with the reason, which the dead letter has if this was the last attempt.
    pub async fn nack_because(
        &self,
        leases: &[Lease],
        delay_ms: Option<u64>,
        reason: &str,
    ) -> Result<Settled, BusError> {
        self.give_back(leases, self.membership.given_back(delay_ms, reason, None)).await
    }

    async fn give_back(&self, leases: &[Lease], given_back: GivenBack) -> Result<Settled, BusError> {
        self.ask(leases, |member, leases| OwnerRequest::Nack(member, leases, given_back.clone())).await
    }

    /// Keeps events for `by_ms` more, at least 1000, or for another ack timeout.
    pub async fn extend(&self, leases: &[Lease], by_ms: Option<u64>) -> Result<Settled, BusError> {
        self.ask(leases, |member, leases| OwnerRequest::Extend(member, leases, by_ms)).await
    }

    /// Pauses the member: it gets no events until it is resumed. Its leases stay as they are.
    pub async fn pause(&self) -> Result<(), BusError> {
        self.membership.joined().paused = true;
        self.tell_all(|member| Input::Pause(Some(member))).await
    }

    /// Resumes the member: it gets events again.
    pub async fn resume(&self) -> Result<(), BusError> {
        self.membership.joined().paused = false;
        self.tell_all(|member| Input::Resume(Some(member))).await
    }

    /// Sends a heartbeat, for a member that shows by heartbeats that it lives: at least every 15 seconds,
    /// better every 5. An error means that the heartbeat came too late, or that another session took the
    /// member's name: the member has lost its partitions and must subscribe again.
    pub fn heartbeat(&self) -> Result<(), BusError> {
        let membership = &self.membership;
        let Some(name) = &membership.name else { return Ok(()) };
        membership.groups.coordinators.heartbeat(
            &membership.key(),
            name,
            membership.member,
            membership.groups.base.now(),
        )
    }

    /// Lets a member that pulls receive `count` more events.
    pub fn grant(&self, count: usize) {
        if self.membership.credit.is_pulled() {
            self.membership.credit.grant(count);
            for owner in self.membership.owners() {
                // An error means that the owner has ended; it delivers nothing.
                let _ = owner.mailbox.send_now(OwnerMessage::Tell(Input::Credit));
            }
        }
    }

    /// Takes back the unused part of the grants of a member that pulls. When the future is done, all events
    /// that were delivered for the grants can be taken.
    pub fn ungrant(&self) -> impl Future<Output = ()> + Send + use<> {
        if self.membership.credit.is_pulled() {
            self.membership.credit.ungrant();
        }
        let membership = Arc::clone(&self.membership);
        async move {
            for owner in membership.owners() {
                let (answer, answered) = oneshot::channel();
                // An owner answers after all its earlier deliveries. An owner that has ended delivers nothing
                // more.
                if owner.mailbox.send_now(OwnerMessage::Look(answer)).is_ok() {
                    let _ = answered.await;
                }
            }
            if let Some(lifter) = &membership.lifter {
                lifter.lift_all(&membership).await;
            }
        }
    }

    /// Leaves the group. The events that it has leased do not count as failed, and are delivered to other
    /// members at once.
    pub fn unsubscribe(&self) {
        self.leave(Leaving::Released);
    }

    /// Leaves the group as a lost member: the events that had reached it count as failed attempts.
    pub fn lost(&self) {
        self.leave(Leaving::Lost);
    }

    async fn tell_all(&self, input: impl Fn(MemberNo) -> Input) -> Result<(), BusError> {
        let mut failed = Ok(());
        for owner in self.membership.owners() {
            let sent = owner.mailbox.send(OwnerMessage::Tell(input(self.membership.member))).await;
            failed = failed.and(sent.or_else(|error| self.membership.unless_over(error)));
        }
        failed
    }

    async fn ask(
        &self,
        leases: &[Lease],
        ask: impl Fn(MemberNo, Vec<LeaseRef>) -> OwnerRequest + Send,
    ) -> Result<Settled, BusError> {
        self.membership.ask_all(leases, ask).await
    }

    fn observe_latency(&self, leases: &[Lease]) {
        self.membership.observe_latency(leases);
    }
}

impl Subscription {
    /// Leaves the group. Only the first call has an effect. Items that were not taken are dropped.
    fn leave(&self, how: Leaving) {
        let entered = self.entered.lock().ignore_poison().take();
        if entered.is_none() {
            return;
        }
        let membership = &self.membership;
        membership.inbox.end(BusError::Closed);
        membership.left.notify_one();
        if let Some(name) = &membership.name {
            membership.groups.coordinators.leave(
                &membership.key(),
                name,
                membership.member,
                how,
                membership.groups.base.now(),
            );
        }
        membership.groups.names.free(membership);
        membership.leave_owners(how);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.leave(self.leaving);
    }
}

impl Lease {
    /// The group that holds the lease.
    pub fn group(&self) -> &GroupName {
        &self.membership.group
    }

    /// Begins the lease of an event that reached its worker.
    pub(crate) async fn begin(&self) -> Result<(), BusError> {
        let input = Input::Written { member: self.membership.member, leases: vec![self.lease] };
        self.owner.mailbox.send(OwnerMessage::Tell(input)).await
    }

    /// Acks the event, and waits until the ack is durable.
    pub async fn ack(&self) -> Result<Settled, BusError> {
        let now = self.membership.groups.base.clock.wall_ms();
        self.owner.metrics.latency_ms.observe(u64::try_from(now - self.event.ts).unwrap_or(0));
        self.ask(OwnerRequest::Ack(self.membership.member, vec![self.lease])).await
    }

    /// Gives the event back: it is delivered again after `delay_ms`, or after the server's backoff.
    pub async fn nack(&self, delay_ms: Option<u64>) -> Result<Settled, BusError> {
        let given_back = GivenBack { delay_ms, note: None };
        self.ask(OwnerRequest::Nack(self.membership.member, vec![self.lease], given_back)).await
    }

    /// As [`Lease::nack`], with the reason, which the dead letter has if this was the last attempt.
    pub async fn nack_because(&self, delay_ms: Option<u64>, reason: &str) -> Result<Settled, BusError> {
        let given_back = self.membership.given_back(delay_ms, reason, None);
        self.ask(OwnerRequest::Nack(self.membership.member, vec![self.lease], given_back)).await
    }

    /// Keeps the event for `by_ms` more, at least 1000, or for another ack timeout.
    pub async fn extend(&self, by_ms: Option<u64>) -> Result<Settled, BusError> {
        self.ask(OwnerRequest::Extend(self.membership.member, vec![self.lease], by_ms)).await
    }

    async fn ask(&self, ask: OwnerRequest) -> Result<Settled, BusError> {
        Ok(Settled { stale: self.membership.ask(&self.owner, ask, 1).await? })
    }
}
