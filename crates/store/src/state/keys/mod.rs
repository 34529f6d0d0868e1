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
//! | meta | 06 | [`topic_intent`] | topic | the change that the log must still make |
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
pub(crate) mod topic_intent;

use super::StateSpace;
use super::codec::Malformed;

/// The longest key of an engine.
const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Checks that an entry has the form of its family.
pub(crate) fn check(space: StateSpace, key: &[u8], value: &[u8]) -> Result<(), Malformed> {
    let tag = key.first().copied();
    match (space, tag) {
        (StateSpace::Meta, Some(counter::TAG)) => counter::decode(value).map(drop),
        (StateSpace::Meta, Some(settings::TAG)) => {
            settings::decode_key(key).and(settings::decode(value)).map(drop)
        }
        (StateSpace::Meta, Some(cursor::TAG)) => cursor::decode_key(key).and(cursor::decode(value)).map(drop),
        (StateSpace::Meta, Some(collection::TAG)) => collection::decode(key, value).map(drop),
        (StateSpace::Meta, Some(collection::TAG_DROPPED)) => collection::decode_dropped_key(key).map(drop),
        (StateSpace::Meta, Some(collection::TAG_COUNT)) => counter::decode(value).map(drop),
        (StateSpace::Meta, Some(topic_intent::TAG)) => {
            topic_intent::decode_key(key).and(topic_intent::decode(value)).map(drop)
        }
        (StateSpace::Meta, Some(outbox::TAG)) => outbox::decode(key, value).map(drop),
        (StateSpace::Meta, Some(outbox::TAG_STATUS)) => outbox::decode_status_key(key).map(drop),
        (StateSpace::Meta, Some(outbox::TAG_ID)) => outbox::decode_id_value(value).map(drop),
        (StateSpace::Meta, Some(row::TAG)) => Ok(()),
        (StateSpace::Docs, Some(_)) => doc::decode(key, value).map(drop),
        (StateSpace::Index, Some(_)) => Ok(()),
        (StateSpace::Dedupe, Some(dedupe::TAG)) => dedupe::decode(value).map(drop),
        (StateSpace::Dedupe, Some(dedupe::TAG_EXPIRY)) => dedupe::decode_expiry_key(key).map(drop),
        _ => Err(Malformed { family: "key of no family" }),
    }
}

/// `tag | parts`.
fn tagged(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![tag];
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}
