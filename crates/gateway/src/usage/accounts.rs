//! What each identity uses.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use promethean_bus::limits::{Bucket, Rate, Refused};
use promethean_model::{IgnorePoison, TopicName};

use crate::auth::{Identity, IdentityKind, Quota};
use crate::refusal::Refusal;

/// From this many accounts on, the unused ones are dropped now and then.
const ACCOUNTS_MAX: usize = 10_000;

const RATE_LIMITED: &str = "rate_limited";

/// Bucket tokens that a new topic or group costs: at one token per second, an hour pays for one.
const NEW_TOKENS: u32 = 3600;
/// Topics that an account remembers as paid for.
const PAID_TOPICS: usize = 1000;
const HOUR_MS: u64 = 3_600_000;

/// The accounts of all identities that have a quota.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// The quota of an identity whose token has none.
    default: Quota,
    open: Mutex<OpenAccounts>,
}

/// The accounts that are kept.
#[derive(Debug)]
struct OpenAccounts {
    /// The key includes the quota, so a changed quota starts a new account.
    by_key: HashMap<Key, Arc<Account>>,
    /// How many accounts there are when the unused ones are dropped next. Twice as many as were left last time, so that
    /// looking at all of them costs each new account the same, however many are in use.
    sweep_at: usize,
}

type Key = (IdentityKind, Arc<str>, Quota);

/// What one identity uses.
#[derive(Debug)]
pub(crate) struct Account {
    quota: Quota,
    connections: AtomicU32,
    subscriptions: AtomicU32,
    in_flight: AtomicU32,
    events: Option<Bucket>,
    bytes: Option<Bucket>,
    topics: Option<Bucket>,
    groups: Option<Bucket>,
    /// Topics that are paid for and may have no event yet.
    paid: Mutex<HashSet<TopicName>>,
    /// When the last topic or group was paid for, monotonic; 0 if none was.
    paid_at_ms: AtomicU64,
}

/// A use of a quota (a connection, a subscription, or its events in flight) that counts until this is
/// dropped.
#[derive(Debug)]
pub(crate) struct QuotaPermit {
    account: Arc<Account>,
    of: fn(&Account) -> &AtomicU32,
    count: u32,
}

/// The permits of one subscription.
#[derive(Debug)]
pub(crate) struct SubscriptionPermits {
    one: QuotaPermit,
    _in_flight: QuotaPermit,
}

impl Accounts {
    pub(crate) fn new(default: Quota) -> Self {
        let open = OpenAccounts { by_key: HashMap::new(), sweep_at: ACCOUNTS_MAX };
        Self { default, open: Mutex::new(open) }
    }

    /// The account of an identity; `None` if its quota limits nothing.
    pub(crate) fn of(&self, identity: &Identity, now_ms: u64) -> Option<Arc<Account>> {
        let quota = identity.quota.or(&self.default);
        if quota.is_unlimited() {
            return None;
        }
        let mut open = self.open.lock().ignore_poison();
        let key = (identity.kind, Arc::clone(&identity.name), quota);
        if !open.by_key.contains_key(&key) && open.by_key.len() >= open.sweep_at {
            open.drop_unused(now_ms);
        }
        Some(Arc::clone(open.by_key.entry(key).or_insert_with(|| Arc::new(Account::new(quota, now_ms)))))
    }
}

impl OpenAccounts {
    fn drop_unused(&mut self, now_ms: u64) {
        self.by_key.retain(|_, account| Arc::strong_count(account) > 1 || account.owes_topics(now_ms));
        self.sweep_at = self.by_key.len().saturating_mul(2).max(ACCOUNTS_MAX);
    }
}

impl Account {
    fn new(quota: Quota, now_ms: u64) -> Self {
        let bucket =
            |per_second: NonZeroU32| Bucket::new(Rate::new(per_second.get(), per_second.get()), now_ms);
        let hourly = |per_hour: NonZeroU32| {
            let tokens = per_hour.get().min(u32::MAX / NEW_TOKENS);
            Bucket::new(Rate::new(tokens, tokens * NEW_TOKENS), now_ms)
        };
        Self {
            quota,
            connections: AtomicU32::new(0),
            subscriptions: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            events: quota.publish_per_second.map(bucket),
            bytes: quota.publish_bytes_per_second.map(bucket),
            topics: quota.new_topics_per_hour.map(hourly),
            groups: quota.new_groups_per_hour.map(hourly),
            paid: Mutex::default(),
            paid_at_ms: AtomicU64::new(0),
        }
    }

