//! The trait that finds the identity of a token, and an implementation without tokens.

use std::fmt::Debug;

use async_trait::async_trait;
use thiserror::Error;

use super::grants::Grants;
use super::identity::{Identity, IdentityKind};
use super::static_token::StaticToken;

/// Finds the identity of a client. Embedders can bring their own.
#[async_trait]
pub trait Authenticator: Debug + Send + Sync + 'static {
    /// Finds the identity of a token; `None` is a client that showed no token.
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError>;

    /// Whether clients need no token. Such a server must not be reachable from other machines.
    fn is_open(&self) -> bool {
        false
    }

    /// A number that changes whenever a valid token may have become invalid or may have other grants.
    /// Connections read it between frames, so it must be cheap. When it changes they call
    /// [`Authenticator::authenticate`] again, and end, or end the subscriptions that are no longer allowed.
    /// Default: it never changes.
    fn revision(&self) -> u64 {
        0
    }

    /// Tokens that are listed, from this place in the list on and at most `limit`, for admins to see. Default: none.
    fn listed(&self, from: usize, limit: usize) -> Vec<StaticToken> {
        let _ = (from, limit);
        Vec::new()
    }

    /// Looks for changes, for example in a file or of keys at a URL. A gateway calls it every few seconds,
    /// one call at a time, and drops the call when it stops. Default: does nothing.
    async fn refresh(&self) {}
}

/// Why a token has no identity. The messages do not help to guess a token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AuthError {
    /// The client showed no token.
    #[error("a token is needed; send AUTH with a token, or an `authorization: Bearer` header")]
    Missing,
    /// The token is not valid.
    #[error("the token is not valid: {0}; get a new one")]
    BadToken(&'static str),
    /// The keys to check the token with are not available now.
    #[error("tokens cannot be checked now; try again soon")]
    Unavailable,
    /// The client's address has shown too many invalid tokens.
    #[error("too many tokens that are not valid came from this address; try again in {retry_after_ms} ms")]
    TooMany {
        /// When the next token is checked.
        retry_after_ms: u64,
    },
}

impl AuthError {
    /// The stable code for programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing => "unauthorized",
            Self::BadToken(_) => "bad_token",
            Self::Unavailable => "auth_unavailable",
            Self::TooMany { .. } => "rate_limited",
        }
    }
}

/// Allows every client everything, with any token or none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

#[async_trait]
impl Authenticator for Open {
    async fn authenticate(&self, _token: Option<&str>) -> Result<Identity, AuthError> {
        Ok(Identity { kind: IdentityKind::Open, ..Identity::new("anyone", Grants::everything()) })
    }

    fn is_open(&self) -> bool {
        true
    }
}
