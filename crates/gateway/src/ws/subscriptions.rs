//! What a client is subscribed to, and what it holds.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::stream::{SelectAll, Stream};
use promethean_bus::{Backlog, BusError, Held, Lease, Over, Subscription, SubscriptionItem};
use promethean_delivery::Subject;
use promethean_model::wire::Corr;
use promethean_model::wire::server::{self, Context as Delivery};
use promethean_model::{EventId, EventMeta, TopicName};
use tracing::error;

use super::fetching::Fetch;
use super::frames::Frames;
use crate::events::view;
use crate::usage::accounts::{Account, SubscriptionPlaces};

/// Leases of one look at a subscription, so that others get their turn.
const TAKEN_MAX: usize = 256;

/// Bytes of events that wait for one connection to write them.
const BACKLOG_BYTES_MAX: usize = 8 << 20;

/// One subscription of a connection.
pub(super) struct Subscribed {
    /// Its number among those of the connection.
    pub(super) number: u64,
    /// As the client wrote it.
    pub(super) topic: Box<str>,
    pub(super) group: Box<str>,
    pub(super) subscription: Arc<Subscription>,
    /// Whether deliveries come as `EVENTS`.
    pub(super) batch: bool,
    /// Whether the client acks.
    pub(super) manual_ack: bool,
    pub(super) ack_timeout_ms: u64,
    pub(super) max_in_flight: usize,
    /// Whether events are given only for a `FETCH`.
    pub(super) pulls: bool,
    /// The `FETCH` that is under way.
    pub(super) fetch: Option<Fetch>,
    /// Its places among the subscriptions of the token, if those are limited.
    pub(super) places: Option<SubscriptionPlaces>,
    /// Acks that nobody waits for, to be handed over together.
    pub(super) acked: Vec<Held>,
    /// What was delivered and not settled.
    held: HashMap<EventId, Held>,
    /// As `held`: topics of a pattern can have events with the same id.
    more_held: Vec<(EventId, Held)>,
}

impl Subscribed {
    pub(super) fn new(topic: &str, group: &str, subscription: Subscription) -> Self {
        subscription.keep();
        Self {
            number: 0,
            topic: topic.into(),
            group: group.into(),
            subscription: Arc::new(subscription),
            batch: false,
            manual_ack: true,
            ack_timeout_ms: 0,
            max_in_flight: 0,
            pulls: false,
            fetch: None,
            places: None,
            acked: Vec::new(),
            held: HashMap::new(),
            more_held: Vec::new(),
        }
    }

    fn is_pattern(&self) -> bool {
        matches!(self.subscription.subject(), Subject::Pattern(_))
    }

    /// How much is delivered and not settled.
    pub(super) fn held(&self) -> usize {
        self.held.len() + self.more_held.len()
    }

