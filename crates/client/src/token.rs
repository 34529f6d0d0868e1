//! The token of a client and the time at which it must be renewed.

use std::error::Error;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use promethean_model::{Clock, SystemClock};
use serde::Deserialize;
use tokio::time::Instant;

use crate::error::ClientError;

/// A token is renewed this long before its end, or after half of its life if that is later.
const RENEW_BEFORE_MS: i64 = 90_000;
const RENEW_AFTER_MS_MIN: i64 = 500;

/// Any error of a function for tokens.
pub type BoxError = Box<dyn Error + Send + Sync>;

type Provider = dyn Fn() -> BoxFuture<'static, Result<String, BoxError>> + Send + Sync;

/// The source of a client's token: none, a fixed text, or a function that is called for every connection, before
/// the token expires, and when the server no longer accepts it.
#[derive(Clone, Default)]
pub enum TokenSource {
    /// No token.
    #[default]
    None,
    /// A token that stays the same.
    Fixed(Arc<str>),
    /// A function that returns a token.
    Provider(Arc<Provider>),
}

impl TokenSource {
    /// A function that returns a token, for example a fresh one from a secret store.
    pub fn provider<F, Fut, E>(provide: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self::Provider(Arc::new(move || {
            let token = provide();
            Box::pin(async move { token.await.map_err(Into::into) })
        }))
    }

    /// Whether another call may give another token.
    pub(crate) fn is_renewable(&self) -> bool {
        matches!(self, Self::Provider(_))
    }

    pub(crate) async fn read(&self) -> Result<Option<String>, ClientError> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(token) => Ok(Some(token.to_string())),
            Self::Provider(provide) => {
                let failed = |cause: &dyn fmt::Display| {
                    let message = format!("the function for the token failed: {cause}; it is called again");
                    ClientError::new("auth_unavailable", message)
                };
                // A panic of the function must not end the task of the connection.
                match AssertUnwindSafe(async { provide().await }).catch_unwind().await {
                    Ok(token) => token.map(Some).map_err(|cause| failed(&cause)),
                    Err(_) => Err(failed(&"it panicked")),
                }
            }
        }
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Fixed(_) => "Fixed",
            Self::Provider(_) => "Provider",
        })
    }
}

impl From<&str> for TokenSource {
    fn from(token: &str) -> Self {
        Self::Fixed(token.into())
    }
}

impl From<String> for TokenSource {
    fn from(token: String) -> Self {
        Self::Fixed(token.into())
    }
}

impl From<Option<String>> for TokenSource {
    fn from(token: Option<String>) -> Self {
        token.map_or(Self::None, Self::from)
    }
}

/// A token that is kept for several requests.
pub(crate) struct KeptToken {
    source: TokenSource,
    /// Held while the function runs, so that it runs once for requests that come together.
    kept: tokio::sync::Mutex<Option<TokenInUse>>,
}

struct TokenInUse {
    token: Option<String>,
    /// When it must be renewed, if that is known.
    renew_at: Option<Instant>,
}

impl KeptToken {
    pub(crate) fn new(source: TokenSource) -> Self {
        Self { source, kept: tokio::sync::Mutex::new(None) }
    }

    /// The kept token, or a new one.
    pub(crate) async fn read(&self) -> Result<Option<String>, ClientError> {
        if !self.source.is_renewable() {
            return self.source.read().await;
        }
        let mut kept = self.kept.lock().await;
        if let Some(TokenInUse { token, renew_at }) = &*kept
            && renew_at.is_none_or(|at| Instant::now() < at)
        {
            return Ok(token.clone());
        }
        let token = self.source.read().await?;
        *kept = Some(TokenInUse::new(token.clone()));
        Ok(token)
    }

    /// Keeps a token that the server has accepted on the connection.
    pub(crate) fn keep(&self, token: Option<String>) {
        // A request that asks the function now keeps its own token; the connection does not wait for it.
        if let Ok(mut kept) = self.kept.try_lock() {
            *kept = Some(TokenInUse::new(token));
        }
    }

    /// Forgets a token that the server has refused. Returns whether another one is worth a try.
    pub(crate) async fn refuse(&self, refused: Option<&str>) -> bool {
        let mut kept = self.kept.lock().await;
        let is_kept = kept.as_ref().is_some_and(|kept| kept.token.as_deref() == refused);
        if is_kept {
            *kept = None;
        }
        is_kept
    }
}

