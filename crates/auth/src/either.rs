//! Listed and signed tokens together.

use async_trait::async_trait;

use super::authenticator::{AuthError, Authenticator};
use super::identity::Identity;
use super::jwt::Jwt;
use super::static_token::StaticToken;
use super::static_tokens::StaticTokens;

/// Accepts listed tokens and signed tokens.
#[derive(Debug)]
pub struct Either {
    /// The list, which is checked first.
    pub listed: StaticTokens,
    /// Checks all other tokens.
    pub signed: Jwt,
}

#[async_trait]
impl Authenticator for Either {
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError> {
        match self.listed.authenticate(token).await {
            // A JWT has dots; listed tokens that the server makes have none.
            Err(AuthError::BadToken(_)) if token.is_some_and(|token| token.contains('.')) => {
                self.signed.authenticate(token).await
            }
            known => known,
        }
    }

    /// Each number only grows, so the sum changes when either does.
    fn revision(&self) -> u64 {
        self.listed.revision().wrapping_add(self.signed.revision())
    }

    fn listed(&self, from: usize, limit: usize) -> Vec<StaticToken> {
        self.listed.listed(from, limit)
    }

    async fn refresh(&self) {
        self.signed.refresh().await;
    }
}
