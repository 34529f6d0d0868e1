//! Leases that are kept without their events, for callers that pass events on and later get acks by event id.

use std::sync::Arc;

use promethean_delivery::Input;
use promethean_model::{EventMeta, TopicName};

use super::{Lease, LeaseRef, Leased, Settled, Subscription, by_owner};
use crate::error::BusError;
use crate::groups::{ClaimOwner, OwnerMessage, OwnerRequest};

/// A lease without its event, kept for a client on a socket.
#[derive(Debug)]
pub struct Held {
    lease: LeaseRef,
    owner: Arc<ClaimOwner>,
    published_ms: i64,
}

/// Leases of one topic that are over: acks and nacks of them have no effect.
#[derive(Debug)]
pub struct Over {
    owner: Arc<ClaimOwner>,
    /// Ascending; `None` means all leases of the owner.
    leases: Option<Vec<LeaseRef>>,
}

impl Over {
    pub(super) fn new(owner: Arc<ClaimOwner>, leases: Option<Vec<LeaseRef>>) -> Self {
        Self { owner, leases }
    }

    /// Whether this lease is over.
    pub fn contains(&self, held: &Held) -> bool {
        self.has(&held.owner, &held.lease)
    }

    /// Whether this lease is over.
    pub fn contains_lease(&self, lease: &Lease) -> bool {
        self.has(&lease.owner, &lease.lease)
    }

    fn has(&self, owner: &Arc<ClaimOwner>, lease: &LeaseRef) -> bool {
        let among = |leases: &Vec<LeaseRef>| leases.binary_search(lease).is_ok();
        Arc::ptr_eq(&self.owner, owner) && self.leases.as_ref().is_none_or(among)
    }
}

impl Held {
    /// The event's topic.
    pub fn topic(&self) -> &TopicName {
        &self.owner.topic
    }
}

impl Leased for Held {
    fn owner(&self) -> &Arc<ClaimOwner> {
        &self.owner
    }

    fn lease(&self) -> LeaseRef {
        self.lease
    }

    fn published_ms(&self) -> i64 {
        self.published_ms
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.owner.metrics.add_ws_inflight(-1);
    }
}

impl Subscription {
    /// Announces that the caller will keep leases, so that it gets a [`super::SubscriptionItem::Over`]
    /// when a lease is over.
    pub fn keep(&self) {
        self.membership.inbox.keep();
    }

    /// Keeps a lease. While it is kept, it counts in the metric `ws_inflight`.
    pub fn hold(&self, lease: &Lease) -> Held {
        lease.owner.metrics.add_ws_inflight(1);
        Held { lease: lease.lease, owner: Arc::clone(&lease.owner), published_ms: published_ms(lease) }
    }

    /// Acks events without waiting until the ack is durable, which it soon is. It need not wait for room in
    /// the mailbox, because the number of these messages is bounded by the number of leases.
    pub fn ack_held(&self, held: &[Held]) {
        self.membership.observe_latency(held);
        let member = self.membership.member;
        for (owner, leases) in by_owner(held) {
            // The leases of an owner that has ended are over. If its end ends the subscription, the next
            // `take` returns the error.
            let _ = owner.mailbox.send_now(OwnerMessage::Tell(Input::Ack { member, leases, reply: None }));
        }
    }

    /// Acks events. The acks are sent before this returns; the future is done when they are durable.
    pub fn ack_held_durably(
        &self,
        held: &[Held],
    ) -> impl Future<Output = Result<Settled, BusError>> + Send + use<> {
        self.membership.observe_latency(held);
        Arc::clone(&self.membership).answers(self.membership.ask_now(held, OwnerRequest::Ack))
    }

    /// Gives events back: they are delivered again after `delay_ms`, or after the server's backoff. The nacks
    /// are sent before this returns; the future waits for the answers. The dead letter has the reason, and the name of
    /// the one who gave it, if this was the last attempt; an empty reason is none.
    pub fn nack_held(
        &self,
        held: &[Held],
        delay_ms: Option<u64>,
        (reason, by): (&str, Option<&str>),
    ) -> impl Future<Output = Result<Settled, BusError>> + Send + use<> {
        let given_back = self.membership.given_back(delay_ms, reason, by);
        let asked = self
            .membership
            .ask_now(held, |member, leases| OwnerRequest::Nack(member, leases, given_back.clone()));
        Arc::clone(&self.membership).answers(asked)
    }

    /// Keeps events for `by_ms` more, at least 1000, or for another ack timeout.
    pub fn extend_held(
        &self,
        held: &[&Held],
        by_ms: Option<u64>,
    ) -> impl Future<Output = Result<Settled, BusError>> + Send + use<> {
        let asked =
            self.membership.ask_now(held, |member, leases| OwnerRequest::Extend(member, leases, by_ms));
        Arc::clone(&self.membership).answers(asked)
    }
}

/// The time from which the latency of the event is measured: its header `t0`, or else the event's time.
fn published_ms(lease: &Lease) -> i64 {
    let meta = lease.event.meta();
    // Events nearly never have this header, and this check finds that without decoding.
    if !meta.windows(2).any(|pair| pair == b"t0") {
        return lease.event.ts;
    }
    let header = || EventMeta::decode(meta).ok()?.headers?.get("t0")?.parse().ok();
    header().unwrap_or(lease.event.ts)
}
