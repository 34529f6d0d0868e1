//! What each identity uses.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use promethean_bus::limits::{Bucket, Rate, Refused};

use crate::auth::{Identity, Quota};
use crate::refusal::Refusal;

/// Accounts beyond which those that nobody uses are dropped.
const ACCOUNTS_MAX: usize = 10_000;

const RATE_LIMITED: &str = "rate_limited";

/// All accounts there are. Identities without limits have none.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// Where an identity says nothing itself.
    default: Quota,
    /// With the quota: one that is changed begins anew.
    accounts: Mutex<HashMap<Key, Arc<Account>>>,
}

type Key = (Arc<str>, Quota);

/// What one identity uses.
#[derive(Debug)]
pub(crate) struct Account {
    quota: Quota,
    connections: AtomicU32,
    subscriptions: AtomicU32,
    events: Option<Bucket>,
    bytes: Option<Bucket>,
}

/// A connection or subscription that counts until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    account: Arc<Account>,
    of: fn(&Account) -> &AtomicU32,
}

impl Accounts {
    pub(crate) fn new(default: Quota) -> Self {
        Self { default, accounts: Mutex::default() }
    }

    /// The account of an identity that is limited in some way.
    pub(crate) fn of(&self, identity: &Identity, now_ms: u64) -> Option<Arc<Account>> {
        let quota = identity.quota.or(&self.default);
        if quota.is_unlimited() {
            return None;
        }
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Arc::clone(&identity.name), quota);
        if !accounts.contains_key(&key) && accounts.len() >= ACCOUNTS_MAX {
            accounts.retain(|_, account| Arc::strong_count(account) > 1);
        }
        Some(Arc::clone(accounts.entry(key).or_insert_with(|| Arc::new(Account::new(quota, now_ms)))))
    }
}

impl Account {
    fn new(quota: Quota, now_ms: u64) -> Self {
        let bucket =
            |per_second: NonZeroU32| Bucket::new(Rate::new(per_second.get(), per_second.get()), now_ms);
        Self {
            quota,
            connections: AtomicU32::new(0),
            subscriptions: AtomicU32::new(0),
            events: quota.publish_per_second.map(bucket),
            bytes: quota.publish_bytes_per_second.map(bucket),
        }
    }

    /// One more connection.
    pub(crate) fn connection(self: &Arc<Self>) -> Result<Place, Refusal> {
        self.place(|account| &account.connections, self.quota.max_connections).map_err(|max| {
            let message = format!(
                "the token has {max} connections, as many as it may; close one, or use another token"
            );
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", message)
        })
    }

    /// One more subscription.
    pub(crate) fn subscription(self: &Arc<Self>) -> Result<Place, Refusal> {
        self.place(|account| &account.subscriptions, self.quota.max_subscriptions).map_err(|max| {
            let message =
                format!("the token has {max} subscriptions, as many as it may; use patterns, or end some");
            Refusal::new(StatusCode::CONFLICT, "too_many_subscriptions", message)
        })
    }

    /// A connection that is there already.
    pub(crate) fn old_connection(self: &Arc<Self>) -> Place {
        self.taken(|account| &account.connections)
    }

    /// A subscription that is there already.
    pub(crate) fn old_subscription(self: &Arc<Self>) -> Place {
        self.taken(|account| &account.subscriptions)
    }

    fn taken(self: &Arc<Self>, of: fn(&Account) -> &AtomicU32) -> Place {
        of(self).fetch_add(1, Ordering::Relaxed);
        Place { account: Arc::clone(self), of }
    }

    fn place(
        self: &Arc<Self>,
        of: fn(&Account) -> &AtomicU32,
        max: Option<NonZeroU32>,
    ) -> Result<Place, NonZeroU32> {
        let Some(max) = max else { return Ok(self.taken(of)) };
        let one_more = |count: u32| (count < max.get()).then_some(count + 1);
        match of(self).fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more) {
            Ok(_) => Ok(Place { account: Arc::clone(self), of }),
            Err(_) => Err(max),
        }
    }

    /// Events are to be published, which came in so many bytes. All of them or none.
    pub(crate) fn publish(&self, events: usize, bytes: usize, now_ms: u64) -> Result<(), Refusal> {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        if let Some(bucket) = &self.events {
            bucket.take(count(events), now_ms).map_err(|refused| too_fast("events", refused))?;
        }
        let Some(bucket) = &self.bytes else { return Ok(()) };
        bucket.take(count(bytes), now_ms).map_err(|refused| {
            if let Some(events_bucket) = &self.events {
                events_bucket.put_back(count(events));
            }
            too_fast("bytes", refused)
        })
    }
}

fn too_fast(what: &str, refused: Refused) -> Refusal {
    match refused {
        Refused::RetryAfterMs(ms) => {
            let message = format!("too many {what} of the token in too short a time; try again in {ms} ms");
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, RATE_LIMITED, message).retry_after(ms)
        }
        Refused::OverBurst { asked, burst } => {
            let message = format!(
                "{asked} {what} at once, but the token may publish {burst} in a second; send less at once"
            );
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, RATE_LIMITED, message)
        }
    }
}

impl Place {
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        (self.of)(&self.account).fetch_sub(1, Ordering::Relaxed);
    }
}
