//! SUBSCRIBE, UNSUBSCRIBE, PAUSE and RESUME: all subscriptions of a connection.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::StatusCode;
use futures_util::stream::{SelectAll, Stream};
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Backlog, BusError, Held, Lease, Subscription, SubscriptionItem};
use promethean_delivery::Subject;
use promethean_model::wire::client::FrameTarget;
use promethean_model::wire::{SubscribeOpts, server};
use promethean_model::{EventId, GroupName, TopicName};

use super::auth::ClientAuth;
use super::connection::{PendingOp, PendingOutcome};
use super::fetch::Fetch;
use super::output::Output;
use super::subscribe_options::subscribe_request;
use super::subscription::{ClientOptions, ClientSubscription};
use crate::app::App;
use crate::auth::{Access, Identity};
use crate::metrics::UsageLimit;
use crate::refusal::Refusal;
use crate::usage::accounts::Account;

/// Leases taken from a subscription at a time, so that the others get their turn.
const TAKEN_MAX: usize = 256;
/// Bytes of events that wait until one connection writes them.
const BACKLOG_BYTES_MAX: usize = 8 << 20;

/// All subscriptions of a connection.
pub(super) struct Subscriptions {
    /// Bounds the bytes that wait for all of them together.
    backlog: Backlog,
    /// By a number that is never used again.
    by_number: HashMap<u64, ClientSubscription>,
    /// How many of them are patterns.
    patterns: usize,
    /// Numbers by topic and group, joined.
    names: HashMap<String, u64>,
    feeds: SelectAll<Feed>,
    next: u64,
    /// The name looked up last, so that its memory is used again.
    name: String,
    /// Leases whose frames are queued and not written yet. A lease begins when its frame is written.
    unwritten: Vec<(u64, Vec<Lease>)>,
}

impl Default for Subscriptions {
    fn default() -> Self {
        Self {
            backlog: Backlog::new(BACKLOG_BYTES_MAX),
            by_number: HashMap::new(),
            patterns: 0,
            names: HashMap::new(),
            feeds: SelectAll::new(),
            next: 0,
            name: String::new(),
            unwritten: Vec::new(),
        }
    }
}

/// Takes a group that does not exist yet from the quota of new groups.
async fn pay_for_new_group(app: &App, account: &Account, request: &Subscribe) -> Result<(), Refusal> {
    if app.bus.has_group(&request.group, &request.subject).await? {
        return Ok(());
    }
    let begun = account.begin_group(app.clock.monotonic_ms());
    begun.inspect_err(|_| app.metrics.over_quota(UsageLimit::Groups))
}

/// The ops.
impl Subscriptions {
    /// Starts to subscribe; [`Subscriptions::add`] takes the result.
    pub(super) fn subscribe(
        &mut self,
        auth: &ClientAuth,
        (topic, group): (&str, &str),
        batch: bool,
        opts: &SubscribeOpts<'_>,
    ) -> Result<PendingOp, Refusal> {
        let subject: Subject = topic.parse()?;
        let group_name: GroupName = group.parse().map_err(BusError::from)?;
        if !auth.may(&Access::Subscribe(&subject, Some(&group_name))) {
            return Err(Refusal::forbidden_in(&subject, &group_name));
        }
        if self.number(topic, group).is_some() {
            let message = format!("`{topic}` in group `{group}` is subscribed to already; unsubscribe first");
            return Err(Refusal::new(StatusCode::CONFLICT, "already_subscribed", message));
        }
        let max = auth.app.options.subscriptions_max;
        if self.by_number.len() >= max {
            let message =
                format!("this connection has {max} subscriptions; use patterns or another connection");
            return Err(Refusal::new(StatusCode::CONFLICT, "too_many_subscriptions", message));
        }
        let mut request = subscribe_request(subject, group_name, opts, &auth.app.options, &self.backlog)?;
        request.member.shown_as = auth.name().map(Into::into);
        request.validate()?;
        let options = ClientOptions {
            topic: topic.into(),
            group: group.into(),
            batch,
            manual_ack: request.member.manual_ack,
            ack_timeout_ms: request.member.ack_timeout_ms,
            max_in_flight: request.member.max_in_flight,
            pulls: request.member.pull,
        };
        let permits = auth.account().map(|account| account.subscription(options.max_in_flight)).transpose();
        let permits = permits.inspect_err(|_| auth.app.metrics.over_quota(UsageLimit::Subscriptions))?;
        let (app, account) = (auth.app.clone(), auth.account().cloned());
        Ok(Box::pin(async move {
            if let Some(account) = account
                && let Err(refusal) = pay_for_new_group(&app, &account, &request).await
            {
                return PendingOutcome::Subscribed(Err(refusal));
            }
            let subscribed = app.bus.subscribe(request).await;
            let subscribed = subscribed
                .map(|subscription| Box::new(ClientSubscription::new(subscription, options, permits)));
            PendingOutcome::Subscribed(subscribed.map_err(Refusal::from))
        }))
    }

