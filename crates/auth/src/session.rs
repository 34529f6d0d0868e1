//! An identity with its token, so that the token can be checked again.

use std::pin::Pin;
use std::sync::Arc;

use super::authenticator::{AuthError, Authenticator};
use super::identity::Identity;
use super::secret::Secret;

/// The identity of a connected client and the token it showed. When tokens change, the token is checked
/// again.
#[derive(Debug, Clone)]
pub struct AuthSession {
    auth: Arc<dyn Authenticator>,
    token: Option<Secret>,
    /// The authenticator's revision before it checked the token: a change during the check is seen as a
    /// change.
    seen: u64,
    /// The client.
    pub identity: Identity,
}

/// A check of the token of a session, under way.
pub type AuthRecheck = Pin<Box<dyn Future<Output = Result<AuthSession, AuthError>> + Send>>;

impl AuthSession {
    /// Checks a token.
    pub async fn of(auth: Arc<dyn Authenticator>, token: Option<Secret>) -> Result<AuthSession, AuthError> {
        let seen = auth.revision();
        let identity = auth.authenticate(token.as_ref().and_then(Secret::reveal_text)).await?;
        Ok(Self { auth, token, seen, identity })
    }

    /// The session of an identity that was just found; `seen` was the revision before that.
    pub fn known(auth: &Arc<dyn Authenticator>, token: Option<&str>, seen: u64, identity: Identity) -> Self {
        Self { auth: Arc::clone(auth), token: token.map(Secret::from), seen, identity }
    }

    /// Whether tokens changed since this token was checked.
    pub fn is_stale(&self) -> bool {
        self.auth.revision() != self.seen
    }

    /// Checks the token again.
    pub fn recheck(&self) -> AuthRecheck {
        Box::pin(Self::of(Arc::clone(&self.auth), self.token.clone()))
    }

    /// Checks the token again if tokens changed. A token that cannot be checked now stays valid until the
    /// next check.
    pub async fn refresh(&mut self) -> Result<(), AuthError> {
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
