//! All keys at a time.

use super::JwtError;
use super::header::Header;
use super::key::{Algorithm, Key};
use super::pem;
use crate::auth::{AuthError, Secret};

/// Keys of a set.
pub(super) const KEYS_MAX: usize = 100;
/// Keys that one token is tried with: verifying costs time, which strangers could make us spend.
const TRIED_MAX: usize = 4;

/// Keys by name. One without a name is tried for any name.
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

    /// All public keys of the PEM: the one in use, and the one that follows it.
    pub(super) fn of_pem(text: &[u8]) -> Result<Self, JwtError> {
        let keys = pem::public_keys(text).map_err(JwtError::Pem)?;
        Ok(Self::new(keys.into_iter().map(|key| (None, key)).collect()))
    }

    /// Whether there is a key to try.
    pub(super) fn has(&self, header: &Header) -> bool {
        self.candidates(header).next().is_some()
    }

    pub(super) fn verify(&self, header: &Header, signed: &[u8], signature: &[u8]) -> Result<(), AuthError> {
        if !self.has(header) {
            return Err(AuthError::BadToken("unknown key"));
        }
        if self.candidates(header).nth(TRIED_MAX).is_some() {
            return Err(AuthError::BadToken("without `kid`, where there are several keys"));
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
