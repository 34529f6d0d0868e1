//! Keys as a JWK set (RFC 7517).

use data_encoding::BASE64URL_NOPAD;
use serde::Deserialize;

use super::JwtError;
use super::key::{Algorithm, KEYS_MAX, Key, KeySet};

/// Where a set comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JwksOrigin {
    /// A file of the server, which may hold secrets.
    File,
    /// A URL. Anybody can fetch from it, so it holds no secret.
    Url,
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<serde_json::Value>,
}

/// One key as JSON. It has no `Debug`, because it may hold a secret.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

/// Reads the keys that can verify tokens. A set may also have keys for other purposes, which are left out.
pub(super) fn parse(text: &[u8], origin: JwksOrigin) -> Result<KeySet, JwtError> {
    let set: Set =
        serde_json::from_slice(text).map_err(|_| JwtError::Jwks("it is not `{\"keys\": [...]}`"))?;
    if set.keys.len() > KEYS_MAX {
        return Err(JwtError::Jwks("it has more than 100 keys"));
    }
    let jwks = set.keys.into_iter().filter_map(|value| serde_json::from_value::<Jwk>(value).ok());
    let keys: Vec<_> = jwks.filter_map(|jwk| Some((jwk.kid.clone(), jwk.key(origin)?))).collect();
    if keys.is_empty() {
        return Err(JwtError::Jwks(
            "give one of kty RSA with at least 2048 bit, EC with crv P-256, OKP with crv Ed25519, or, in a file, oct \
             with at least 32 bytes",
        ));
    }
    Ok(KeySet::new(keys))
}

impl Jwk {
    fn key(&self, origin: JwksOrigin) -> Option<Key> {
        let for_signatures = self.usage.as_deref().is_none_or(|usage| usage == "sig");
        let verifies = self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        if !for_signatures || !verifies {
            return None;
        }
        let key = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Key::rsa(&decode(&self.n)?, &decode(&self.e)?)?,
            ("EC", Some("P-256")) => Key::p256(&[vec![4], decode(&self.x)?, decode(&self.y)?].concat())?,
            ("OKP", Some("Ed25519")) => Key::ed25519(&decode(&self.x)?)?,
            ("oct", _) if origin == JwksOrigin::File => Key::hmac(&decode(&self.k)?)?,
            _ => return None,
        };
        // A key that names its algorithm is used for no other.
        let fits = |alg: &str| Algorithm::of_header(alg) == Some(key.algorithm());
        self.alg.as_deref().is_none_or(fits).then_some(key)
    }
}

fn decode(field: &Option<String>) -> Option<Vec<u8>> {
    BASE64URL_NOPAD.decode(field.as_deref()?.as_bytes()).ok()
}
