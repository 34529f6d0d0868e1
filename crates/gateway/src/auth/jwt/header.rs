//! The first part of a token.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::key::Algorithm;
use crate::auth::AuthError;

/// Longest name of a key.
const KID_BYTES_MAX: usize = 256;

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

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// As a plain `Option`, but `null` is of the wrong type.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}
