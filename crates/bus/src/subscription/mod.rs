//! A member's hold on a group: leases come out, acks go in.

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
    ClaimOwner, GroupEntry, InboxItem, Leased, Membership, OwnerMessage, OwnerRequest, Settled, by_owner,
};

/// A member of a group. Dropping it leaves the group; what it holds is delivered to others at once.
#[derive(Debug)]
pub struct Subscription {
    pub(crate) link: Arc<Membership>,
    /// What a drop counts as.
    pub(crate) leaving: Leaving,
    /// Until it leaves.
    pub(crate) entered: Mutex<Option<GroupEntry>>,
}

/// One event to be worked on until its lease is over. A clone is the same lease.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The event.
    pub event: StoredEvent,
    /// 1 for the first delivery.
    pub attempt: u32,
    lease: LeaseRef,
    owner: Arc<ClaimOwner>,
    link: Arc<Membership>,
}

/// What a subscription is given.
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
    /// Leases that are kept with [`Subscription::hold`] and are over.
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
        &self.link.group
    }

    /// The topic or pattern as it was asked for.
    pub fn subject(&self) -> &Subject {
        &self.link.subject
    }

    /// Waits for the next events; their leases begin now. Cancel-safe.
    pub async fn next(&mut self, leases_max: usize) -> Result<SubscriptionItem, BusError> {
        let given = self.take(leases_max).await?;
        if let SubscriptionItem::Leases(leases) = &given {
            self.written(leases);
        }
        Ok(given)
    }

    /// Waits for the next events without beginning their leases: [`Subscription::written`] does that, for those who
    /// pass them on first. Cancel-safe.
    pub async fn take(&mut self, leases_max: usize) -> Result<SubscriptionItem, BusError> {
        std::future::poll_fn(|cx| self.poll_take(cx, leases_max)).await
    }

    /// As [`Subscription::take`], for who looks at many subscriptions. The last one to look is woken.
    pub fn poll_take(&self, cx: &Context<'_>, leases_max: usize) -> Poll<Result<SubscriptionItem, BusError>> {
        let link = &self.link;
        let item = match &link.lifter {
            Some(lifter) => lifter.poll_take(link, cx, leases_max),
            None => link.inbox.poll_take(cx, leases_max),
        };
        item.map_ok(|item| self.given(item))
    }

    /// What is there now, if anything. Events that are to be lifted are there once they are.
    pub fn try_take(&self, leases_max: usize) -> Option<Result<SubscriptionItem, BusError>> {
        let link = &self.link;
        let item = match &link.lifter {
            Some(lifter) => lifter.try_take(link, leases_max),
            None => link.inbox.take(leases_max),
        };
        item.map(|item| item.map(|item| self.given(item)))
    }

    fn given(&self, item: InboxItem) -> SubscriptionItem {
        match item {
            InboxItem::Leases(owner, deliveries) => {
                let lease = |delivery: promethean_delivery::Delivery| Lease {
                    event: delivery.event,
                    attempt: delivery.attempt,
                    lease: delivery.lease,
                    owner: Arc::clone(&owner),
                    link: Arc::clone(&self.link),
                };
                SubscriptionItem::Leases(deliveries.into_iter().map(lease).collect())
            }
            InboxItem::Rebalance(epoch, change) => SubscriptionItem::Rebalance { epoch, change },
            InboxItem::Over(owner, leases) => SubscriptionItem::Over(Over::new(owner, leases)),
        }
    }

    /// Begins the leases of events that reached their worker; acks them if the member acks automatically.
    pub fn written(&self, leases: &[Lease]) {
        let member = self.link.member;
        // Never waits, or whoever gives up waiting would hold leases whose time never begins; there are no more of
        // these letters than leases.
        for (owner, leases) in by_owner(leases) {
            // Leases of an owner that has ended are over; if that ends the subscription, the next look tells.
            let _ = owner.mailbox.send_now(OwnerMessage::Tell(Input::Written { member, leases }));
        }
    }

    /// Finishes events, and waits until that is durable.
    pub async fn ack(&self, leases: &[Lease]) -> Result<Settled, BusError> {
        self.link.ack(leases).await
    }

    /// Finishes events; that becomes durable soon. Waits only if the group has too much to do.
    pub async fn ack_soon(&self, leases: &[Lease]) -> Result<(), BusError> {
        self.observe_latency(leases);
        let member = self.link.member;
        let mut failed = Ok(());
        for (owner, leases) in by_owner(leases) {
            let sent =
                owner.mailbox.send(OwnerMessage::Tell(Input::Ack { member, leases, reply: None })).await;
            failed = failed.and(sent.or_else(|error| self.link.unless_over(error)));
        }
        failed
    }

    /// Gives events back: they are delivered again after `delay_ms`, or after the server's backoff.
    pub async fn nack(&self, leases: &[Lease], delay_ms: Option<u64>) -> Result<Settled, BusError> {
        self.ask(leases, |member, leases| OwnerRequest::Nack(member, leases, delay_ms)).await
    }

    /// Keeps events for `by_ms` more, at least 1000, or for another ack timeout.
    pub async fn extend(&self, leases: &[Lease], by_ms: Option<u64>) -> Result<Settled, BusError> {
        self.ask(leases, |member, leases| OwnerRequest::Extend(member, leases, by_ms)).await
    }

    /// Delivers nothing until resumed. What is in flight stays so.
    pub async fn pause(&self) -> Result<(), BusError> {
        self.link.joined().paused = true;
        self.tell_all(|member| Input::Pause(Some(member))).await
    }

    /// Delivers again.
    pub async fn resume(&self) -> Result<(), BusError> {
        self.link.joined().paused = false;
        self.tell_all(|member| Input::Resume(Some(member))).await
    }

    /// Says that the member lives, if it is to say so by heartbeats: at least every 15 seconds, better every 5. One that
    /// came too late, or whose name was taken over, has lost its partitions and must subscribe again.
    pub fn heartbeat(&self) -> Result<(), BusError> {
        let link = &self.link;
        let Some(name) = &link.name else { return Ok(()) };
        link.groups.coordinators.heartbeat(&link.key(), name, link.member, link.groups.base.now())
    }

    /// For a member that pulls: lets it be given so many events more.
    pub fn grant(&self, count: usize) {
        if self.link.credit.is_pulled() {
            self.link.credit.grant(count);
            for owner in self.link.owners() {
                // One that has ended delivers nothing.
                let _ = owner.mailbox.send_now(OwnerMessage::Tell(Input::Credit));
            }
        }
    }

    /// For a member that pulls: takes back what was granted and not used. When it is done, whatever was delivered for
    /// the grant is there to be taken.
    pub fn ungrant(&self) -> impl Future<Output = ()> + Send + use<> {
        if self.link.credit.is_pulled() {
            self.link.credit.ungrant();
        }
        let link = Arc::clone(&self.link);
        async move {
            for owner in link.owners() {
                let (answer, answered) = oneshot::channel();
                // An owner answers after what it did before; one that has ended did all it will do.
                if owner.mailbox.send_now(OwnerMessage::Look(answer)).is_ok() {
                    let _ = answered.await;
                }
            }
            if let Some(lifter) = &link.lifter {
                lifter.lift_all(&link).await;
            }
        }
    }

    /// Leaves the group. What it holds did not fail, and is delivered to others at once.
    pub fn unsubscribe(&self) {
        self.leave(Leaving::Released);
    }

    /// Says that the member is lost: what had reached it counts as failed.
    pub fn lost(&self) {
        self.leave(Leaving::Lost);
    }

    async fn tell_all(&self, input: impl Fn(MemberNo) -> Input) -> Result<(), BusError> {
        let mut failed = Ok(());
        for owner in self.link.owners() {
            let sent = owner.mailbox.send(OwnerMessage::Tell(input(self.link.member))).await;
            failed = failed.and(sent.or_else(|error| self.link.unless_over(error)));
        }
        failed
    }

    async fn ask(
        &self,
        leases: &[Lease],
        ask: impl Fn(MemberNo, Vec<LeaseRef>) -> OwnerRequest + Send,
    ) -> Result<Settled, BusError> {
        self.link.ask_all(leases, ask).await
    }

    fn observe_latency(&self, leases: &[Lease]) {
        self.link.observe_latency(leases);
    }
}

