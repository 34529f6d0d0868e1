//! Every cap, the configured ones, and the checks of a publish against them. Constants named `_DEFAULT` can
//! be configured, through [`Limits`] or a setting.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::meta::EventMeta;

/// Bytes of a topic's name.
pub const TOPIC_NAME_BYTES_MAX: usize = 180;
/// Bytes of the name of a group, member or collection.
pub const PLAIN_NAME_BYTES_MAX: usize = 120;

/// Bytes of an event's payload as JSON text.
pub const PAYLOAD_BYTES_MAX_DEFAULT: usize = 1 << 20;
/// Headers of one event.
pub const HEADERS_MAX_DEFAULT: usize = 64;
/// Bytes of the names and values of one event's headers together.
pub const HEADER_BYTES_MAX_DEFAULT: usize = 8 << 10;
/// Bytes of a key.
pub const KEY_BYTES_MAX_DEFAULT: usize = 1 << 10;
/// Tags of one event.
pub const TAGS_MAX_DEFAULT: usize = 32;
/// Bytes of one event's tags together.
pub const TAG_BYTES_MAX_DEFAULT: usize = 2 << 10;
/// Causes named by one event.
pub const CAUSED_BY_MAX_DEFAULT: usize = 64;
/// Bytes of a session id.
pub const SID_BYTES_MAX_DEFAULT: usize = 256;
/// Events of one batch.
pub const BATCH_EVENTS_MAX_DEFAULT: usize = 1_000;
/// Bytes of one message or request body.
pub const MESSAGE_BYTES_MAX_DEFAULT: usize = 16 << 20;
/// Topics of one server.
pub const TOPICS_MAX_DEFAULT: usize = 100_000;

/// Bytes of a key that no configuration may exceed: the log keeps a key's length in 16 bits.
pub const KEY_BYTES_CEILING: usize = u16::MAX as usize;
/// Bytes of a message that no configuration may exceed: the log keeps a record's length in 32 bits, and a
/// journal frame holds a whole message.
pub const MESSAGE_BYTES_CEILING: usize = 256 << 20;

/// Partitions of a topic or group.
pub const PARTITIONS_MAX: u32 = 4_096;
/// Deliveries of one event to one group before it becomes a dead letter.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// The same where neither group nor topic sets a number.
pub const ATTEMPTS_DEFAULT: u32 = 5;

// A full event in a frame of its own must fit into a message. JSON may write a byte of text as six
// (`\u0001`).
const _: () = assert!(
    PAYLOAD_BYTES_MAX_DEFAULT
        + 6 * (HEADER_BYTES_MAX_DEFAULT
            + KEY_BYTES_MAX_DEFAULT
            + TAG_BYTES_MAX_DEFAULT
            + SID_BYTES_MAX_DEFAULT)
        + 40 * CAUSED_BY_MAX_DEFAULT
        + (64 << 10)
        <= MESSAGE_BYTES_MAX_DEFAULT
);
// A full batch of small events must fit into a message.
const _: () = assert!(BATCH_EVENTS_MAX_DEFAULT * (8 << 10) <= MESSAGE_BYTES_MAX_DEFAULT);
const _: () = assert!(KEY_BYTES_MAX_DEFAULT <= KEY_BYTES_CEILING);
const _: () = assert!(MESSAGE_BYTES_MAX_DEFAULT <= MESSAGE_BYTES_CEILING);
const _: () = assert!(MESSAGE_BYTES_CEILING <= u32::MAX as usize);
// `<collection>.changed` of the longest collection is still a topic.
const _: () = assert!(PLAIN_NAME_BYTES_MAX + ".changed".len() <= TOPIC_NAME_BYTES_MAX);
const _: () = assert!(ATTEMPTS_DEFAULT >= 1 && ATTEMPTS_DEFAULT <= ATTEMPTS_MAX);

