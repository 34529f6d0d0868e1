//! Topic settings.
//!
//! ```text
//! key    01 | topic
//! value  01 | settings as JSON
//! ```

use promethean_model::{TopicName, TopicSettings};

use super::super::codec::{Malformed, RowReader};
use super::tagged;

pub(super) const TAG: u8 = 0x01;
const VERSION: u8 = 1;
const FAMILY: &str = "settings";

/// The prefix of settings.
pub(crate) const PREFIX: [u8; 1] = [TAG];

pub(crate) fn key(topic: &TopicName) -> Vec<u8> {
    tagged(TAG, &[topic.as_str().as_bytes()])
}

pub(crate) fn decode_key(key: &[u8]) -> Result<TopicName, Malformed> {
    let mut reader = RowReader::new(key, FAMILY);
    reader.u8()?;
    let name = reader.rest();
    reader.text(name)?.parse().map_err(|_| reader.malformed())
}

pub(crate) fn value(settings: &TopicSettings) -> Result<Vec<u8>, Malformed> {
    let mut value = vec![VERSION];
    serde_json::to_writer(&mut value, settings).map_err(|_| Malformed { family: FAMILY })?;
    Ok(value)
}

pub(crate) fn decode(value: &[u8]) -> Result<TopicSettings, Malformed> {
    let mut reader = RowReader::new(value, FAMILY);
    if reader.u8()? != VERSION {
        return Err(reader.malformed());
    }
    serde_json::from_slice(reader.rest()).map_err(|_| reader.malformed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let topic: TopicName = "a.b".parse().unwrap();
        assert_eq!(decode_key(&key(&topic)).unwrap(), topic);
        let settings = TopicSettings { compacted: true, partitions: Some(7), ..TopicSettings::default() };
        assert_eq!(decode(&value(&settings).unwrap()).unwrap(), settings);
        assert!(decode(b"\x02{}").is_err());
    }
}
