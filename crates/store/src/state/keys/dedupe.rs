//! Dedupe marks, and the order in which they expire.
//!
//! ```text
//! key  00 | scope u16 len | scope | id                 value  expiry i64
//! key  01 | expiry u64 | scope u16 len | scope | id    value  nothing
//! ```
//!
//! The expiry in keys has its sign bit flipped, so that byte order is that of time. A key of the second form whose time
//! is not the mark's is left over from an earlier mark.

use super::super::codec::{Malformed, RowReader, put_short};
use super::tagged;

pub(super) const TAG: u8 = 0x00;
pub(super) const TAG_EXPIRY: u8 = 0x01;
const FAMILY: &str = "dedupe mark";

/// The most bytes of a scope, and of an id.
pub(crate) const MARK_BYTES_MAX: usize = 4096;

/// The prefix of keys of the second form.
pub(crate) const EXPIRY_PREFIX: [u8; 1] = [TAG_EXPIRY];

/// The name of a mark: the bytes after tag and expiry.
pub(crate) fn name(scope: &str, id: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 + scope.len() + id.len());
    put_short(&mut out, scope.as_bytes());
    out.extend_from_slice(id.as_bytes());
    out
}

pub(crate) fn key(name: &[u8]) -> Vec<u8> {
    tagged(TAG, &[name])
}

/// The prefix of keys of the first form with this scope.
pub(crate) fn scope_prefix(scope: &str) -> Vec<u8> {
    key(&name(scope, ""))
}

/// The id in a key of the first form, after a prefix of this length.
pub(crate) fn decode_id(key: &[u8], prefix_len: usize) -> Result<String, Malformed> {
    let id = key.get(prefix_len..).and_then(|id| str::from_utf8(id).ok());
    id.map(str::to_owned).ok_or_else(|| RowReader::new(key, FAMILY).malformed())
}

pub(crate) fn expiry_key(expires_at: i64, name: &[u8]) -> Vec<u8> {
    tagged(TAG_EXPIRY, &[&(expires_at.cast_unsigned() ^ (1 << 63)).to_be_bytes(), name])
}

/// Expiry and name.
pub(crate) fn decode_expiry_key(key: &[u8]) -> Result<(i64, &[u8]), Malformed> {
    let mut reader = RowReader::new(key, FAMILY);
    reader.u8()?;
    let expires_at = (reader.u64()? ^ (1 << 63)).cast_signed();
    Ok((expires_at, reader.rest()))
}

pub(crate) fn value(expires_at: i64) -> Vec<u8> {
    expires_at.to_be_bytes().to_vec()
}

pub(crate) fn decode(value: &[u8]) -> Result<i64, Malformed> {
    RowReader::new(value, FAMILY).i64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trips_in_order_of_expiry(a: i64, b: i64, scope: String, id: String) {
            let name = name(&scope, &id);
            let entry = expiry_key(a, &name);
            prop_assert_eq!(decode_expiry_key(&entry).unwrap(), (a, name.as_slice()));
            prop_assert_eq!(decode(&value(a)).unwrap(), a);
            prop_assert_eq!(entry.cmp(&expiry_key(b, &name)), a.cmp(&b));
        }
    }

    #[test]
    fn scope_and_id_do_not_run_together() {
        assert_ne!(name("ab", "c"), name("a", "bc"));
    }
}