/// The configured caps of a publish. Unknown keys are refused, absent keys have their default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a payload. Default: 1 MiB.
    pub payload_bytes_max: usize,
    /// Headers of an event. Default: 64.
    pub headers_max: usize,
    /// Bytes of an event's headers together. Default: 8 KiB.
    pub header_bytes_max: usize,
    /// Bytes of a key. Default: 1 KiB. Maximum: 65,535.
    pub key_bytes_max: usize,
    /// Tags of an event. Default: 32.
    pub tags_max: usize,
    /// Bytes of an event's tags together. Default: 2 KiB.
    pub tag_bytes_max: usize,
    /// Causes named by an event. Default: 64.
    pub caused_by_max: usize,
    /// Bytes of a session id. Default: 256.
    pub sid_bytes_max: usize,
    /// Events of a batch. Default: 1,000. Minimum: 1.
    pub batch_events_max: usize,
    /// Bytes of a message or request body. Default: 16 MiB. Maximum: 256 MiB.
    pub message_bytes_max: usize,
    /// Topics of the server. Default: 100,000.
    pub topics_max: usize,
}

/// The parts of an event to publish that the caps apply to.
#[derive(Debug, Clone, Copy)]
pub struct EventParts<'a> {
    /// Its key.
    pub key: Option<&'a str>,
    /// The length of its payload as JSON text.
    pub payload_bytes: usize,
    /// Its other fields.
    pub meta: &'a EventMeta,
}

/// The things that have a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limited {
    /// Bytes of a payload.
    PayloadBytes,
    /// Number of headers.
    Headers,
    /// Bytes of the headers together.
    HeaderBytes,
    /// Bytes of a key.
    KeyBytes,
    /// Number of tags.
    Tags,
    /// Bytes of the tags together.
    TagBytes,
    /// Number of causes.
    CausedBy,
    /// Bytes of a session id.
    SidBytes,
    /// Events of a batch.
    BatchEvents,
    /// Bytes of a message or body.
    MessageBytes,
    /// Number of topics.
    Topics,
}

/// The error for something over its cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{what}: {size} given, at most {max} allowed; send less, or have `limits.events.{}` raised", what.setting())]
pub struct LimitError {
    /// What is over its cap.
    pub what: Limited,
    /// Its size.
    pub size: usize,
    /// The cap.
    pub max: usize,
}

/// The error for configured caps that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`limits.events.{setting}` is {given}; give a number from {min} to {max}")]
pub struct LimitsError {
    /// The setting.
    pub setting: &'static str,
    /// The given number.
    pub given: usize,
    /// The least number that works.
    pub min: usize,
    /// The greatest number that works.
    pub max: usize,
}

impl Limits {
    /// Refuses caps that the log's format or another cap makes impossible.
    pub fn validate(&self) -> Result<(), LimitsError> {
        let part_max = self.message_bytes_max;
        [
            (Limited::MessageBytes, self.message_bytes_max, 1, MESSAGE_BYTES_CEILING),
            (Limited::PayloadBytes, self.payload_bytes_max, 1, part_max),
            (Limited::HeaderBytes, self.header_bytes_max, 0, part_max),
            (Limited::TagBytes, self.tag_bytes_max, 0, part_max),
            (Limited::SidBytes, self.sid_bytes_max, 0, part_max),
            (Limited::CausedBy, self.caused_by_max, 0, part_max),
            (Limited::KeyBytes, self.key_bytes_max, 1, KEY_BYTES_CEILING),
            (Limited::BatchEvents, self.batch_events_max, 1, usize::MAX),
            (Limited::Topics, self.topics_max, 1, usize::MAX),
        ]
        .into_iter()
        .try_for_each(|(what, given, min, max)| {
            let fits = (min..=max).contains(&given);
            if fits { Ok(()) } else { Err(LimitsError { setting: what.setting(), given, min, max }) }
        })
    }

