//! Keys, and sets of keys.

use std::fmt;

use ring::hmac;
use ring::rsa::PublicKeyComponents;
use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

use super::JwtError;
use super::pem;
use super::token::Header;
use crate::{AuthError, Secret};

/// Shortest modulus that is accepted, 2048 bit.
const RSA_BYTES_MIN: usize = 256;
/// Longest modulus that is accepted, 8192 bit.
const RSA_BYTES_MAX: usize = 1024;
/// Shortest secret: as long as the hash (RFC 7518, 3.2).
pub(super) const SECRET_BYTES_MIN: usize = 32;

/// Keys of a set, at most.
pub(super) const KEYS_MAX: usize = 100;
/// Keys that one token is verified with, at most: a stranger's token must not cost much time.
const TRIED_MAX: usize = 4;

/// The accepted algorithms. `none` is not one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Hs256,
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub(super) fn of_header(alg: &str) -> Option<Self> {
        match alg {
            "HS256" => Some(Self::Hs256),
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            // `Ed25519` is the name of RFC 9864 for `EdDSA` with this curve.
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// A key. Its kind decides its algorithm, so a key can never be used with another algorithm.
#[derive(Clone)]
pub(super) enum Key {
    Hmac(hmac::Key),
    /// Big-endian, without leading zeros.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// The point, uncompressed.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Key {
    pub(super) fn hmac(secret: &[u8]) -> Option<Self> {
        (secret.len() >= SECRET_BYTES_MIN).then(|| Self::Hmac(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// From big-endian numbers.
    pub(super) fn rsa(n: &[u8], e: &[u8]) -> Option<Self> {
        let (n, e) = (without_zeros(n), without_zeros(e));
        let fits = (RSA_BYTES_MIN..=RSA_BYTES_MAX).contains(&n.len()) && (1..=5).contains(&e.len());
        fits.then(|| Self::Rsa { n: n.to_vec(), e: e.to_vec() })
    }

    /// From a point: `04`, x, y.
    pub(super) fn p256(point: &[u8]) -> Option<Self> {
        (point.len() == 65 && point.first() == Some(&4)).then(|| Self::P256(point.to_vec()))
    }

    pub(super) fn ed25519(point: &[u8]) -> Option<Self> {
        (point.len() == 32).then(|| Self::Ed25519(point.to_vec()))
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Hmac(_) => Algorithm::Hs256,
            Self::Rsa { .. } => Algorithm::Rs256,
            Self::P256(_) => Algorithm::Es256,
            Self::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Whether the message was signed with this key.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let result = match self {
            Self::Hmac(key) => hmac::verify(key, message, signature),
            Self::Rsa { n, e } => {
                PublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Self::Ed25519(point) => UnparsedPublicKey::new(&ED25519, point).verify(message, signature),
        };
        result.is_ok()
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.algorithm())
    }
}

/// A set of keys by name. A key without a name is tried for every name.
#[derive(Debug, Default)]
pub(super) struct KeySet {
    keys: Vec<(Option<String>, Key)>,
}

impl KeySet {
    pub(super) fn new(keys: Vec<(Option<String>, Key)>) -> Self {
        Self { keys }
    }

    pub(super) fn of_secret(secret: &Secret) -> Result<Self, JwtError> {
        let bytes = secret.reveal();
        let key = Key::hmac(bytes).ok_or(JwtError::ShortSecret { bytes: bytes.len() })?;
        Ok(Self::new(vec![(None, key)]))
    }

    /// All public keys of a PEM: the current key, and perhaps its successor.
    pub(super) fn of_pem(text: &[u8]) -> Result<Self, JwtError> {
        let keys = pem::public_keys(text).map_err(JwtError::Pem)?;
        Ok(Self::new(keys.into_iter().map(|key| (None, key)).collect()))
    }

    /// Whether some key fits this header.
    pub(super) fn has(&self, header: &Header) -> bool {
        self.candidates(header).next().is_some()
    }

    pub(super) fn verify(&self, header: &Header, signed: &[u8], signature: &[u8]) -> Result<(), AuthError> {
        if !self.has(header) {
            return Err(AuthError::BadToken("unknown key"));
        }
        if self.candidates(header).nth(TRIED_MAX).is_some() {
            return Err(AuthError::BadToken("it has no `kid`, and there are several keys"));
        }
        if self.candidates(header).any(|key| key.verifies(signed, signature)) {
            return Ok(());
        }
        Err(AuthError::BadToken("wrong signature"))
    }

    fn candidates(&self, header: &Header) -> impl Iterator<Item = &Key> {
        let (algorithm, asked): (Algorithm, Option<&str>) = (header.algorithm, header.kid.as_deref());
        let named = move |kid: Option<&str>| kid.is_none() || asked.is_none() || kid == asked;
        let fitting =
            self.keys.iter().filter(move |(kid, key)| key.algorithm() == algorithm && named(kid.as_deref()));
        fitting.map(|(_, key)| key)
    }
}