    /// Adds a new subscription, unless the client may no longer have it: its identity can have changed since
    /// it asked.
    pub(super) fn add(&mut self, auth: &ClientAuth, mut sub: ClientSubscription) -> Result<(), Refusal> {
        let subscription = &sub.subscription;
        if !auth.may(&Access::Subscribe(subscription.subject(), Some(subscription.group()))) {
            subscription.unsubscribe();
            return Err(Refusal::forbidden_in(subscription.subject(), subscription.group()));
        }
        let counted_for = sub.permits.as_ref().map(|permits| Arc::as_ptr(permits.account()));
        if counted_for != auth.account().map(Arc::as_ptr) {
            let max_in_flight = sub.options.max_in_flight;
            sub.permits = auth.account().map(|account| account.open_subscription(max_in_flight));
        }
        sub.number = self.next;
        self.next += 1;
        self.patterns += usize::from(sub.is_pattern());
        self.feeds.push(Feed { number: sub.number, subscription: Some(Arc::clone(&sub.subscription)) });
        self.names.insert(name(&sub), sub.number);
        self.by_number.insert(sub.number, sub);
        Ok(())
    }

    /// Ends a subscription at the client's wish.
    pub(super) fn unsubscribe(&mut self, number: u64, out: &mut Output) {
        if let Some(mut removed) = self.remove(number) {
            removed.subscription.unsubscribe();
            refuse_fetch(&mut removed, "not_subscribed", out);
        }
    }

    /// Starts to pause or resume a subscription.
    pub(super) fn pause(&mut self, target: &FrameTarget<'_>, paused: bool) -> Result<PendingOp, Refusal> {
        let subscription = Arc::clone(&self.find(target)?.subscription);
        Ok(Box::pin(async move {
            let result = if paused { subscription.pause().await } else { subscription.resume().await };
            PendingOutcome::Done(result.map_err(Refusal::from))
        }))
    }

    /// Ends subscriptions that this identity may not have.
    pub(super) fn end_forbidden(&mut self, identity: &Identity, out: &mut Output) {
        let forbidden = |sub: &&ClientSubscription| {
            let subscription = &sub.subscription;
            !identity.may(&Access::Subscribe(subscription.subject(), Some(subscription.group())))
        };
        let numbers: Vec<u64> = self.by_number.values().filter(forbidden).map(|sub| sub.number).collect();
        for mut removed in numbers.into_iter().filter_map(|number| self.remove(number)).collect::<Vec<_>>() {
            removed.subscription.unsubscribe();
            refuse_fetch(&mut removed, "forbidden", out);
            let ClientOptions { topic, group, .. } = &removed.options;
            let subscription = &removed.subscription;
            let refusal = Refusal::forbidden_in(subscription.subject(), subscription.group());
            out.refuse(None, &refusal.with("topic", &**topic).with("group", &**group));
        }
    }

    /// Counts every subscription for this account, even beyond its quota; `None` counts for no account.
    pub(super) fn count_for(&mut self, account: Option<&Arc<Account>>) {
        for sub in self.by_number.values_mut() {
            sub.permits = account.map(|account| account.open_subscription(sub.options.max_in_flight));
        }
    }

    /// The connection is lost: each event that reached the client counts as a failed attempt.
    pub(super) fn lose(&mut self) {
        self.by_number.values().for_each(|sub| sub.subscription.lost());
    }

    /// The server stops: no event that the client has counts as failed.
    pub(super) fn release(&mut self) {
        self.by_number.values().for_each(|sub| sub.subscription.unsubscribe());
    }
}

/// Finding subscriptions and the events that they hold.
impl Subscriptions {
    /// The number of the subscription with exactly this topic and group.
    fn number(&mut self, topic: &str, group: &str) -> Option<u64> {
        self.name.clear();
        self.name.extend([topic, "\0", group]);
        self.names.get(&self.name).copied()
    }

