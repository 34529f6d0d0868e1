//! From a token to an identity.

use std::fmt::Debug;

use async_trait::async_trait;
use thiserror::Error;

use super::grants::Grants;
use super::identity::Identity;
use super::jwt::Jwt;
use super::static_tokens::StaticTokens;

/// Decides who a client is. For embedders to bring their own.
#[async_trait]
pub trait Authenticator: Debug + Send + Sync + 'static {
    /// Who has this token; `None` is a client that showed none.
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError>;

    /// Whether clients need no token. Such a server must not be reachable from other machines.
    fn is_open(&self) -> bool {
        false
    }

    /// Another number than before whenever a token that was good may be so no longer, or may allow something else.
    /// Connections look at it between frames, so it must cost little; when it is another one they ask
    /// [`Authenticator::authenticate`] again, and end, or end what is no longer allowed. Default: nothing changes.
    fn generation(&self) -> u64 {
        0
    }

    /// Looks whether something changed: a file, keys elsewhere. A gateway asks for it every few seconds, one call at a
    /// time, and drops the call when it stops. Default: there is nothing to look at.
    async fn refresh(&self) {}
}

/// Why a client is not known. Says nothing that helps to guess a token.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AuthError {
    /// It showed no token.
    #[error("a token is needed; send AUTH with a token, or an `authorization: Bearer` header")]
    Missing,
    /// Its token is none of ours.
    #[error("the token is not valid: {0}; get a new one")]
    BadToken(&'static str),
    /// The keys to check it with cannot be had now.
    #[error("tokens cannot be checked now; try again soon")]
    Unavailable,
    /// Too many tokens that are not valid came from where it is.
    #[error("too many tokens that are not valid came from this address; try again in {retry_after_ms} ms")]
    TooMany {
        /// When one more is looked at.
        retry_after_ms: u64,
    },
}

impl AuthError {
    /// A stable word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing => "unauthorized",
            Self::BadToken(_) => "bad_token",
            Self::Unavailable => "auth_unavailable",
            Self::TooMany { .. } => "rate_limited",
        }
    }
}

/// Lets everybody do everything, whatever the token.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

#[async_trait]
impl Authenticator for Open {
    async fn authenticate(&self, _token: Option<&str>) -> Result<Identity, AuthError> {
        Ok(Identity::new("anyone", Grants::everything()))
    }

    fn is_open(&self) -> bool {
        true
    }
}

/// Knows the tokens of a list, and those that somebody signed.
#[derive(Debug)]
pub struct Either {
    /// The list, which is asked first.
    pub listed: StaticTokens,
    /// Who checks all others.
    pub signed: Jwt,
}

#[async_trait]
impl Authenticator for Either {
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError> {
        match self.listed.authenticate(token).await {
            // A listed token that has expired, or has our prefix, is no JWT.
            Err(AuthError::BadToken(_)) if token.is_some_and(|token| token.contains('.')) => {
                self.signed.authenticate(token).await
            }
            known => known,
        }
    }

    /// Each only grows, so their sum changes with either.
    fn generation(&self) -> u64 {
        self.listed.generation().wrapping_add(self.signed.generation())
    }

    async fn refresh(&self) {
        self.signed.refresh().await;
    }
}
