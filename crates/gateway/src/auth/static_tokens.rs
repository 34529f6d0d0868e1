//! Tokens that are listed, by their hashes.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use data_encoding::{BASE64URL_NOPAD, HEXLOWER_PERMISSIVE};
use promethean_model::{Clock, IgnorePoison};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer, de};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use thiserror::Error;

use super::authenticator::{AuthError, Authenticator};
use super::grants::Grants;
use super::identity::{Identity, IdentityKind, Quota};
use super::secret::Secret;

/// The prefix of tokens that the server makes, so that scanners of leaked secrets recognise them.
pub const PREFIX: &str = "prom_";
/// Random bytes in a token. 16 would be enough.
const RANDOM_BYTES: usize = 32;
const HASH_BYTES: usize = 32;
/// Longest text that is looked up. A longer text is no token.
const TOKEN_BYTES_MAX: usize = 4 << 10;

/// Why no token was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the system gives no random bytes; a token cannot be made safely on this machine now")]
pub struct NoRandomness;

/// Makes a new token. Its owner must keep it: the server stores only its hash.
pub fn mint() -> Result<Secret, NoRandomness> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes)).into())
}

/// The SHA-256 of a token, which is stored in its place. Tokens are random, so a slower hash is not needed
/// against guessing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; HASH_BYTES]);

/// A text that is not a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a SHA-256 hash; `promethean token hash` prints 64 hexadecimal digits for a token")]
pub struct HashError;

impl TokenHash {
    /// The hash of a token.
    pub fn of(token: &str) -> Self {
        let mut bytes = [0; HASH_BYTES];
        bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(bytes)
    }

    fn same(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl FromStr for TokenHash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map_err(|_| HashError)?;
        bytes.try_into().map(Self).map_err(|_| HashError)
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER_PERMISSIVE.encode(&self.0))
    }
}

/// A short token can be found from its hash, so the hash is not logged.
impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hash]")
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The error does not quote the text: it may be the token itself.
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A token of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticToken {
    /// The name of the identity.
    pub name: Arc<str>,
    /// Its hash.
    pub hash: TokenHash,
    /// What the identity may do.
    pub grants: Arc<Grants>,
    /// When it expires, epoch ms.
    pub expires_ms: Option<i64>,
    /// How much the identity may use.
    pub quota: Quota,
}

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

    fn generation(&self) -> u64 {
        self.list.replaced.load(Ordering::Acquire)
    }
}
