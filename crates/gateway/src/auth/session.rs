//! A client that was known at some time, and whether it still is.

use std::pin::Pin;
use std::sync::Arc;

use super::authenticator::{AuthError, Authenticator};
use super::identity::Identity;
use super::secret::Secret;

/// Who a client is by the token it showed, which is kept to ask again when tokens change.
#[derive(Debug, Clone)]
pub(crate) struct AuthSession {
    auth: Arc<dyn Authenticator>,
    token: Option<Secret>,
    /// The generation before the token was looked at: what changed meanwhile is seen as a change.
    seen: u64,
    pub(crate) identity: Identity,
}

pub(crate) type AuthRecheck = Pin<Box<dyn Future<Output = Result<AuthSession, AuthError>> + Send>>;

impl AuthSession {
    /// Who has this token now.
    pub(crate) async fn of(
        auth: Arc<dyn Authenticator>,
        token: Option<Secret>,
    ) -> Result<AuthSession, AuthError> {
        let seen = auth.generation();
        let identity = auth.authenticate(token.as_ref().and_then(Secret::reveal_text)).await?;
        Ok(Self { auth, token, seen, identity })
    }

    /// Of a client that was asked for already, when `seen` was the generation.
    pub(crate) fn known(
        auth: &Arc<dyn Authenticator>,
        token: Option<&str>,
        seen: u64,
        identity: Identity,
    ) -> Self {
        Self { auth: Arc::clone(auth), token: token.map(Secret::from), seen, identity }
    }

    /// Whether tokens changed since the client was asked for its own.
    pub(crate) fn is_stale(&self) -> bool {
        self.auth.generation() != self.seen
    }

    /// Who has the token now.
    pub(crate) fn recheck(&self) -> AuthRecheck {
        Box::pin(Self::of(Arc::clone(&self.auth), self.token.clone()))
    }

    /// Asks again if tokens changed. A token that cannot be looked at now stays as it is until the next look.
    pub(crate) async fn look(&mut self) -> Result<(), AuthError> {
        if self.is_stale() {
            match self.recheck().await {
                Ok(now) => *self = now,
                Err(AuthError::Unavailable) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
