//! A listed token: its text, its hash, and what it allows.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER_PERMISSIVE};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer, de};
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;

use super::grants::Grants;
use super::identity::Quota;
use super::secret::Secret;

/// The prefix of tokens that the server makes, so that scanners of leaked secrets recognise them.
pub const PREFIX: &str = "prom_";
/// Random bytes in a token. 16 would be enough.
const RANDOM_BYTES: usize = 32;
const HASH_BYTES: usize = 32;

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

    /// Compares in constant time.
    pub(crate) fn same(&self, other: &Self) -> Choice {
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
