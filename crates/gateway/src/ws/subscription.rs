//! One subscription of a connection.

use std::collections::HashMap;
use std::sync::Arc;

use promethean_bus::{Held, Lease, Over, Subscription};
use promethean_delivery::Subject;
use promethean_model::wire::Corr;
use promethean_model::wire::server::{self, Context as Delivery};
use promethean_model::{EventId, EventMeta};
use tracing::error;

use super::fetch::Fetch;
use super::output::Output;
use crate::events::view;
use crate::usage::accounts::SubscriptionPermits;

/// What a client asked for when it subscribed.
pub(super) struct ClientOptions {
    /// The topic or pattern, as the client wrote it.
    pub(super) topic: Box<str>,
    pub(super) group: Box<str>,
    /// Whether deliveries are written as `EVENTS`.
    pub(super) batch: bool,
    /// Whether the client acks.
    pub(super) manual_ack: bool,
    pub(super) ack_timeout_ms: u64,
    pub(super) max_in_flight: usize,
    /// Whether events are delivered only for a FETCH.
    pub(super) pulls: bool,
}

/// One subscription of a connection, with the deliveries that the client has not settled.
pub(super) struct ClientSubscription {
    /// Its number among the subscriptions of the connection.
    pub(super) number: u64,
    pub(super) options: ClientOptions,
    pub(super) subscription: Arc<Subscription>,
    /// The FETCH that waits for events.
    pub(super) fetch: Option<Fetch>,
    /// Counts it for the account of the token; `None` if the token has no quota.
    pub(super) permits: Option<SubscriptionPermits>,
    /// Acks that ask for no reply, until they are flushed together.
    pub(super) acked: Vec<Held>,
    /// The deliveries that are not settled, by event.
    held: HashMap<EventId, Held>,
    /// More such deliveries: topics of one pattern can have events with the same id.
    more_held: Vec<(EventId, Held)>,
}

impl ClientSubscription {
    pub(super) fn new(
        subscription: Subscription,
        options: ClientOptions,
        permits: Option<SubscriptionPermits>,
    ) -> Self {
        subscription.keep();
        Self {
            number: 0,
            options,
            subscription: Arc::new(subscription),
            fetch: None,
            permits,
            acked: Vec::new(),
            held: HashMap::new(),
            more_held: Vec::new(),
        }
    }

    pub(super) fn is_pattern(&self) -> bool {
        matches!(self.subscription.subject(), Subject::Pattern(_))
    }

    /// How many deliveries are not settled.
    pub(super) fn held(&self) -> usize {
        self.held.len() + self.more_held.len()
    }

    /// Sends the collected acks to the owner of the group.
    pub(super) fn flush_acks(&mut self) {
        if !self.acked.is_empty() {
            self.subscription.ack_held(&self.acked);
            self.acked.clear();
        }
    }

    /// Writes deliveries, and holds them if the client acks.
    pub(super) fn deliver(&mut self, leases: &[Lease], out: &mut Output) {
        if self.options.batch {
            return self.deliver_together(leases, None, out);
        }
        let ClientOptions { topic, group, .. } = &self.options;
        for lease in leases {
            let (meta, context) = (meta(lease), self.context(lease));
            out.add(|buffer| server::event(buffer, topic, group, &view(&lease.event, &meta), context));
        }
        self.hold_all(leases);
    }

    /// As [`ClientSubscription::deliver`], in one frame.
    pub(super) fn deliver_together(&mut self, leases: &[Lease], corr: Corr<'_>, out: &mut Output) {
        let ClientOptions { topic, group, .. } = &self.options;
        let metas: Vec<EventMeta> = leases.iter().map(meta).collect();
        let each =
            leases.iter().zip(&metas).map(|(lease, meta)| (view(&lease.event, meta), self.context(lease)));
        out.add(|buffer| server::events(buffer, corr, topic, group, each));
        self.hold_all(leases);
    }

    fn context(&self, lease: &Lease) -> Delivery {
        Delivery { attempt: lease.attempt, ack_deadline_ms: self.options.ack_timeout_ms }
    }

    fn hold_all(&mut self, leases: &[Lease]) {
        if self.options.manual_ack {
            leases.iter().for_each(|lease| self.hold(lease));
        }
    }

    fn hold(&mut self, lease: &Lease) {
        let (id, held) = (lease.event.id, self.subscription.hold(lease));
        if let Some(other) = self.held.insert(id, held)
            && self.held.get(&id).is_some_and(|held| held.topic() != other.topic())
        {
            self.more_held.push((id, other));
        }
    }

    /// Takes out the delivery of an event. `topic` is the subscribed text or the topic of the event.
    pub(super) fn take(&mut self, topic: &str, id: &EventId) -> Option<Held> {
        let fits = |held: &Held| topic == &*self.options.topic || held.topic().as_str() == topic;
        if self.held.get(id).is_some_and(fits) {
            let held = self.held.remove(id);
            if let Some(at) = self.more_held.iter().position(|(other, _)| other == id) {
                let (id, other) = self.more_held.swap_remove(at);
                self.held.insert(id, other);
            }
            return held;
        }
        let at = self.more_held.iter().position(|(other, held)| other == id && fits(held))?;
        Some(self.more_held.swap_remove(at).1)
    }

    /// Finds the delivery that [`ClientSubscription::take`] would take out.
    pub(super) fn get(&self, topic: &str, id: &EventId) -> Option<&Held> {
        let fits = |held: &&Held| topic == &*self.options.topic || held.topic().as_str() == topic;
        let more =
            || self.more_held.iter().find(|(other, held)| other == id && fits(&held)).map(|(_, held)| held);
        self.held.get(id).filter(fits).or_else(more)
    }

    /// Forgets deliveries whose leases are over.
    pub(super) fn forget(&mut self, over: &Over) {
        if let Some(fetch) = &mut self.fetch {
            fetch.forget(over);
        }
        self.held.retain(|_, held| !over.contains(held));
        self.more_held.retain(|(_, held)| !over.contains(held));
    }
}

fn meta(lease: &Lease) -> EventMeta {
    match lease.event.meta() {
        [] => EventMeta::default(),
        // The meta was checked when it was written, and its checksum when it was read: only a newer release
        // can have written a form that this release cannot read.
        meta => EventMeta::decode(meta).unwrap_or_else(|error| {
            let event = &lease.event;
            error!(topic = %event.topic, offset = %event.offset, %error, "an event is delivered without its headers");
            EventMeta::default()
        }),
    }
}
