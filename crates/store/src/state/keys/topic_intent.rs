//! Topic intents: deletions and creations of topics that are noted in the state and not yet made in the log. A crash
//! between the two steps is made good at the next open.
//!
//! ```text
//! key    06 | topic
//! value  deletes u8 | number in the log of the topic to delete u32 | creates u8
//! ```
//!
//! The number distinguishes the topic to delete from a topic created later under the same name. The deletion comes first.

use promethean_model::TopicName;

use super::super::codec::{Malformed, RowReader};
use super::tagged;

pub(super) const TAG: u8 = 0x06;
const FAMILY: &str = "topic intent";

/// The prefix of topic intents.
pub(crate) const PREFIX: [u8; 1] = [TAG];

/// The change of a topic that the log must still make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TopicIntent {
    pub(crate) delete: Option<u32>,
    pub(crate) create: bool,
}

pub(crate) fn key(topic: &TopicName) -> Vec<u8> {
    tagged(TAG, &[topic.as_str().as_bytes()])
}

pub(crate) fn decode_key(key: &[u8]) -> Result<TopicName, Malformed> {
    let mut reader = RowReader::new(key, FAMILY);
    reader.u8()?;
    let name = reader.rest();
    reader.text(name)?.parse().map_err(|_| reader.malformed())
}

pub(crate) fn value(intent: TopicIntent) -> Vec<u8> {
    let mut out = vec![u8::from(intent.delete.is_some())];
    out.extend(intent.delete.unwrap_or(0).to_be_bytes());
    out.push(u8::from(intent.create));
    out
}

pub(crate) fn decode(value: &[u8]) -> Result<TopicIntent, Malformed> {
    let mut reader = RowReader::new(value, FAMILY);
    let deletes = reader.u8()? != 0;
    let number = reader.u32()?;
    let create = reader.u8()? != 0;
    reader.end()?;
    Ok(TopicIntent { delete: deletes.then_some(number), create })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let topic: TopicName = "a.b".parse().unwrap();
        assert_eq!(decode_key(&key(&topic)).unwrap(), topic);
        for delete in [None, Some(0), Some(7)] {
            for create in [false, true] {
                let intent = TopicIntent { delete, create };
                assert_eq!(decode(&value(intent)).unwrap(), intent);
            }
        }
    }
}
