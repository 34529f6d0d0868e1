//! Listed and signed tokens together.

use async_trait::async_trait;

use super::authenticator::{AuthError, Authenticator};
use super::identity::Identity;
use super::jwt::Jwt;
use super::static_tokens::StaticTokens;

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
