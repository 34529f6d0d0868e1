//! Tokens that an issuer signed: JSON web tokens.
//!
//! **Invariant**: nothing is fetched or opened because a token says so. Each key works with one algorithm;
//! the token cannot choose another. The `kid` of a token only picks one of the configured keys, and `jku`,
//! `x5u` and `jwk` are not read at all. Claims are read after the signature is verified.
//!
//! | module | holds |
//! | --- | --- |
//! | `token` | the header and the claims of a token, and their checks |
//! | `key`, `pem`, `jwks` | keys and sets of keys, and the two forms they are written in |
//! | `remote`, `fetch` | keys from a URL: cached, and fetched within bounds |
//! | [`sign`] | making tokens |

mod fetch;
mod jwks;
mod key;
mod pem;
mod remote;
pub mod sign;
mod token;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use data_encoding::BASE64URL_NOPAD;
use promethean_model::{Clock, IgnorePoison};
use thiserror::Error;

use self::key::KeySet;
use self::remote::RemoteKeys;
use self::token::{Claims, Header};
use super::authenticator::{AuthError, Authenticator};
use super::identity::Identity;
use super::secret::Secret;

/// Longest token that is checked.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// By how much the clocks of issuer and server may differ, at most.
pub const LEEWAY_MS_MAX: u64 = 30_000;

/// Where the keys come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// HS256 with this secret, of at least 32 bytes.
    Secret(Secret),
    /// Public keys as PEM; the kind of each key decides between RS256, ES256 and EdDSA.
    Pem(Secret),
    /// A JWK set.
    Jwks(Secret),
    /// The address of a JWK set.
    Url(JwksUrl),
}

/// The address of a JWK set, and how long its keys are used.
#[derive(Clone, PartialEq, Eq)]
pub struct JwksUrl {
    /// `https://...`; `http://` only with a loopback address, or where `plain_http` allows it.
    pub url: String,
    /// Whether `http://` is allowed with any address. An attacker between the two machines can then forge
    /// tokens.
    pub plain_http: bool,
    /// Authorities (PEM) that sign the certificate of the server, in place of the machine's list.
    pub authorities: Option<Vec<u8>>,
    /// The age at which keys are fetched again. Default: 10 min.
    pub refresh_ms: u64,
    /// The age at which keys are no longer used, if they cannot be fetched again. Default: 24 h.
    pub max_age_ms: u64,
}

impl JwksUrl {
    /// With the defaults.
    pub fn new(url: impl Into<String>) -> Self {
        let (refresh_ms, max_age_ms) = (10 * 60_000, 24 * 60 * 60_000);
        Self { url: url.into(), plain_http: false, authorities: None, refresh_ms, max_age_ms }
    }
}

/// Does not show the address, which may contain a password.
impl fmt::Debug for JwksUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { refresh_ms, max_age_ms, .. } = self;
        let mut shown = f.debug_struct("JwksUrl");
        shown.field("refresh_ms", refresh_ms).field("max_age_ms", max_age_ms).finish_non_exhaustive()
    }
}

/// The keys for signed tokens, and the claims that they must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtOptions {
    /// Where the keys come from.
    pub keys: KeySource,
    /// What `iss` must be.
    pub issuer: Option<String>,
    /// `aud` must name one of these; if empty, `aud` is not checked.
    pub audience: Vec<String>,
    /// By how much `nbf` may be in the future, at most 30 s. `exp` is exact.
    pub leeway_ms: u64,
}

/// Why the options for signed tokens cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JwtError {
    /// The secret is so short that it can be found from any token.
    #[error(
        "the secret has {bytes} bytes; use at least 32 random ones, such as `openssl rand -hex 32` prints"
    )]
    ShortSecret {
        /// Its length.
        bytes: usize,
    },
    /// The PEM has no key.
    #[error(
        "the PEM has no public key that can be used: {0}; give `BEGIN PUBLIC KEY` of RSA with at least 2048 \
             bit, P-256 or Ed25519"
    )]
    Pem(&'static str),
    /// The set has no key.
    #[error("the JWK set has no key that can be used: {0}")]
    Jwks(&'static str),
    /// Keys cannot be fetched from this address.
    #[error("the URL of the JWK set {0}")]
    Url(&'static str),
    /// Keys from a URL and given keys cannot replace each other.
    #[error(
        "keys from a URL and keys from a file do not replace each other while the server runs; restart it"
    )]
    OtherSource,
    /// The leeway is too large.
    #[error("the leeway is {given_ms} ms; give at most 30000")]
    Leeway {
        /// What was asked for.
        given_ms: u64,
    },
}

