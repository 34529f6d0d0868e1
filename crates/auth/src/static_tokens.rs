//! Tokens that are listed, by their hashes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use promethean_model::{Clock, IgnorePoison};
use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::authenticator::{AuthError, Authenticator};
use super::grants::Grants;
use super::identity::{Identity, IdentityKind, Quota};
use super::secret::Secret;
use super::static_token::{StaticToken, TokenHash};

/// Longest text that is looked up. A longer text is no token.
const TOKEN_BYTES_MAX: usize = 4 << 10;

/// Accepts the tokens of a list. Clones share the list.
#[derive(Debug, Clone)]
pub struct StaticTokens {
    list: Arc<List>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct List {
    tokens: RwLock<Arc<[StaticToken]>>,
    /// How often the list was replaced by another one.
    replaced: AtomicU64,
}

impl StaticTokens {
    /// Of entries with the same hash, the first counts.
    pub fn new(tokens: Vec<StaticToken>, clock: Arc<dyn Clock>) -> Self {
        let list = List { tokens: RwLock::new(tokens.into()), replaced: AtomicU64::new(0) };
        Self { list: Arc::new(list), clock }
    }

    /// Replaces the list; whether the new list is different.
    pub fn replace(&self, tokens: Vec<StaticToken>) -> bool {
        let mut list = self.list.tokens.write().ignore_poison();
        if **list == *tokens {
            return false;
        }
        *list = tokens.into();
        // While the list is locked, so that a reader of the new number finds the new list.
        self.list.replaced.fetch_add(1, Ordering::Release);
        true
    }

    /// An entry for a token that allows everything.
    pub fn admin(name: &str, token: &Secret) -> StaticToken {
        let token = token.reveal_text().unwrap_or_default();
        let (hash, grants) = (TokenHash::of(token), Arc::new(Grants::everything()));
        StaticToken { name: name.into(), hash, grants, expires_ms: None, quota: Quota::default() }
    }

    /// Compares with every entry, so that the time taken does not show which entry matches.
    fn find(&self, token: &str) -> Option<StaticToken> {
        let tokens = Arc::clone(&self.list.tokens.read().ignore_poison());
        let hash = TokenHash::of(token);
        let mut found = u32::MAX;
        for (index, entry) in (0..).zip(&*tokens) {
            // A later match does not replace the first one.
            let is_new = found.ct_eq(&u32::MAX);
            found.conditional_assign(&index, entry.hash.same(&hash) & is_new);
        }
        tokens.get(usize::try_from(found).ok()?).cloned()
    }
}

#[async_trait]
impl Authenticator for StaticTokens {
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError> {
        let token = token.filter(|token| !token.is_empty()).ok_or(AuthError::Missing)?;
        if token.len() > TOKEN_BYTES_MAX {
            return Err(AuthError::BadToken("unknown"));
        }
        let entry = self.find(token).ok_or(AuthError::BadToken("unknown"))?;
        if entry.expires_ms.is_some_and(|expires_ms| expires_ms <= self.clock.wall_ms()) {
            return Err(AuthError::BadToken("expired"));
        }
        let StaticToken { name, grants, expires_ms, quota, .. } = entry;
        Ok(Identity { kind: IdentityKind::Listed, name, grants, expires_ms, quota })
    }

    fn revision(&self) -> u64 {
        self.list.replaced.load(Ordering::Acquire)
    }

    fn listed(&self, from: usize, limit: usize) -> Vec<StaticToken> {
        let tokens = Arc::clone(&self.list.tokens.read().ignore_poison());
        tokens.iter().skip(from).take(limit).cloned().collect()
    }
}
