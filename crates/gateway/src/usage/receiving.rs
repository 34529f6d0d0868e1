//! The bytes of requests and messages that are not answered yet, whole or not. All clients share one budget, and each token has a part of it, so that neither many clients nor
//! one can fill the memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use promethean_bus::{Bus, series};
use promethean_model::IgnorePoison;
use thiserror::Error;

use crate::auth::{Identity, IdentityKind};
use crate::refusal::Refusal;

/// Tokens that are remembered. Above it, a token without bytes on their way is forgotten.
const TOKENS_MAX: usize = 10_000;
/// When to try again.
const RETRY_AFTER_MS: u64 = 1_000;

/// The budget of all clients.
#[derive(Debug)]
pub(crate) struct Receiving {
    bytes_max: usize,
    /// `None` if all clients have one identity, so that a bound would be for all of them together.
    token_bytes_max: Option<usize>,
    used: AtomicUsize,
    tokens: Mutex<HashMap<TokenKey, Arc<AtomicUsize>>>,
    series: Arc<ReceivingSeries>,
}

type TokenKey = (IdentityKind, Arc<str>);

series! {
    /// Bytes of all clients.
    struct ReceivingSeries [] {
        bytes: Gauge = "receiving_bytes", "Bytes of requests and messages that are not whole or not answered.";
        refused: Counter =
            "receiving_refused_total", "Requests and messages refused because too many bytes were being received.";
    }
}

/// The bytes of one request or one connection; given back when this is dropped.
#[derive(Debug)]
pub(crate) struct ReceivedBytes {
    receiving: Arc<Receiving>,
    /// The bytes of the token; `None` before it is known.
    token: Option<Arc<AtomicUsize>>,
    bytes: usize,
}

/// A budget that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum UsedUp {
    /// The budget of all clients, of so many bytes.
    #[error("the server is receiving {0} bytes, as many as it may")]
    Server(usize),
    /// The part of the token, of so many bytes.
    #[error("the token is sending {0} bytes, as many as it may at a time")]
    Token(usize),
}

impl Receiving {
    pub(crate) fn new(bus: &Bus, bytes_max: usize, token_bytes_max: Option<usize>) -> Arc<Self> {
        let series = bus.metrics().registry().table(1).series(&[]);
        let (used, tokens) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { bytes_max, token_bytes_max, used, tokens, series })
    }

    /// The bytes of a new request or connection: none yet, of a client that is not known yet.
    pub(crate) fn begin(self: &Arc<Self>) -> ReceivedBytes {
        ReceivedBytes { receiving: Arc::clone(self), token: None, bytes: 0 }
    }

    fn token(&self, identity: &Identity) -> Arc<AtomicUsize> {
        let mut tokens = self.tokens.lock().ignore_poison();
        let key = (identity.kind, Arc::clone(&identity.name));
        if !tokens.contains_key(&key) && tokens.len() >= TOKENS_MAX {
            tokens.retain(|_, used| Arc::strong_count(used) > 1);
        }
        Arc::clone(tokens.entry(key).or_default())
    }

    fn changed(&self, before: usize, after: usize) {
        let number = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        self.series.bytes.add(number(after) - number(before));
    }
}

impl ReceivedBytes {
    /// The bytes count for this client from now on.
    pub(crate) fn belong_to(&mut self, identity: &Identity) {
        if self.receiving.token_bytes_max.is_none() {
            return;
        }
        let token = self.receiving.token(identity);
        token.fetch_add(self.bytes, Ordering::Relaxed);
        if let Some(before) = self.token.replace(token) {
            before.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }

    /// There are so many bytes now, if the budgets have room for them. Fewer than before always fit.
    pub(crate) fn fit(&mut self, bytes: usize) -> Result<(), UsedUp> {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            self.set(bytes);
            return Ok(());
        };
        let Self { receiving, token, .. } = &*self;
        let add = |used: &AtomicUsize, max: usize| {
            let fits = |used: usize| used.checked_add(more).filter(|all| *all <= max);
            used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
        };
        let refused = |used_up: UsedUp| {
            receiving.series.refused.inc();
            Err(used_up)
        };
        if !add(&receiving.used, receiving.bytes_max) {
            return refused(UsedUp::Server(receiving.bytes_max));
        }
        if let Some((token, max)) = token.as_ref().zip(receiving.token_bytes_max)
            && !add(token, max)
        {
            receiving.used.fetch_sub(more, Ordering::Relaxed);
            return refused(UsedUp::Token(max));
        }
        receiving.changed(self.bytes, bytes);
        self.bytes = bytes;
        Ok(())
    }

