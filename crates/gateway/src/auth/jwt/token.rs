//! The two parts of a token that are JSON: its header and its claims.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::key::Algorithm;
use crate::auth::{AuthError, Grants, Identity, Quota};

/// Longest name of a key.
const KID_BYTES_MAX: usize = 256;
/// Scopes of one token.
const SCOPES_MAX: usize = 1_000;
/// Bytes of `sub` that are kept for the logs.
const NAME_BYTES_MAX: usize = 256;
/// Who a token without `sub` is.
const UNNAMED: &str = "unnamed";

/// What is read of a header; the rest is ignored, whatever it asks for.
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
    /// Whether it is there, as anything.
    #[serde(default, deserialize_with = "present")]
    crit: bool,
}

impl Header {
    pub(super) fn parse(json: &[u8]) -> Result<Self, AuthError> {
        let raw: Raw = serde_json::from_slice(json).map_err(|_| AuthError::BadToken("malformed header"))?;
        // What `crit` names must be understood or the token refused, and there is nothing we understand.
        if raw.crit {
            return Err(AuthError::BadToken("`crit` names an extension"));
        }
        if raw.typ.as_deref().is_some_and(|typ| !is_access_token(typ)) {
            return Err(AuthError::BadToken("`typ` is not that of an access token"));
        }
        if raw.kid.as_ref().is_some_and(|kid| kid.len() > KID_BYTES_MAX) {
            return Err(AuthError::BadToken("unknown key"));
        }
        let algorithm =
            Algorithm::of_header(&raw.alg).ok_or(AuthError::BadToken("algorithm not accepted"))?;
        Ok(Self { algorithm, kid: raw.kid })
    }
}

/// Other types are signed by the same keys for other ends, and must not be taken for one of these.
fn is_access_token(typ: &str) -> bool {
    ["JWT", "at+jwt", "application/at+jwt"].iter().any(|known| typ.eq_ignore_ascii_case(known))
}

/// What is read of the claims. Those of a wrong type, `null` among them, make the token bad.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    exp: Seconds,
    #[serde(default, deserialize_with = "given")]
    nbf: Option<Seconds>,
    #[serde(default, deserialize_with = "given")]
    iss: Option<String>,
    #[serde(default, deserialize_with = "given")]
    aud: Option<OneOrMany>,
    #[serde(default, deserialize_with = "given")]
    sub: Option<String>,
    /// Separated by spaces.
    #[serde(default, deserialize_with = "given")]
    scope: Option<String>,
    #[serde(default, deserialize_with = "given")]
    scopes: Option<OneOrMany>,
    #[serde(default, deserialize_with = "given")]
    policy: Option<Value>,
}

/// Seconds since 1970, perhaps with a fraction.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Seconds(f64);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Seconds {
    /// `as` stops at the ends of the range.
    fn ms(self) -> i64 {
        (self.0 * 1000.0) as i64
    }
}

impl OneOrMany {
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

    /// `exp` is exact; `nbf` may be ahead by the leeway, for a clock of the issuer's that is.
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
        let listed = || self.scopes.iter().flat_map(OneOrMany::iter);
        // One text with spaces is what some issuers write for `scopes` too.
        let words = || self.scope.as_deref().into_iter().chain(listed()).flat_map(str::split_whitespace);
        if words().nth(SCOPES_MAX).is_some() {
            return Err(BAD_SCOPES);
        }
        let mut grants = Grants::parse_foreign(words()).map_err(|_| BAD_SCOPES)?;
        if let Some(policy) = &self.policy {
            grants = grants.and(Grants::from_policy(policy).map_err(|_| BAD_SCOPES)?);
        }
        let (name, grants) = (Arc::from(name), Arc::new(grants));
        Ok(Identity { name, grants, expires_ms: Some(self.exp.ms()), quota: Quota::default() })
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// As a plain `Option`, but `null` is of the wrong type.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