    /// Checks one event.
    pub fn check_event(&self, event: &EventParts<'_>) -> Result<(), LimitError> {
        within(Limited::PayloadBytes, event.payload_bytes, self.payload_bytes_max)?;
        self.check_key(event.key.unwrap_or_default())?;
        self.check_meta(event.meta)
    }

    /// Checks a key. Any text is a key; only its length counts.
    pub fn check_key(&self, key: &str) -> Result<(), LimitError> {
        within(Limited::KeyBytes, key.len(), self.key_bytes_max)
    }

    /// Checks the optional fields of an event beside its key.
    pub fn check_meta(&self, meta: &EventMeta) -> Result<(), LimitError> {
        if let Some(headers) = &meta.headers {
            within(Limited::Headers, headers.len(), self.headers_max)?;
            let bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
            within(Limited::HeaderBytes, bytes, self.header_bytes_max)?;
        }
        if let Some(tags) = &meta.tags {
            within(Limited::Tags, tags.len(), self.tags_max)?;
            within(Limited::TagBytes, tags.iter().map(String::len).sum(), self.tag_bytes_max)?;
        }
        within(Limited::CausedBy, meta.caused_by.as_ref().map_or(0, Vec::len), self.caused_by_max)?;
        within(Limited::SidBytes, meta.sid.as_ref().map_or(0, String::len), self.sid_bytes_max)
    }

    /// Checks the number of events in a batch.
    pub fn check_batch(&self, events: usize) -> Result<(), LimitError> {
        within(Limited::BatchEvents, events, self.batch_events_max)
    }

    /// Checks the length of a message or body.
    pub fn check_message(&self, bytes: usize) -> Result<(), LimitError> {
        within(Limited::MessageBytes, bytes, self.message_bytes_max)
    }

    /// Checks the number of topics there would be.
    pub fn check_topics(&self, topics: usize) -> Result<(), LimitError> {
        within(Limited::Topics, topics, self.topics_max)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: PAYLOAD_BYTES_MAX_DEFAULT,
            headers_max: HEADERS_MAX_DEFAULT,
            header_bytes_max: HEADER_BYTES_MAX_DEFAULT,
            key_bytes_max: KEY_BYTES_MAX_DEFAULT,
            tags_max: TAGS_MAX_DEFAULT,
            tag_bytes_max: TAG_BYTES_MAX_DEFAULT,
            caused_by_max: CAUSED_BY_MAX_DEFAULT,
            sid_bytes_max: SID_BYTES_MAX_DEFAULT,
            batch_events_max: BATCH_EVENTS_MAX_DEFAULT,
            message_bytes_max: MESSAGE_BYTES_MAX_DEFAULT,
            topics_max: TOPICS_MAX_DEFAULT,
        }
    }
}

impl Limited {
    /// The name of its cap, a field of [`Limits`].
    pub const fn setting(self) -> &'static str {
        match self {
            Self::PayloadBytes => "payload_bytes_max",
            Self::Headers => "headers_max",
            Self::HeaderBytes => "header_bytes_max",
            Self::KeyBytes => "key_bytes_max",
            Self::Tags => "tags_max",
            Self::TagBytes => "tag_bytes_max",
            Self::CausedBy => "caused_by_max",
            Self::SidBytes => "sid_bytes_max",
            Self::BatchEvents => "batch_events_max",
            Self::MessageBytes => "message_bytes_max",
            Self::Topics => "topics_max",
        }
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PayloadBytes => "bytes of payload",
            Self::Headers => "number of headers",
            Self::HeaderBytes => "bytes of headers",
            Self::KeyBytes => "bytes of key",
            Self::Tags => "number of tags",
            Self::TagBytes => "bytes of tags",
            Self::CausedBy => "number of causes",
            Self::SidBytes => "bytes of sid",
            Self::BatchEvents => "events of the batch",
            Self::MessageBytes => "bytes of the message",
            Self::Topics => "number of topics",
        })
    }
}