    /// There are so many bytes now, even beyond the budgets: they are here already.
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        for used in [Some(&self.receiving.used), self.token.as_deref()].into_iter().flatten() {
            match bytes.checked_sub(self.bytes) {
                Some(more) => used.fetch_add(more, Ordering::Relaxed),
                None => used.fetch_sub(self.bytes - bytes, Ordering::Relaxed),
            };
        }
        self.receiving.changed(self.bytes, bytes);
        self.bytes = bytes;
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a client that has frames without an answer may send more: half of both budgets is kept for
    /// messages that have begun.
    pub(crate) fn has_room(&self) -> bool {
        let below = |used: &AtomicUsize, max: usize| used.load(Ordering::Relaxed) < max / 2;
        let token = self.token.as_ref().zip(self.receiving.token_bytes_max);
        below(&self.receiving.used, self.receiving.bytes_max)
            && token.is_none_or(|(token, max)| below(token, max))
    }
}

impl Drop for ReceivedBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl UsedUp {
    /// The reason to close a WebSocket with.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Server(_) => "the server is receiving as much as it may; try again soon",
            Self::Token(_) => "the token is sending as much at a time as it may; try again soon",
        }
    }
}

impl From<UsedUp> for Refusal {
    fn from(used_up: UsedUp) -> Self {
        let (status, code, message) = match used_up {
            UsedUp::Server(max) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                format!(
                    "the server is receiving as much as it may (`limits.receiving_bytes`, {max} bytes); try again in \
                     {RETRY_AFTER_MS} ms"
                ),
            ),
            UsedUp::Token(max) => (
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limited",
                format!(
                    "the token is sending as much at a time as it may (`limits.token_receiving_bytes`, {max} bytes); send less \
                     at once, or try again in {RETRY_AFTER_MS} ms"
                ),
            ),
        };
        Self::new(status, code, message).retry_after(RETRY_AFTER_MS)
    }
}

#[cfg(test)]
mod tests {
    use promethean_bus::metrics::Registry;

    use super::*;
    use crate::auth::Grants;

    fn receiving(token_bytes_max: Option<usize>) -> Arc<Receiving> {
        let series = Registry::default().table(1).series(&[]);
        let (used, tokens) = (AtomicUsize::new(0), Mutex::default());
        Arc::new(Receiving { bytes_max: 100, token_bytes_max, used, tokens, series })
    }

    fn of(receiving: &Arc<Receiving>, name: &str) -> ReceivedBytes {
        let mut bytes = receiving.begin();
        bytes.belong_to(&Identity::new(name, Grants::everything()));
        bytes
    }

    #[test]
    fn a_token_takes_its_part_and_all_together_the_budget() {
        let receiving = receiving(Some(60));
        let (mut one, mut two) = (of(&receiving, "a"), of(&receiving, "a"));
        assert_eq!((one.fit(40), two.fit(20)), (Ok(()), Ok(())));
        assert_eq!((two.fit(21), two.has_room()), (Err(UsedUp::Token(60)), false));
        let mut other = of(&receiving, "b");
        assert_eq!((other.fit(41), other.fit(40)), (Err(UsedUp::Server(100)), Ok(())));
        assert!(!other.has_room());
        // What was refused is not counted, and what is given back is free again.
        drop(one);
        assert_eq!((receiving.used.load(Ordering::Relaxed), receiving.series.bytes.get()), (60, 60));
        assert_eq!((two.fit(60), other.fit(0)), (Ok(()), Ok(())));
        two.set(29);
        assert!(two.has_room());
        two.set(30);
        assert!(!two.has_room() && other.has_room());
        drop((two, other));
        assert_eq!((receiving.used.load(Ordering::Relaxed), receiving.series.bytes.get()), (0, 0));
        let tokens = receiving.tokens.lock().unwrap();
        assert!(tokens.values().all(|used| used.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn bytes_follow_their_client() {
        let receiving = receiving(Some(60));
        let mut bytes = of(&receiving, "a");
        bytes.fit(50).unwrap();
        bytes.belong_to(&Identity::new("b", Grants::everything()));
        assert_eq!(of(&receiving, "a").fit(50), Ok(()));
        assert_eq!(of(&receiving, "b").fit(11), Err(UsedUp::Token(60)));
        // Bytes that are here already are counted beyond the budget.
        bytes.set(150);
        assert_eq!(receiving.begin().fit(1), Err(UsedUp::Server(100)));
    }

    #[test]
    fn without_tokens_only_the_whole_budget_counts() {
        let receiving = receiving(None);
        assert_eq!(of(&receiving, "anyone").fit(100), Ok(()));
        assert!(receiving.tokens.lock().unwrap().is_empty());
    }
}