    /// Counts a new connection, if the quota has room.
    pub(crate) fn connection(self: &Arc<Self>) -> Result<QuotaPermit, Refusal> {
        self.place(|account| &account.connections, 1, self.quota.max_connections).map_err(|max| {
            let message = format!(
                "the token has {max} connections and requests under way, as many as it may; end one, or use another token"
            );
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", message)
        })
    }

    /// Counts a new subscription with so many events in flight, if the quota has room.
    pub(crate) fn subscription(self: &Arc<Self>, in_flight: usize) -> Result<SubscriptionPermits, Refusal> {
        let one = self.place(|account| &account.subscriptions, 1, self.quota.max_subscriptions);
        let one = one.map_err(|max| {
            let message =
                format!("the token has {max} subscriptions, as many as it may; use patterns, or end some");
            Refusal::new(StatusCode::CONFLICT, "too_many_subscriptions", message)
        })?;
        let in_flight = self.place(|account| &account.in_flight, count(in_flight), self.quota.max_in_flight);
        let in_flight = in_flight.map_err(|max| {
            let message = format!(
                "the token's subscriptions may have {max} events in flight together; ask for a smaller \
                 `maxInFlight`, or for less with others"
            );
            Refusal::new(StatusCode::CONFLICT, "too_many_in_flight", message)
        })?;
        Ok(SubscriptionPermits { one, _in_flight: in_flight })
    }

    /// Counts a connection that is already open, even beyond the quota.
    pub(crate) fn open_connection(self: &Arc<Self>) -> QuotaPermit {
        self.taken(|account| &account.connections, 1)
    }

    /// Counts a subscription that is already open, even beyond the quota.
    pub(crate) fn open_subscription(self: &Arc<Self>, in_flight: usize) -> SubscriptionPermits {
        SubscriptionPermits {
            one: self.taken(|account| &account.subscriptions, 1),
            _in_flight: self.taken(|account| &account.in_flight, count(in_flight)),
        }
    }

    fn taken(self: &Arc<Self>, of: fn(&Account) -> &AtomicU32, count: u32) -> QuotaPermit {
        of(self).fetch_add(count, Ordering::Relaxed);
        QuotaPermit { account: Arc::clone(self), of, count }
    }

    fn place(
        self: &Arc<Self>,
        of: fn(&Account) -> &AtomicU32,
        count: u32,
        max: Option<NonZeroU32>,
    ) -> Result<QuotaPermit, NonZeroU32> {
        let Some(max) = max else { return Ok(self.taken(of, count)) };
        let more = |taken: u32| taken.checked_add(count).filter(|all| *all <= max.get());
        match of(self).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(QuotaPermit { account: Arc::clone(self), of, count }),
            Err(_) => Err(max),
        }
    }

    /// Pays for the new ones of these topics, before events are published to them or they are created. A
    /// topic is new if it has no events and was not paid for before. `has_room` is called with the new topics, some of
    /// which may exist without events.
    pub(crate) fn begin_topics<'t>(
        &self,
        topics: impl Iterator<Item = &'t TopicName>,
        has_events: impl Fn(&TopicName) -> bool,
        has_room: impl FnOnce(&[&TopicName]) -> Result<(), Refusal>,
        now_ms: u64,
    ) -> Result<(), Refusal> {
        let mut new: Vec<&TopicName> = topics.filter(|topic| !has_events(topic)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let mut paid = self.paid.lock().ignore_poison();
        new.retain(|topic| !paid.contains(*topic));
        if new.is_empty() {
            return Ok(());
        }
        new.sort_unstable();
        new.dedup();
        has_room(&new)?;
        if let Some(bucket) = &self.topics {
            let tokens = count(new.len()).saturating_mul(NEW_TOKENS);
            bucket.take(tokens, now_ms).map_err(|refused| too_many_new("topics", refused))?;
        }
        self.paid_at_ms.store(now_ms.max(1), Ordering::Relaxed);
        if paid.len() >= PAID_TOPICS {
            // Most have events by now. A topic that has none is paid for again.
            paid.clear();
        }
        paid.extend(new.into_iter().cloned());
        Ok(())
    }

    /// Pays for a new group.
    pub(crate) fn begin_group(&self, now_ms: u64) -> Result<(), Refusal> {
        let Some(bucket) = &self.groups else { return Ok(()) };
        bucket.take(NEW_TOKENS, now_ms).map_err(|refused| too_many_new("groups", refused))?;
        self.paid_at_ms.store(now_ms.max(1), Ordering::Relaxed);
        Ok(())
    }

    /// Forgets that a topic was paid for, because it does not exist any more.
    pub(crate) fn forget_topic(&self, topic: &TopicName) {
        self.paid.lock().ignore_poison().remove(topic);
    }

    /// Whether dropping this account would give the identity new topics or groups for free.
    fn owes_topics(&self, now_ms: u64) -> bool {
        let paid_at_ms = self.paid_at_ms.load(Ordering::Relaxed);
        paid_at_ms > 0 && now_ms.saturating_sub(paid_at_ms) < HOUR_MS
    }

    /// Pays for so many events, sent in so many bytes: for all of them or none.
    pub(crate) fn publish(&self, events: usize, bytes: usize, now_ms: u64) -> Result<(), Refusal> {
        if let Some(bucket) = &self.events {
            bucket
                .take(count(events), now_ms)
                .map_err(|refused| too_fast("events", "publish_per_second", refused))?;
        }
        let Some(bucket) = &self.bytes else { return Ok(()) };
        bucket.take(count(bytes), now_ms).map_err(|refused| {
            if let Some(events_bucket) = &self.events {
                events_bucket.put_back(count(events));
            }
            too_fast("bytes", "publish_bytes_per_second", refused)
        })
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn too_many_new(what: &str, refused: Refused) -> Refusal {
    match refused {
        Refused::RetryAfterMs(ms) => {
            let message = format!(
                "the token began as many {what} as it may in an hour (`new_{what}_per_hour`); use one that exists, or \
                 try again in {ms} ms"
            );
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, RATE_LIMITED, message).retry_after(ms)
        }
        Refused::OverBurst { asked, burst } => {
            let message = format!(
                "{} new {what} at once, but the token may begin {} in an hour (`new_{what}_per_hour`); use fewer",
                asked / NEW_TOKENS,
                burst / NEW_TOKENS
            );
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, RATE_LIMITED, message)
        }
    }
}