    /// How many subscriptions the connection has.
    pub(super) fn count(&self) -> usize {
        self.by_number.len()
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut ClientSubscription> {
        self.by_number.get_mut(&number)
    }

    /// The subscription with exactly this topic and group.
    pub(super) fn find(&mut self, target: &FrameTarget<'_>) -> Result<&mut ClientSubscription, Refusal> {
        let number = self.number(&target.topic, &target.group);
        number.and_then(|number| self.by_number.get_mut(&number)).ok_or_else(|| not_subscribed(target))
    }

    /// The subscriptions that can have delivered events of this topic and group, the likeliest first.
    /// Patterns overlap, and a client that acks by the topic of the event need not know which subscription
    /// delivered it.
    pub(super) fn find_all(&mut self, target: &FrameTarget<'_>) -> Result<Vec<u64>, Refusal> {
        let FrameTarget { topic, group } = target;
        let exact = self.number(topic, group);
        let mut all: Vec<u64> = exact.into_iter().collect();
        // Most connections have no patterns, and this runs for every ack.
        if self.patterns > 0
            && let Ok(topic) = topic.parse::<TopicName>()
        {
            let matches = |sub: &ClientSubscription| {
                *sub.options.group == **group
                    && sub.is_pattern()
                    && sub.subscription.subject().matches(&topic)
            };
            let others = self.by_number.values().filter(|sub| Some(sub.number) != exact && matches(sub));
            all.extend(others.map(|sub| sub.number));
        }
        if all.is_empty() { Err(not_subscribed(target)) } else { Ok(all) }
    }

    /// Finds the delivery of an event in these subscriptions.
    pub(super) fn holder(
        &self,
        among: &[u64],
        topic: &str,
        id: &EventId,
    ) -> Option<(&ClientSubscription, &Held)> {
        let mut subs = among.iter().filter_map(|number| self.by_number.get(number));
        subs.find_map(|sub| Some((sub, sub.get(topic, id)?)))
    }

    /// Takes the delivery of an event out of the one of these subscriptions that holds it.
    pub(super) fn take(&mut self, among: &[u64], topic: &str, id: &EventId) -> Option<(u64, Held)> {
        among.iter().find_map(|number| Some((*number, self.by_number.get_mut(number)?.take(topic, id)?)))
    }

    fn remove(&mut self, number: u64) -> Option<ClientSubscription> {
        let removed = self.by_number.remove(&number)?;
        self.patterns -= usize::from(removed.is_pattern());
        self.names.remove(&name(&removed));
        Some(removed)
    }
}

/// Deliveries.
impl Subscriptions {
    /// Writes the next item of some subscription, if there is one.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, out: &mut Output) -> Poll<()> {
        let Some((number, given)) = ready!(Pin::new(&mut self.feeds).poll_next(cx)) else {
            return Poll::Pending;
        };
        self.write(number, given, out);
        Poll::Ready(())
    }

    /// Writes one item of a subscription. An error ends the subscription.
    fn write(&mut self, number: u64, given: Result<SubscriptionItem, BusError>, out: &mut Output) {
        let Some(sub) = self.by_number.get_mut(&number) else { return };
        match given {
            Ok(SubscriptionItem::Leases(leases)) => {
                if let Some(fetch) = &mut sub.fetch {
                    return fetch.put(leases);
                }
                sub.deliver(&leases, out);
                self.unwritten.push((number, leases));
            }
            Ok(SubscriptionItem::Rebalance { epoch, change }) => {
                let ClientOptions { topic, group, .. } = &sub.options;
                out.add(|buffer| {
                    server::rebalance(buffer, topic, group, epoch, &change.assigned, &change.revoked);
                });
            }
            Ok(SubscriptionItem::Over(over)) => sub.forget(&over),
            Err(error) => {
                let Some(mut ended) = self.remove(number) else { return };
                refuse_fetch(&mut ended, error.code(), out);
                let ClientOptions { topic, group, .. } = &ended.options;
                let mut refusal = Refusal::from(error);
                refusal.message =
                    format!("the subscription to `{topic}` in `{group}` ended: {}", refusal.message);
                out.refuse(None, &refusal.with("topic", &**topic).with("group", &**group));
            }
        }
    }

    /// Answers the FETCH of a subscription with the events that have arrived.
    pub(super) fn answer_fetch(&mut self, number: u64, out: &mut Output) {
        while let Some(sub) = self.by_number.get_mut(&number)
            && let Some(Ok(given)) = sub.subscription.try_take(usize::MAX)
        {
            self.write(number, Ok(given), out);
        }
        let Some(sub) = self.by_number.get_mut(&number) else { return };
        let Some((corr, leases)) = sub.fetch.take().map(Fetch::finish) else { return };
        sub.deliver_together(&leases, corr.as_deref(), out);
        self.unwritten.push((number, leases));
    }

    /// Everything queued is written: the leases of the deliveries among it begin.
    pub(super) fn written(&mut self) {
        for (number, leases) in self.unwritten.drain(..) {
            if let Some(sub) = self.by_number.get_mut(&number) {
                sub.subscription.written(&leases);
            }
        }
    }
}

/// Answers the FETCH of a subscription that is gone.
fn refuse_fetch(sub: &mut ClientSubscription, code: &'static str, out: &mut Output) {
    if let Some(fetch) = sub.fetch.take() {
        fetch.refuse(code, out);
    }
}

fn name(sub: &ClientSubscription) -> String {
    format!("{}\0{}", sub.options.topic, sub.options.group)
}

fn not_subscribed(target: &FrameTarget<'_>) -> Refusal {
    let FrameTarget { topic, group, .. } = target;
    let message = format!("`{topic}` in group `{group}` is not subscribed to; SUBSCRIBE first");
    Refusal::new(StatusCode::CONFLICT, "not_subscribed", message)
}

/// The items of one subscription, until it ends.
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
