//! The catalogue of persisted keys, one file per family.
//!
//! | space | tag | family | key | value |
//! | --- | --- | --- | --- | --- |
//! | meta | 00 | [`counter`] | name | number |
//! | meta | 01 | [`settings`] | topic | settings |
//! | meta | 02 | [`cursor`] | topic, group | cursor |
//! | meta | 03 | [`collection`] | name | number, declaration |
//! | meta | 04 | [`collection`] | number | nothing: dropped, documents to be swept |
//! | meta | 05 | [`collection`] | number | count of documents |
//! | meta | 06 | [`topic_drop`] | topic | number of the topic being deleted |
//! | meta | 07 | [`outbox`] | sequence | row |
//! | meta | 08 | [`outbox`] | status, sequence | nothing |
//! | meta | 09 | [`outbox`] | id | sequence |
//! | meta | 0a | [`row`] | table, key | value |
//! | docs | | [`doc`] | collection, key | document |
//! | index | | [`index`] | collection, index, values, time, key | nothing |
//! | dedupe | 00 | [`dedupe`] | scope, id | expiry |
//! | dedupe | 01 | [`dedupe`] | expiry, scope, id | nothing |
//!
//! Tags are persisted: never change or reuse one. Integers are big-endian. Topic and group names hold no zero byte.

pub(crate) mod collection;
pub(crate) mod counter;
pub(crate) mod cursor;
pub(crate) mod dedupe;
pub(crate) mod doc;
pub(crate) mod index;
pub(crate) mod outbox;
pub(crate) mod row;
pub(crate) mod settings;
pub(crate) mod topic_drop;

/// An engine's longest key.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// `tag | parts`.
fn tagged(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![tag];
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}