fn too_fast(what: &str, setting: &str, refused: Refused) -> Refusal {
    match refused {
        Refused::RetryAfterMs(ms) => {
            let message = format!(
                "too many {what} of the token (`{setting}` of its limits) in too short a time; try again in {ms} ms"
            );
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, RATE_LIMITED, message).retry_after(ms)
        }
        Refused::OverBurst { asked, burst } => {
            let message = format!(
                "{asked} {what} at once, but the token may publish {burst} in a second (`{setting}` of its limits); send less at \
                 once"
            );
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, RATE_LIMITED, message)
        }
    }
}

impl QuotaPermit {
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl SubscriptionPermits {
    pub(crate) fn account(&self) -> &Arc<Account> {
        self.one.account()
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        (self.of)(&self.account).fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::auth::Grants;

    #[test]
    fn accounts_in_use_are_looked_at_rarely_and_unused_ones_are_dropped() {
        const USED: usize = 8 * ACCOUNTS_MAX;
        let accounts = Accounts::new(Quota::of_tokens());
        let of = |name: usize, now_ms| {
            accounts.of(&Identity::new(name.to_string(), Grants::default()), now_ms).unwrap()
        };
        let state = || {
            let open = accounts.open.lock().unwrap();
            (open.by_key.len(), open.sweep_at)
        };
        // All accounts are looked at whenever there are `sweep_at` of them and one more comes.
        let looked_at = Cell::new(0);
        let watched = |name| {
            let (len, sweep_at) = state();
            looked_at.set(looked_at.get() + if len >= sweep_at { len } else { 0 });
            of(name, 0)
        };
        let kept: Vec<_> = (0..USED).map(watched).collect();
        assert_eq!(state().0, USED);
        assert!(looked_at.get() <= 2 * USED, "{looked_at:?} accounts looked at for {USED} new ones");
        drop(kept);
        // None of them began a topic, so none is needed any more.
        (USED..3 * USED).for_each(|name| drop(watched(name)));
        assert!(state().0 <= 2 * USED, "{} accounts are kept", state().0);
        assert!(looked_at.get() <= 2 * 3 * USED, "{looked_at:?}");
        // An account that began a topic is kept for an hour.
        let owing = of(0, 0);
        owing.begin_group(1).unwrap();
        drop(owing);
        accounts.open.lock().unwrap().drop_unused(HOUR_MS);
        assert_eq!(state().0, 1);
        accounts.open.lock().unwrap().drop_unused(HOUR_MS + 1);
        assert_eq!(state().0, 0);
    }
}
