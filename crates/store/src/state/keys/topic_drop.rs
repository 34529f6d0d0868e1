//! Topics whose deletion has begun. The state part of a deletion and the log's are two steps; a crash between them is
//! finished at the next open.
//!
//! ```text
//! key    06 | topic
//! value  number of the topic in the log, u32
//! ```
//!
//! The number tells the topic that was deleted from one created later under the same name.

use promethean_model::TopicName;

use super::super::codec::{Malformed, Reader};
use super::tagged;

pub(super) const TAG: u8 = 0x06;
const FAMILY: &str = "topic drop";

/// Before every key of the family.
pub(crate) const PREFIX: [u8; 1] = [TAG];

pub(crate) fn key(topic: &TopicName) -> Vec<u8> {
    tagged(TAG, &[topic.as_str().as_bytes()])
}

pub(crate) fn value(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

pub(crate) fn decode(key: &[u8], value: &[u8]) -> Result<(TopicName, u32), Malformed> {
    let mut reader = Reader::new(key, FAMILY);
    reader.u8()?;
    let name = reader.rest();
    let topic = reader.text(name)?.parse().map_err(|_| reader.malformed())?;
    let mut reader = Reader::new(value, FAMILY);
    let number = reader.u32()?;
    reader.end()?;
    Ok((topic, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let topic: TopicName = "a.b".parse().unwrap();
        assert_eq!(decode(&key(&topic), &value(3)).unwrap(), (topic, 3));
    }
}