    /// Hands over acks that nobody waits for.
    pub(super) fn hand_over_acks(&mut self) {
        if !self.acked.is_empty() {
            self.subscription.ack_held(&self.acked);
            self.acked.clear();
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

    /// What is held of an event, by its id and, if `topic` is not the subscribed text, its topic. It is held no longer.
    fn take(&mut self, topic: &str, id: &EventId) -> Option<Held> {
        let fits = |held: &Held| topic == &*self.topic || held.topic().as_str() == topic;
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

    /// As [`Subscribed::take`], and it is held on.
    fn get(&self, topic: &str, id: &EventId) -> Option<&Held> {
        let fits = |held: &&Held| topic == &*self.topic || held.topic().as_str() == topic;
        let more =
            || self.more_held.iter().find(|(other, held)| other == id && fits(&held)).map(|(_, held)| held);
        self.held.get(id).filter(fits).or_else(more)
    }

    fn forget(&mut self, over: &Over) {
        if let Some(fetch) = &mut self.fetch {
            fetch.forget(over);
        }
        self.held.retain(|_, held| !over.contains(held));
        self.more_held.retain(|(_, held)| !over.contains(held));
    }

    /// Writes deliveries, and holds them if the client is to ack.
    pub(super) fn deliver(&mut self, leases: &[Lease], out: &mut Frames) {
        if self.batch {
            return self.deliver_together(leases, None, out);
        }
        for lease in leases {
            let (meta, context) = (meta(lease), self.context(lease));
            out.add(|buffer| {
                server::event(buffer, &self.topic, &self.group, &view(&lease.event, &meta), context)
            });
        }
        self.hold_all(leases);
    }

    /// As [`Subscribed::deliver`], in one frame.
    pub(super) fn deliver_together(&mut self, leases: &[Lease], corr: Corr<'_>, out: &mut Frames) {
        let metas: Vec<EventMeta> = leases.iter().map(meta).collect();
        let each =
            leases.iter().zip(&metas).map(|(lease, meta)| (view(&lease.event, meta), self.context(lease)));
        out.add(|buffer| server::events(buffer, corr, &self.topic, &self.group, each));
        self.hold_all(leases);
    }

    fn context(&self, lease: &Lease) -> Delivery {
        Delivery { attempt: lease.attempt, ack_deadline_ms: self.ack_timeout_ms }
    }

    fn hold_all(&mut self, leases: &[Lease]) {
        if self.manual_ack {
            leases.iter().for_each(|lease| self.hold(lease));
        }
    }
}

fn meta(lease: &Lease) -> EventMeta {
    match lease.event.meta() {
        [] => EventMeta::default(),
        // It was checked when it was written, and its bytes when they were read: only a newer release could have written
        // what this one cannot read.
        meta => EventMeta::decode(meta).unwrap_or_else(|error| {
            let event = &lease.event;
            error!(topic = %event.topic, offset = %event.offset, %error, "an event is delivered without its headers");
            EventMeta::default()
        }),
    }
}

/// All subscriptions of a connection.
pub(super) struct Subscriptions {
    /// What may wait for all of them.
    pub(super) backlog: Backlog,
    /// By a number that is never used again.
    slots: HashMap<u64, Subscribed>,
    /// How many of them are patterns.
    patterns: usize,
    /// By topic and group, joined.
    names: HashMap<String, u64>,
    feeds: SelectAll<Feed>,
    next: u64,
    /// The name looked up last, so that its memory is used again.
    name: String,
}

/// What came for a subscription.
pub(super) enum Came {
    Leases(u64, Vec<Lease>),
    Rebalance(u64, u64, Vec<u32>, Vec<u32>),
    Nothing,
    /// It is over, and removed.
    Ended(Box<Subscribed>, BusError),
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self {
            backlog: Backlog::new(BACKLOG_BYTES_MAX),
            slots: HashMap::new(),
            patterns: 0,
            names: HashMap::new(),
            feeds: SelectAll::new(),
            next: 0,
            name: String::new(),
        }
    }
}

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The number of the subscription with exactly this text.
    pub(super) fn number(&mut self, topic: &str, group: &str) -> Option<u64> {
        self.name.clear();
        self.name.extend([topic, "\0", group]);
        self.names.get(&self.name).copied()
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Subscribed> {
        self.slots.get_mut(&number)
    }

    /// The subscriptions that events of this topic and group may have come over, the likeliest first: patterns overlap,
    /// and whoever acks by the event's topic need not know which of them delivered it.
    pub(super) fn find_all(&mut self, topic: &str, group: &str) -> Vec<u64> {
        let exact = self.number(topic, group);
        let mut all: Vec<u64> = exact.into_iter().collect();
        // Most connections have none, and this is asked for every ack.
        if self.patterns > 0
            && let Ok(topic) = topic.parse::<TopicName>()
        {
            let matches = |sub: &Subscribed| {
                *sub.group == *group && sub.is_pattern() && sub.subscription.subject().matches(&topic)
            };
            let others = self.slots.values().filter(|sub| Some(sub.number) != exact && matches(sub));
            all.extend(others.map(|sub| sub.number));
        }
        all
    }

    /// What one of these holds of an event.
    pub(super) fn holder(&self, among: &[u64], topic: &str, id: &EventId) -> Option<(&Subscribed, &Held)> {
        let mut subs = among.iter().filter_map(|number| self.slots.get(number));
        subs.find_map(|sub| Some((sub, sub.get(topic, id)?)))
    }

    /// As [`Subscriptions::holder`], and it is held no longer; the number of the subscription.
    pub(super) fn take(&mut self, among: &[u64], topic: &str, id: &EventId) -> Option<(u64, Held)> {
        among.iter().find_map(|number| Some((*number, self.slots.get_mut(number)?.take(topic, id)?)))
    }

    pub(super) fn add(&mut self, mut subscribed: Subscribed) {
        let number = self.next;
        self.next += 1;
        subscribed.number = number;
        self.patterns += usize::from(subscribed.is_pattern());
        self.feeds.push(Feed { number, subscription: Some(Arc::clone(&subscribed.subscription)) });
        self.names.insert(format!("{}\0{}", subscribed.topic, subscribed.group), number);
        self.slots.insert(number, subscribed);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Subscribed> {
        let removed = self.slots.remove(&number)?;
        self.patterns -= usize::from(removed.is_pattern());
        self.names.remove(&format!("{}\0{}", removed.topic, removed.group));
        Some(removed)
    }

    /// Removes those that are not wanted.
    pub(super) fn remove_unless(&mut self, wanted: impl Fn(&Subscribed) -> bool) -> Vec<Subscribed> {
        let unwanted: Vec<u64> =
            self.slots.iter().filter(|(_, sub)| !wanted(sub)).map(|(number, _)| *number).collect();
        unwanted.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    /// They count as those of another token, or of one without limits.
    pub(super) fn move_to(&mut self, account: Option<&Arc<Account>>) {
        for sub in self.slots.values_mut() {
            sub.places = account.map(|account| account.old_subscription(sub.max_in_flight));
        }
    }

    /// The connection is lost: what had reached the client counts as failed.
    pub(super) fn lose(&mut self) {
        self.slots.values().for_each(|sub| sub.subscription.lost());
    }

    /// The server goes: what the client has did not fail.
    pub(super) fn release(&mut self) {
        self.slots.values().for_each(|sub| sub.subscription.unsubscribe());
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Came> {
        let Some((number, given)) = ready!(Pin::new(&mut self.feeds).poll_next(cx)) else {
            return Poll::Pending;
        };
        Poll::Ready(self.given(number, given))
    }

    /// What it means that this was given to a subscription.
    pub(super) fn given(&mut self, number: u64, given: Result<SubscriptionItem, BusError>) -> Came {
        match given {
            Ok(SubscriptionItem::Leases(leases)) => Came::Leases(number, leases),
            Ok(SubscriptionItem::Rebalance { epoch, change }) => {
                Came::Rebalance(number, epoch, change.assigned, change.revoked)
            }
            Ok(SubscriptionItem::Over(over)) => {
                if let Some(sub) = self.slots.get_mut(&number) {
                    sub.forget(&over);
                }
                Came::Nothing
            }
            Err(error) => match self.remove(number) {
                Some(removed) => Came::Ended(Box::new(removed), error),
                None => Came::Nothing,
            },
        }
    }
}

/// What comes for one subscription, until it ends.
struct Feed {
    number: u64,
    subscription: Option<Arc<Subscription>>,
}

impl Stream for Feed {
    type Item = (u64, Result<SubscriptionItem, BusError>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(subscription) = &self.subscription else { return Poll::Ready(None) };
        let given = ready!(subscription.poll_take(cx, TAKEN_MAX));
        if given.is_err() {
            self.subscription = None;
        }
        Poll::Ready(Some((self.number, given)))
    }
}