impl Subscription {
    /// Leaves the group. The first call counts; what there was to read is gone.
    fn leave(&self, how: Leaving) {
        let entered = self.entered.lock().ignore_poison().take();
        if entered.is_none() {
            return;
        }
        let link = &self.link;
        link.inbox.end(BusError::Closed);
        link.left.notify_one();
        if let Some(name) = &link.name {
            link.groups.coordinators.leave(&link.key(), name, link.member, link.groups.base.now());
        }
        let owners = {
            let mut joined = link.joined();
            joined.left = true;
            std::mem::take(&mut joined.owners)
        };
        for owner in owners.into_values() {
            // One that has ended has no members.
            let _ = owner.mailbox.send_now(OwnerMessage::Leave(link.member, how));
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.leave(self.leaving);
    }
}

impl Lease {
    /// The group it was given to.
    pub fn group(&self) -> &GroupName {
        &self.link.group
    }

    /// Begins the lease of an event that reached its worker.
    pub(crate) async fn begin(&self) -> Result<(), BusError> {
        let input = Input::Written { member: self.link.member, leases: vec![self.lease] };
        self.owner.mailbox.send(OwnerMessage::Tell(input)).await
    }

    /// Finishes the event, and waits until that is durable.
    pub async fn ack(&self) -> Result<Settled, BusError> {
        let now = self.link.groups.base.clock.wall_ms();
        self.owner.metrics.latency_ms.observe(u64::try_from(now - self.event.ts).unwrap_or(0));
        self.ask(OwnerRequest::Ack(self.link.member, vec![self.lease])).await
    }

    /// Gives the event back: it is delivered again after `delay_ms`, or after the server's backoff.
    pub async fn nack(&self, delay_ms: Option<u64>) -> Result<Settled, BusError> {
        self.ask(OwnerRequest::Nack(self.link.member, vec![self.lease], delay_ms)).await
    }

    /// Keeps the event for `by_ms` more, at least 1000, or for another ack timeout.
    pub async fn extend(&self, by_ms: Option<u64>) -> Result<Settled, BusError> {
        self.ask(OwnerRequest::Extend(self.link.member, vec![self.lease], by_ms)).await
    }

    async fn ask(&self, ask: OwnerRequest) -> Result<Settled, BusError> {
        Ok(Settled { stale: self.link.ask(&self.owner, ask, 1).await? })
    }
}