impl TokenInUse {
    fn new(token: Option<String>) -> Self {
        let after = token.as_deref().and_then(|token| renew_after(token, SystemClock::new().wall_ms()));
        // A time that is too far away to be written is no limit.
        Self { token, renew_at: after.and_then(|after| Instant::now().checked_add(after)) }
    }
}

/// How long to wait before a token must be renewed, if the token is a JWT with an end.
pub(crate) fn renew_after(token: &str, now_ms: i64) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Claims {
        exp: f64,
    }
    let body = token.split('.').nth(1)?;
    let body = BASE64URL_NOPAD.decode(body.trim_end_matches('=').as_bytes()).ok()?;
    // A token that is not a JWT ends when the server says so.
    let Claims { exp } = serde_json::from_slice(&body).ok()?;
    let left_ms = ((exp * 1000.0) as i64).saturating_sub(now_ms);
    let after = RENEW_AFTER_MS_MIN.max(left_ms / 2).max(left_ms.saturating_sub(RENEW_BEFORE_MS));
    u64::try_from(after).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jwt(claims: &str) -> String {
        format!("e30.{}.sig", BASE64URL_NOPAD.encode(claims.as_bytes()))
    }

    #[test]
    fn tokens_with_an_end_are_renewed_before_it() {
        let after = |claims: &str| renew_after(&jwt(claims), 1_000_000).map(|after| after.as_millis());
        assert_eq!(after(r#"{"exp":4600}"#), Some(3_510_000), "an hour: 90 s before its end");
        assert_eq!(after(r#"{"exp":1100}"#), Some(50_000), "100 s: after half of its life");
        assert_eq!(after(r#"{"exp":900}"#), Some(500), "over: soon");
        assert_eq!(after(r#"{"sub":"a"}"#), None);
        assert_eq!(renew_after("secret", 0), None);
        assert_eq!(renew_after("a.b.c", 0), None);
    }

    #[tokio::test]
    async fn a_provider_that_panics_has_failed() {
        let at_once =
            TokenSource::provider(|| -> std::future::Ready<Result<String, BoxError>> { panic!("a bug") });
        let later = TokenSource::provider(|| async {
            if true { panic!("a bug") } else { Ok::<_, BoxError>(String::new()) }
        });
        for source in [at_once, later] {
            let error = source.read().await.unwrap_err();
            assert!(error.is("auth_unavailable") && error.message().contains("panicked"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_token_is_used_until_it_must_be_renewed_or_is_refused() {
        let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = Arc::clone(&count);
        let source = TokenSource::provider(move || {
            let n = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let exp = SystemClock::new().wall_ms() / 1_000 + 400;
            let token = if n == 0 { jwt(&format!(r#"{{"exp":{exp}}}"#)) } else { format!("token {n}") };
            async move { Ok::<_, BoxError>(token) }
        });
        let kept = KeptToken::new(source);
        let first = kept.read().await.unwrap();
        assert_eq!(kept.read().await.unwrap(), first);
        tokio::time::advance(Duration::from_secs(320)).await;
        assert_eq!(kept.read().await.unwrap().as_deref(), Some("token 1"));
        tokio::time::advance(Duration::from_secs(100_000)).await;
        assert_eq!(kept.read().await.unwrap().as_deref(), Some("token 1"), "its end is unknown");
        assert!(!kept.refuse(first.as_deref()).await, "another token is kept already");
        assert!(kept.refuse(Some("token 1")).await);
        assert_eq!(kept.read().await.unwrap().as_deref(), Some("token 2"));
        kept.keep(Some("token of the connection".to_owned()));
        assert_eq!(kept.read().await.unwrap().as_deref(), Some("token of the connection"));
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_provider_is_asked_each_time() {
        let count = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = Arc::clone(&count);
        let source = TokenSource::provider(move || {
            let n = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            async move { if n < 2 { Ok(n.to_string()) } else { Err("no more") } }
        });
        assert_eq!(source.read().await.unwrap().as_deref(), Some("0"));
        assert_eq!(source.read().await.unwrap().as_deref(), Some("1"));
        let error = source.read().await.unwrap_err();
        assert!(error.is("auth_unavailable") && error.message().contains("no more"), "{error}");
    }
}
