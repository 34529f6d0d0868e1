//! Leases that are kept without their events, for those who pass events on and hear of them later by their ids.

use std::sync::Arc;

use promethean_delivery::Input;
use promethean_model::{EventMeta, TopicName};

use super::{Lease, LeaseRef, Leased, Settled, Subscription, by_owner};
use crate::error::BusError;
use crate::groups::{ClaimOwner, OwnerMessage, OwnerRequest};

/// A lease without its event, of a client on a socket.
#[derive(Debug)]
pub struct Held {
    lease: LeaseRef,
    owner: Arc<ClaimOwner>,
    published_ms: i64,
}

/// Leases of one topic that are over: what is done with them changes nothing.
#[derive(Debug)]
pub struct Over {
    owner: Arc<ClaimOwner>,
    /// Ascending; `None`: all.
    leases: Option<Vec<LeaseRef>>,
}

impl Over {
    pub(super) fn new(owner: Arc<ClaimOwner>, leases: Option<Vec<LeaseRef>>) -> Self {
        Self { owner, leases }
    }

    /// Whether this is one of them.
    pub fn contains(&self, held: &Held) -> bool {
        self.has(&held.owner, &held.lease)
    }

    /// Whether this is one of them.
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
    /// Says that leases will be kept, so that [`super::SubscriptionItem::Over`] tells which of them are over.
    pub fn keep(&self) {
        self.link.inbox.keep();
    }

    /// Keeps a lease. It counts as in flight to a socket while it is kept.
    pub fn hold(&self, lease: &Lease) -> Held {
        lease.owner.metrics.add_ws_inflight(1);
        Held { lease: lease.lease, owner: Arc::clone(&lease.owner), published_ms: published_ms(lease) }
    }

    /// Finishes events; that becomes durable soon. Never waits: there are no more such letters than leases.
    pub fn ack_held(&self, held: &[Held]) {
        self.link.observe_latency(held);
        let member = self.link.member;
        for (owner, leases) in by_owner(held) {
            // Leases of an owner that has ended are over; if that ends the subscription, the next look tells.
            let _ = owner.mailbox.send_now(OwnerMessage::Tell(Input::Ack { member, leases, reply: None }));
        }
    }

    /// Finishes events, which is told to the group now; done when that is durable.
    pub fn ack_held_durably(
        &self,
        held: &[Held],
    ) -> impl Future<Output = Result<Settled, BusError>> + Send + use<> {
        self.link.observe_latency(held);
        Arc::clone(&self.link).answers(self.link.ask_now(held, OwnerRequest::Ack))
    }

    /// Gives events back, which is told to the group now: they are delivered again after `delay_ms`, or after the
    /// server's backoff.
    pub fn nack_held(
        &self,
        held: &[Held],
        delay_ms: Option<u64>,
    ) -> impl Future<Output = Result<Settled, BusError>> + Send + use<> {
        let asked = self.link.ask_now(held, |member, leases| OwnerRequest::Nack(member, leases, delay_ms));
        Arc::clone(&self.link).answers(asked)
    }

    /// Keeps events for `by_ms` more, at least 1000, or for another ack timeout.
    pub fn extend_held(
        &self,
        held: &[&Held],
        by_ms: Option<u64>,
    ) -> impl Future<Output = Result<Settled, BusError>> + Send + use<> {
        let asked = self.link.ask_now(held, |member, leases| OwnerRequest::Extend(member, leases, by_ms));
        Arc::clone(&self.link).answers(asked)
    }
}

/// When the event was published as far as latency goes: what its header `t0` says, or its time.
fn published_ms(lease: &Lease) -> i64 {
    let meta = lease.event.meta();
    // Nearly always it has none, which is told without decoding.
    if !meta.windows(2).any(|pair| pair == b"t0") {
        return lease.event.ts;
    }
    let header = || EventMeta::decode(meta).ok()?.headers?.get("t0")?.parse().ok();
    header().unwrap_or(lease.event.ts)
}
