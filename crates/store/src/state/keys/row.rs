//! Rows of small tables.
//!
//! ```text
//! key    0a | table u8 | key
//! value  value
//! ```

use super::tagged;
use crate::port::Table;

pub(crate) const TAG: u8 = 0x0a;

pub(crate) fn key(table: Table, key: &[u8]) -> Vec<u8> {
    tagged(TAG, &[&[table as u8], key])
}

/// The part of a stored key that the caller gave.
pub(crate) fn decode_key(key: &[u8]) -> &[u8] {
    key.get(2..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        assert_eq!(key(Table::Schemas, b"ab"), [0x0a, 3, b'a', b'b']);
        assert_eq!(decode_key(&key(Table::Schemas, b"ab")), b"ab");
        let numbers: Vec<u8> = Table::ALL.into_iter().map(|table| table as u8).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8], "persisted");
    }
}
