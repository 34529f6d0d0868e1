//! The header and the claims of a token, and their checks.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::key::Algorithm;
use crate::{AuthError, Grants, Identity, IdentityKind, Quota};

/// Bytes of the name of a key, at most.
const KID_BYTES_MAX: usize = 256;
/// Scopes of one token, at most.
const SCOPES_MAX: usize = 1_000;
/// Bytes of `sub`, at most.
const NAME_BYTES_MAX: usize = 256;
/// The name of an identity whose token has no `sub`.
const UNNAMED: &str = "unnamed";

/// The fields of a header that are read; all others are ignored.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Raw {
    alg: String,
    #[serde(default, deserialize_with = "given")]
    kid: Option<String>,
    #[serde(default, deserialize_with = "given")]
    typ: Option<String>,
    /// Whether the field is there, with any value.
    #[serde(default, deserialize_with = "present")]
    crit: bool,
}

impl Header {
    pub(super) fn parse(json: &[u8]) -> Result<Self, AuthError> {
        let raw: Raw = serde_json::from_slice(json).map_err(|_| AuthError::BadToken("malformed header"))?;
        // Extensions in `crit` must be understood or the token refused, and no extension is supported.
        if raw.crit {
            return Err(AuthError::BadToken("`crit` names an extension"));
        }
        if raw.typ.as_deref().is_some_and(|typ| !is_access_token(typ)) {
            return Err(AuthError::BadToken("`typ` is not the type of an access token"));
        }
        if raw.kid.as_ref().is_some_and(|kid| kid.len() > KID_BYTES_MAX) {
            return Err(AuthError::BadToken("unknown key"));
        }
        let algorithm =
            Algorithm::of_header(&raw.alg).ok_or(AuthError::BadToken("algorithm not accepted"))?;
        Ok(Self { algorithm, kid: raw.kid })
    }
}

/// Issuers sign other types of tokens with the same keys; they must not be accepted as access tokens.
fn is_access_token(typ: &str) -> bool {
    ["JWT", "at+jwt", "application/at+jwt"].iter().any(|known| typ.eq_ignore_ascii_case(known))
}

/// The claims that are read. A claim of a wrong type, `null` included, makes the token invalid.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    exp: Seconds,
    #[serde(default, deserialize_with = "given")]
    nbf: Option<Seconds>,
    #[serde(default, deserialize_with = "given")]
    iss: Option<String>,
    #[serde(default, deserialize_with = "given")]
    aud: Option<Audience>,
    #[serde(default, deserialize_with = "given")]
    sub: Option<String>,
    /// Separated by spaces.
    #[serde(default, deserialize_with = "given")]
    scope: Option<String>,
    #[serde(default, deserialize_with = "given")]
    scopes: Option<Audience>,
    #[serde(default, deserialize_with = "given")]
    policy: Option<Value>,
}

/// Seconds since 1970, perhaps with a fraction.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Seconds(f64);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Seconds {
    /// `as` saturates at the ends of the range.
    fn ms(self) -> i64 {
        (self.0 * 1000.0) as i64
    }
}

impl Audience {
    fn iter(&self) -> impl Iterator<Item = &str> {
        let (one, many) = match self {
            Self::One(one) => (Some(one), &[][..]),
            Self::Many(many) => (None, many.as_slice()),
        };
        one.into_iter().chain(many).map(String::as_str)
    }
}

impl Claims {
    pub(super) fn parse(json: &[u8]) -> Result<Self, AuthError> {
        serde_json::from_slice(json).map_err(|_| AuthError::BadToken("claims missing or of a wrong type"))
    }

    /// `exp` is exact; `nbf` may be ahead by the leeway, because the clock of the issuer may be ahead.
    pub(super) fn check_times(&self, now_ms: i64, leeway_ms: i64) -> Result<(), AuthError> {
        if self.exp.ms() <= now_ms {
            return Err(AuthError::BadToken("expired"));
        }
        if self.nbf.is_some_and(|nbf| nbf.ms() > now_ms.saturating_add(leeway_ms)) {
            return Err(AuthError::BadToken("not valid yet"));
        }
        Ok(())
    }

    pub(super) fn check_parties(&self, issuer: Option<&str>, audience: &[String]) -> Result<(), AuthError> {
        if issuer.is_some_and(|issuer| self.iss.as_deref() != Some(issuer)) {
            return Err(AuthError::BadToken("of another issuer"));
        }
        let is_us = |aud: &str| audience.iter().any(|us| us == aud);
        if !audience.is_empty() && !self.aud.as_ref().is_some_and(|aud| aud.iter().any(is_us)) {
            return Err(AuthError::BadToken("for another audience"));
        }
        Ok(())
    }

    pub(super) fn identity(&self) -> Result<Identity, AuthError> {
        const BAD_SCOPES: AuthError = AuthError::BadToken("scopes or policy not understood");
        let name = self.sub.as_deref().unwrap_or(UNNAMED);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(AuthError::BadToken("`sub` is empty, too long or has control characters"));
        }
        let listed = || self.scopes.iter().flat_map(Audience::iter);
        // Some issuers write `scopes` as one text with spaces, like `scope`.
        let words = || self.scope.as_deref().into_iter().chain(listed()).flat_map(str::split_whitespace);
        if words().nth(SCOPES_MAX).is_some() {
            return Err(BAD_SCOPES);
        }
        let mut grants = Grants::parse_foreign(words()).map_err(|_| BAD_SCOPES)?;
        if let Some(policy) = &self.policy {
            grants = grants.and(Grants::from_policy(policy).map_err(|_| BAD_SCOPES)?);
        }
        let (name, grants) = (Arc::from(name), Arc::new(grants));
        let (kind, expires_ms) = (IdentityKind::Signed, Some(self.exp.ms()));
        Ok(Identity { kind, name, grants, expires_ms, quota: Quota::default() })
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// Reads an optional field; unlike with a plain `Option`, `null` is of a wrong type.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
