//! Cursors.
//!
//! ```text
//! key    02 | topic | 00 | group
//! value  floor u64 | epoch u64 | data
//! ```
//!
//! There is no second order by group: a cursor may be written by durable and by derived batches, and after a power cut
//! the two could disagree about it.

use promethean_model::{GroupName, Offset, TopicName};

use super::super::codec::{Malformed, RowReader};
use super::tagged;
use crate::port::Cursor;

pub(super) const TAG: u8 = 0x02;
const FAMILY: &str = "cursor";

pub(crate) fn key(group: &GroupName, topic: &TopicName) -> Vec<u8> {
    tagged(TAG, &[topic.as_str().as_bytes(), &[0], group.as_str().as_bytes()])
}

pub(crate) fn topic_prefix(topic: &TopicName) -> Vec<u8> {
    tagged(TAG, &[topic.as_str().as_bytes(), &[0]])
}

/// The prefix of cursors.
pub(crate) const PREFIX: [u8; 1] = [TAG];

pub(crate) fn decode_key(key: &[u8]) -> Result<(GroupName, TopicName), Malformed> {
    let mut reader = RowReader::new(key, FAMILY);
    reader.u8()?;
    let topic = reader.until_zero()?;
    let group = reader.rest();
    Ok((
        reader.text(group)?.parse().map_err(|_| reader.malformed())?,
        reader.text(topic)?.parse().map_err(|_| reader.malformed())?,
    ))
}

pub(crate) fn value(cursor: &Cursor) -> Vec<u8> {
    let mut value = Vec::with_capacity(16 + cursor.data.len());
    value.extend(cursor.floor.get().to_be_bytes());
    value.extend(cursor.epoch.to_be_bytes());
    value.extend_from_slice(&cursor.data);
    value
}

pub(crate) fn decode(value: &[u8]) -> Result<Cursor, Malformed> {
    let mut reader = RowReader::new(value, FAMILY);
    Ok(Cursor { floor: Offset(reader.u64()?), epoch: reader.u64()?, data: reader.rest().to_vec() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trips(
            topic in "[a-z]{1,4}(\\.[a-z]{1,4}){0,2}",
            group in "[A-Za-z0-9_.:-]{1,8}",
            floor: u64,
            epoch: u64,
            data: Vec<u8>,
        ) {
            let topic: TopicName = topic.parse().unwrap();
            let group: GroupName = group.parse().unwrap();
            prop_assert_eq!(decode_key(&key(&group, &topic)).unwrap(), (group.clone(), topic.clone()));
            prop_assert!(key(&group, &topic).starts_with(&topic_prefix(&topic)));
            let cursor = Cursor { floor: Offset(floor), epoch, data };
            prop_assert_eq!(decode(&value(&cursor)).unwrap(), cursor);
        }
    }
}
