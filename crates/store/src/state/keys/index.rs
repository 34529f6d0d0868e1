//! Index entries.
//!
//! ```text
//! key    collection u32 | index u16 | values, see `value_bytes` | newest first i64 | document key
//! value  nothing
//! ```
//!
//! Index 0 has no values: every document, newest first. The others are the declared ones, from 1. "Newest first" is `ts`
//! with all bits but the sign's inverted, so that greater times sort lower; documents with equal values are thus
//! listed newest first without being read.

use super::super::codec::{Malformed, RowReader};
use super::super::value_bytes::{self, VALUE_BYTES_MAX};
use super::KEY_BYTES_MAX;
use super::doc::DOC_KEY_BYTES_MAX;
use crate::port::{Direction, INDEX_FIELDS_MAX};
use crate::value::Value;

const FAMILY: &str = "index entry";

const _: () = assert!(6 + INDEX_FIELDS_MAX * VALUE_BYTES_MAX + 8 + DOC_KEY_BYTES_MAX <= KEY_BYTES_MAX);

/// The number of the index of all documents by time.
pub(crate) const BY_TIME: u16 = 0;

/// Time and document key, which follow the values of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryTail {
    pub(crate) ts: i64,
    pub(crate) key: String,
}

/// The prefix of entries of a collection.
pub(crate) fn collection_prefix(collection: u32) -> [u8; 4] {
    collection.to_be_bytes()
}

/// The part of an entry before its time. Once all fields are given, exactly the entries of documents with these values
/// begin with it.
pub(crate) fn prefix<'a>(
    collection: u32,
    index: u16,
    values: impl IntoIterator<Item = (&'a Value, Direction)>,
) -> Vec<u8> {
    let mut out = collection.to_be_bytes().to_vec();
    out.extend(index.to_be_bytes());
    for (value, direction) in values {
        value_bytes::put(&mut out, value, direction);
    }
    out
}

pub(crate) fn key(mut prefix: Vec<u8>, ts: i64, key: &str) -> Vec<u8> {
    prefix.extend(newest_first(ts));
    prefix.extend_from_slice(key.as_bytes());
    prefix
}

/// Reads time and document key after a prefix of this length.
pub(crate) fn decode_tail(entry: &[u8], prefix_len: usize) -> Result<EntryTail, Malformed> {
    let mut reader = RowReader::new(entry, FAMILY);
    reader.take(prefix_len)?;
    let ts = oldest_last(reader.u64()?);
    let key = reader.rest();
    Ok(EntryTail { ts, key: reader.text(key)?.to_owned() })
}

fn newest_first(ts: i64) -> [u8; 8] {
    // Flipping the sign bit makes byte order equal to number order; inverting the bits makes the order descend.
    (!(ts.cast_unsigned() ^ (1 << 63))).to_be_bytes()
}

fn oldest_last(bits: u64) -> i64 {
    (!bits ^ (1 << 63)).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trips_newest_first(a: i64, b: i64, text: String, doc_key: String) {
            let value = Value::Text(text);
            let prefix = prefix(7, 2, [(&value, Direction::Ascending)]);
            let entry = key(prefix.clone(), a, &doc_key);
            prop_assert_eq!(
                decode_tail(&entry, prefix.len()).unwrap(),
                EntryTail { ts: a, key: doc_key.clone() }
            );
            let other = key(prefix, b, &doc_key);
            prop_assert_eq!(entry.cmp(&other), b.cmp(&a));
        }
    }
}
