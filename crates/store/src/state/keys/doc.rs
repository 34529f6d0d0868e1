//! Documents.
//!
//! ```text
//! key    collection u32 | key
//! value  ts i64 | revision u64 | has version u8 | version i64 | body
//! ```

use super::super::codec::{Malformed, RowReader};
use crate::port::Doc;

const FAMILY: &str = "document";

/// The longest key of a document; with the longest index values it still fits the longest key of an engine.
pub(crate) const DOC_KEY_BYTES_MAX: usize = 8 << 10;

pub(crate) fn prefix(collection: u32) -> [u8; 4] {
    collection.to_be_bytes()
}

pub(crate) fn key(collection: u32, key: &str) -> Vec<u8> {
    [&prefix(collection), key.as_bytes()].concat()
}

pub(crate) fn value(doc: &Doc) -> Vec<u8> {
    let mut out = Vec::with_capacity(25 + doc.body.len());
    out.extend(doc.ts.to_be_bytes());
    out.extend(doc.revision.to_be_bytes());
    out.push(u8::from(doc.version.is_some()));
    out.extend(doc.version.unwrap_or(0).to_be_bytes());
    out.extend_from_slice(doc.body.as_bytes());
    out
}

pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<Doc, Malformed> {
    let mut reader = RowReader::new(key, FAMILY);
    reader.u32()?;
    let key = reader.rest();
    let key = reader.text(key)?.to_owned();
    let mut reader = RowReader::new(value, FAMILY);
    let ts = reader.i64()?;
    let revision = reader.u64()?;
    let has_version = reader.u8()? != 0;
    let version = reader.i64()?;
    let body = reader.rest();
    let body = reader.text(body)?.to_owned();
    Ok(Doc { key, ts, version: has_version.then_some(version), revision, body })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trips(
            number: u32,
            doc_key: String,
            ts: i64,
            version: Option<i64>,
            revision: u64,
            body: String,
        ) {
            let doc = Doc { key: doc_key, ts, version, revision, body };
            prop_assert_eq!(decode(&key(number, &doc.key), &value(&doc)).unwrap(), doc);
        }
    }
}