/// Accepts tokens that are signed with one of its keys. Clones share the keys.
#[derive(Debug, Clone)]
pub struct Jwt {
    keys: Arc<Keys>,
    issuer: Option<String>,
    audience: Vec<String>,
    leeway_ms: i64,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
enum Keys {
    /// The keys, and how often they were replaced.
    Given(RwLock<Arc<KeySet>>, AtomicU64),
    Remote(Arc<RemoteKeys>),
}

impl Jwt {
    /// Reads the keys. Keys from a URL are fetched when the first token comes.
    pub fn new(options: JwtOptions, clock: Arc<dyn Clock>) -> Result<Self, JwtError> {
        let JwtOptions { keys, issuer, audience, leeway_ms } = options;
        if leeway_ms > LEEWAY_MS_MAX {
            return Err(JwtError::Leeway { given_ms: leeway_ms });
        }
        let keys = match keys {
            KeySource::Url(url) => Keys::Remote(Arc::new(RemoteKeys::new(url, Arc::clone(&clock))?)),
            given => Keys::Given(RwLock::new(Arc::new(key_set(&given)?)), AtomicU64::new(0)),
        };
        let leeway_ms = i64::try_from(leeway_ms).unwrap_or(0);
        Ok(Self { keys: Arc::new(keys), issuer, audience, leeway_ms, clock })
    }

    /// Replaces the keys. Keys from a URL are replaced only by fetching them again.
    pub fn replace_keys(&self, source: &KeySource) -> Result<(), JwtError> {
        let Keys::Given(keys, replaced) = &*self.keys else { return Err(JwtError::OtherSource) };
        let new = Arc::new(key_set(source)?);
        *keys.write().ignore_poison() = new;
        replaced.fetch_add(1, Ordering::Release);
        Ok(())
    }

    async fn check(&self, token: &str) -> Result<Identity, AuthError> {
        const MALFORMED: AuthError = AuthError::BadToken("malformed");
        if token.len() > TOKEN_BYTES_MAX {
            return Err(AuthError::BadToken("too long"));
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(MALFORMED)?;
        let (head, body) = signed.split_once('.').ok_or(MALFORMED)?;
        // A fourth part leaves a dot in the second one, which `decode` refuses.
        let decode = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| MALFORMED);
        let header = Header::parse(&decode(head)?)?;
        let (body, signature) = (decode(body)?, decode(signature)?);
        let keys = match &*self.keys {
            Keys::Given(keys, _) => Arc::clone(&keys.read().ignore_poison()),
            Keys::Remote(remote) => remote.keys_for(&header).await?,
        };
        keys.verify(&header, signed.as_bytes(), &signature)?;
        let claims = Claims::parse(&body)?;
        claims.check_times(self.clock.wall_ms(), self.leeway_ms)?;
        claims.check_parties(self.issuer.as_deref(), &self.audience)?;
        claims.identity()
    }
}

/// The keys of a source that needs no fetch.
fn key_set(source: &KeySource) -> Result<KeySet, JwtError> {
    match source {
        KeySource::Secret(secret) => KeySet::of_secret(secret),
        KeySource::Pem(text) => KeySet::of_pem(text.reveal()),
        KeySource::Jwks(text) => jwks::parse(text.reveal(), jwks::JwksOrigin::File),
        KeySource::Url(_) => Err(JwtError::OtherSource),
    }
}

#[async_trait]
impl Authenticator for Jwt {
    async fn authenticate(&self, token: Option<&str>) -> Result<Identity, AuthError> {
        self.check(token.filter(|token| !token.is_empty()).ok_or(AuthError::Missing)?).await
    }

    fn revision(&self) -> u64 {
        match &*self.keys {
            Keys::Given(_, replaced) => replaced.load(Ordering::Acquire),
            Keys::Remote(remote) => remote.changes(),
        }
    }

    async fn refresh(&self) {
        if let Keys::Remote(remote) = &*self.keys {
            remote.keep_fresh().await;
        }
    }
}
