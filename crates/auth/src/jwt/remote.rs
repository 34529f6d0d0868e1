//! Keys that are fetched from a URL and cached.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use promethean_model::{Clock, IgnorePoison};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use xxhash_rust::xxh3::xxh3_128;

use super::fetch::Fetcher;
use super::key::{Algorithm, KeySet};
use super::token::Header;
use super::{JwksUrl, JwtError, jwks};
use crate::AuthError;

/// Shortest time between two fetches while there are keys, so that tokens with invented key names cause no
/// storm.
const FETCH_EVERY_MS: u64 = 60_000;
/// Shortest time between two fetches while there are no keys and no token can be checked.
const FIRST_FETCH_EVERY_MS: u64 = 5_000;

/// A JWK set at a URL, with the keys of the last fetch.
#[derive(Debug)]
pub(super) struct RemoteKeys {
    fetcher: Fetcher,
    refresh_ms: u64,
    max_age_ms: u64,
    clock: Arc<dyn Clock>,
    kept: RwLock<KeptKeys>,
    /// How often a fetch returned another set than the fetch before.
    changes: AtomicU64,
    /// Held while keys are fetched.
    fetching: Arc<Mutex<()>>,
    /// A fetch goes on if the client whose token started it goes away: otherwise such clients could stop new
    /// keys from ever arriving. A fetch ends by itself within its time limit.
    tasks: TaskTracker,
}

/// The result of the last fetches, in monotonic time.
#[derive(Debug, Clone, Default)]
struct KeptKeys {
    keys: Option<(Arc<KeySet>, u64)>,
    /// The hash of the body that the keys were read from.
    body: Option<u128>,
    tried_ms: Option<u64>,
}

impl RemoteKeys {
    pub(super) fn new(url: JwksUrl, clock: Arc<dyn Clock>) -> Result<Self, JwtError> {
        let (refresh_ms, max_age_ms) = (url.refresh_ms, url.max_age_ms);
        let (kept, fetching, tasks) = (RwLock::default(), Arc::default(), TaskTracker::new());
        let (fetcher, changes) = (Fetcher::new(url)?, AtomicU64::new(0));
        Ok(Self { fetcher, refresh_ms, max_age_ms, clock, kept, changes, fetching, tasks })
    }

    /// How often a fetch returned another set than the fetch before.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Fetches keys that are due even if no new token comes: connected clients may have tokens whose key was
    /// removed. Does nothing before the first token.
    pub(super) async fn keep_fresh(self: &Arc<Self>) {
        if self.kept().keys.is_none() || !self.is_due() || !self.may_try() {
            return;
        }
        // Another fetch may be under way.
        if let Ok(guard) = Arc::clone(&self.fetching).try_lock_owned() {
            self.fetch_holding(guard).await;
        }
    }

    /// The keys to check a token with. They are fetched again if the token names an unknown key.
    pub(super) async fn keys_for(self: &Arc<Self>, header: &Header) -> Result<Arc<KeySet>, AuthError> {
        // Anybody can fetch the set, so it holds no secrets that an HS256 token could be signed with.
        if header.algorithm == Algorithm::Hs256 {
            return Err(AuthError::BadToken("algorithm not accepted"));
        }
        let known = self.usable().is_some_and(|(keys, _)| keys.has(header));
        if !known || self.is_due() {
            self.refresh(header, known).await;
        }
        self.usable().map(|(keys, _)| keys).ok_or(AuthError::Unavailable)
    }

    /// The keys if they are not too old, and their age.
    fn usable(&self) -> Option<(Arc<KeySet>, u64)> {
        let (keys, fetched_ms) = self.kept().keys?;
        let age_ms = self.clock.monotonic_ms().saturating_sub(fetched_ms);
        (age_ms <= self.max_age_ms).then_some((keys, age_ms))
    }

    fn is_due(&self) -> bool {
        self.usable().is_none_or(|(_, age_ms)| age_ms >= self.refresh_ms)
    }

    /// Fetches the keys, unless a fetch was tried recently. A token whose key is known does not wait for
    /// another fetch.
    async fn refresh(self: &Arc<Self>, header: &Header, known: bool) {
        let guard = if known {
            if !self.may_try() {
                return;
            }
            match Arc::clone(&self.fetching).try_lock_owned() {
                Ok(guard) => guard,
                Err(_) => return,
            }
        } else {
            // Waits even if no new fetch may start: the fetch under way may bring the key.
            Arc::clone(&self.fetching).lock_owned().await
        };
        // Another caller may have fetched the keys while this one waited.
        let found = self.usable().is_some_and(|(keys, _)| keys.has(header));
        if !self.may_try() || (found && !known) {
            return;
        }
        self.fetch_holding(guard).await;
    }

    async fn fetch_holding(self: &Arc<Self>, guard: OwnedMutexGuard<()>) {
        self.change(|kept| kept.tried_ms = Some(self.clock.monotonic_ms()));
        let this = Arc::clone(self);
        let fetch = self.tasks.spawn(async move {
            this.fetch().await;
            drop(guard);
        });
        if fetch.await.is_err() {
            warn!("the task that fetches the JWK set panicked");
        }
    }

    async fn fetch(&self) {
        let fetched = match self.fetcher.fetch().await {
            Ok(body) => {
                let keys = jwks::parse(&body, jwks::JwksOrigin::Url).map_err(|error| error.to_string());
                keys.map(|keys| (keys, xxh3_128(&body)))
            }
            Err(error) => Err(error.to_string()),
        };
        match fetched {
            Ok((keys, body)) => {
                info!(host = self.fetcher.host(), "fetched the JWK set");
                let now_ms = self.clock.monotonic_ms();
                let was = self.kept().body;
                self.change(|kept| (kept.keys, kept.body) = (Some((Arc::new(keys), now_ms)), Some(body)));
                if was.is_some_and(|was| was != body) {
                    self.changes.fetch_add(1, Ordering::Release);
                }
            }
            Err(error) => {
                warn!(host = self.fetcher.host(), %error, "cannot fetch the JWK set; the current keys stay");
            }
        }
    }

    fn may_try(&self) -> bool {
        let every_ms = if self.usable().is_some() { FETCH_EVERY_MS } else { FIRST_FETCH_EVERY_MS };
        let now_ms = self.clock.monotonic_ms();
        self.kept().tried_ms.is_none_or(|tried_ms| now_ms.saturating_sub(tried_ms) >= every_ms)
    }

    // Each change is one assignment, so a panicked thread leaves whole data behind.
    fn kept(&self) -> KeptKeys {
        self.kept.read().ignore_poison().clone()
    }

    fn change(&self, change: impl FnOnce(&mut KeptKeys)) {
        change(&mut self.kept.write().ignore_poison());
    }
}
