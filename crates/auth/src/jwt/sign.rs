//! Making signed tokens.

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use serde_json::Value;

use super::JwtError;
use super::key::SECRET_BYTES_MIN;
use crate::Secret;

/// Makes a token with these claims, signed with HS256.
pub fn hs256(secret: &Secret, claims: &Value) -> Result<Secret, JwtError> {
    let bytes = secret.reveal();
    if bytes.len() < SECRET_BYTES_MIN {
        return Err(JwtError::ShortSecret { bytes: bytes.len() });
    }
    let part = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
    let signed = format!("{}.{}", part(r#"{"alg":"HS256","typ":"JWT"}"#), part(&claims.to_string()));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, bytes), signed.as_bytes());
    Ok(format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref())).into())
}