fn within(what: Limited, size: usize, max: usize) -> Result<(), LimitError> {
    if size > max { Err(LimitError { what, size, max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(key: Option<&str>, payload_bytes: usize, meta: &EventMeta) -> Option<(Limited, usize)> {
        let parts = EventParts { key, payload_bytes, meta };
        Limits::default().check_event(&parts).err().map(|error| (error.what, error.size))
    }

    fn headers(count: usize, value_bytes: usize) -> EventMeta {
        let headers = (0..count).map(|n| (format!("h{n:03}"), "v".repeat(value_bytes))).collect();
        EventMeta { headers: Some(headers), ..EventMeta::default() }
    }

    #[test]
    fn each_cap_is_inclusive() {
        let none = EventMeta::default();
        let id = crate::id::EventId::from_bytes([0; 16]);
        let tags =
            |count, bytes| EventMeta { tags: Some(vec!["t".repeat(bytes); count]), ..EventMeta::default() };
        let causes = |count| EventMeta { caused_by: Some(vec![id; count]), ..EventMeta::default() };
        let sid = |bytes| EventMeta { sid: Some("s".repeat(bytes)), ..EventMeta::default() };

        assert_eq!(over(Some(&"k".repeat(1024)), 1 << 20, &none), None);
        assert_eq!(over(Some(&"\u{e9}".repeat(513)), 1, &none), Some((Limited::KeyBytes, 1026)));
        assert_eq!(over(Some("any\0text"), (1 << 20) + 1, &none), Some((Limited::PayloadBytes, 1_048_577)));
        assert_eq!(over(None, 1, &headers(64, 124)), None);
        assert_eq!(over(None, 1, &headers(65, 0)), Some((Limited::Headers, 65)));
        assert_eq!(over(None, 1, &headers(64, 125)), Some((Limited::HeaderBytes, 8256)));
        assert_eq!(over(None, 1, &tags(32, 64)), None);
        assert_eq!(over(None, 1, &tags(33, 1)), Some((Limited::Tags, 33)));
        assert_eq!(over(None, 1, &tags(1, 2049)), Some((Limited::TagBytes, 2049)));
        assert_eq!(over(None, 1, &causes(64)), None);
        assert_eq!(over(None, 1, &causes(65)), Some((Limited::CausedBy, 65)));
        assert_eq!(over(None, 1, &sid(256)), None);
        assert_eq!(over(None, 1, &sid(257)), Some((Limited::SidBytes, 257)));

        let limits = Limits::default();
        assert!(limits.check_batch(1000).is_ok() && limits.check_batch(1001).is_err());
        assert!(limits.check_message(16 << 20).is_ok() && limits.check_message((16 << 20) + 1).is_err());
        assert!(limits.check_topics(100_000).is_ok() && limits.check_topics(100_001).is_err());
    }

    #[test]
    fn messages_say_what_to_do() {
        assert_eq!(
            Limits::default().check_batch(2000).unwrap_err().to_string(),
            "events of the batch: 2000 given, at most 1000 allowed; send less, or have `limits.events.batch_events_max` raised"
        );
    }

    #[test]
    fn impossible_configurations_are_refused() {
        assert_eq!(Limits::default().validate(), Ok(()));
        let check = |json: &str, setting: &str| {
            let limits: Limits = serde_json::from_str(json).unwrap();
            assert_eq!(limits.validate().unwrap_err().setting, setting);
        };
        check(r#"{"key_bytes_max": 65536}"#, "key_bytes_max");
        check(r#"{"payload_bytes_max": 16777217}"#, "payload_bytes_max");
        check(r#"{"message_bytes_max": 268435457}"#, "message_bytes_max");
        check(r#"{"batch_events_max": 0}"#, "batch_events_max");
        assert!(serde_json::from_str::<Limits>(r#"{"payload_max": 1}"#).is_err());
    }
}
