//! Public keys as PEM.

use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

use super::key::{KEYS_MAX, Key};

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;

/// The `AlgorithmIdentifier` of each kind, without its outermost tag.
const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
const P256: &[u8] = &[
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
const ED25519: &[u8] = &[0x06, 0x03, 0x2b, 0x65, 0x70];

/// Reads every `PUBLIC KEY`. A key that is not understood is an error, because it was put there to be used.
pub(super) fn public_keys(text: &[u8]) -> Result<Vec<Key>, &'static str> {
    let mut keys = Vec::new();
    for der in SubjectPublicKeyInfoDer::pem_slice_iter(text) {
        let der = der.map_err(|_| "it is damaged")?;
        keys.push(key(&der).ok_or("one is of another kind, or too short")?);
    }
    match keys.len() {
        0 => Err("there is no `BEGIN PUBLIC KEY` in it"),
        1..=KEYS_MAX => Ok(keys),
        _ => Err("it has more than 100"),
    }
}

fn key(der: &[u8]) -> Option<Key> {
    let (info, rest) = element(SEQUENCE, der)?;
    let (algorithm, info) = element(SEQUENCE, info)?;
    let (bits, end) = element(BIT_STRING, info)?;
    if !rest.is_empty() || !end.is_empty() {
        return None;
    }
    // The first byte is the number of unused bits in the last one.
    let bits = bits.strip_prefix(&[0])?;
    match algorithm {
        RSA => {
            let (numbers, _) = element(SEQUENCE, bits)?;
            let (n, numbers) = element(INTEGER, numbers)?;
            let (e, _) = element(INTEGER, numbers)?;
            Key::rsa(n, e)
        }
        P256 => Key::p256(bits),
        ED25519 => Key::ed25519(bits),
        _ => None,
    }
}

/// Splits `der` into the content of its first element and the bytes after that element.
fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = der.strip_prefix(&[tag])?.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        0x81 => {
            let (length, rest) = rest.split_first()?;
            (usize::from(*length), rest)
        }
        0x82 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}
