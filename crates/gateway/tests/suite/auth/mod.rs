//! Tokens, keys and grants without a server; helpers for the tests of both.

mod claims_are_checked;
mod every_access_follows_the_rules;
mod grants_equal_a_reference;
mod keys_are_fetched_from_a_url;
mod listed_tokens_are_accepted;
pub(super) mod secrets_are_never_shown;
mod signed_tokens_are_verified;

use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use promethean_gateway::auth::{AuthError, Authenticator, Identity};
use promethean_testkit::ManualClock;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use ring::{hmac, rsa};
use serde_json::{Value, json};

/// The time of the tests, in ms.
pub(super) const NOW_MS: i64 = 1_800_000_000_000;
/// The same in s.
pub(super) const NOW: i64 = NOW_MS / 1000;

pub(super) const SECRET: &str = "a secret that nobody guesses, of forty-six b..";
pub(super) const RSA_KEY: &str = include_str!("../../fixtures/rsa.key.pem");
pub(super) const RSA_PUBLIC: &str = include_str!("../../fixtures/rsa.pub.pem");
pub(super) const P256_KEY: &str = include_str!("../../fixtures/p256.key.pem");
pub(super) const P256_PUBLIC: &str = include_str!("../../fixtures/p256.pub.pem");
pub(super) const ED25519_KEY: &str = include_str!("../../fixtures/ed25519.key.pem");
pub(super) const ED25519_PUBLIC: &str = include_str!("../../fixtures/ed25519.pub.pem");

pub(super) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(NOW_MS))
}

/// Runs a future that needs no runtime.
pub(super) fn ask(auth: &dyn Authenticator, token: &str) -> Result<Identity, AuthError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(auth.authenticate(Some(token)))
}

/// The bytes between the lines of a PEM.
pub(super) fn der(pem: &str) -> Vec<u8> {
    let lines: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    data_encoding::BASE64.decode(lines.as_bytes()).unwrap()
}

/// Claims of a token that is valid for an hour.
pub(super) fn claims() -> Value {
    json!({"sub": "billing", "exp": NOW + 3600, "scope": "publish:orders.* subscribe:orders.**"})
}

/// Claims with changes; `null` removes a claim.
pub(super) fn claims_with(changes: &Value) -> Value {
    let mut all = claims();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            all.as_object_mut().unwrap().remove(name);
        } else {
            all[name] = value.clone();
        }
    }
    all
}

pub(super) fn part(json: &Value) -> String {
    BASE64URL_NOPAD.encode(json.to_string().as_bytes())
}

/// A token, signed by `sign`.
pub(super) fn token(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let signed = format!("{}.{}", part(header), part(claims));
    let signature = BASE64URL_NOPAD.encode(&sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

pub(super) fn hs256(secret: &[u8]) -> impl FnOnce(&[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    move |message| hmac::sign(&key, message).as_ref().to_vec()
}

pub(super) fn rs256() -> impl FnOnce(&[u8]) -> Vec<u8> {
    |message| {
        let key = rsa::KeyPair::from_pkcs8(&der(RSA_KEY)).unwrap();
        let mut signature = vec![0; RsaKeyPair::public(&key).modulus_len()];
        let random = SystemRandom::new();
        key.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
        signature
    }
}

pub(super) fn es256() -> impl FnOnce(&[u8]) -> Vec<u8> {
    |message| {
        let random = SystemRandom::new();
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::from_pkcs8(algorithm, &der(P256_KEY), &random).unwrap();
        key.sign(&random, message).unwrap().as_ref().to_vec()
    }
}

pub(super) fn eddsa() -> impl FnOnce(&[u8]) -> Vec<u8> {
    |message| {
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der(ED25519_KEY)).unwrap();
        key.sign(message).as_ref().to_vec()
    }
}

/// The public keys of the fixtures as a JWK set, made from their bytes.
pub(super) fn jwks() -> Value {
    let base64 = |bytes: &[u8]| BASE64URL_NOPAD.encode(bytes);
    let key = rsa::KeyPair::from_pkcs8(&der(RSA_KEY)).unwrap();
    let numbers: rsa::PublicKeyComponents<Vec<u8>> = key.public().into();
    let p256 = der(P256_PUBLIC);
    let point = &p256[p256.len() - 64..];
    let ed25519 = der(ED25519_PUBLIC);
    json!({"keys": [
        {"kty": "RSA", "kid": "rsa", "alg": "RS256", "use": "sig",
         "n": base64(&numbers.n), "e": base64(&numbers.e)},
        {"kty": "EC", "crv": "P-256", "kid": "p256", "x": base64(&point[..32]), "y": base64(&point[32..])},
        {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": base64(&ed25519[ed25519.len() - 32..])},
        // A key that cannot be used is no reason to refuse the others.
        {"kty": "EC", "crv": "P-521", "kid": "other", "x": "AA", "y": "AA"},
        {"kty": "RSA", "kid": "enc", "use": "enc", "n": base64(&numbers.n), "e": base64(&numbers.e)},
        {"kty": "RSA", "kid": "rs512", "alg": "RS512", "n": base64(&numbers.n), "e": base64(&numbers.e)},
        {"nonsense": true}
    ]})
}
