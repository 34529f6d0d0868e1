//! The event as users see it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::id::EventId;
use crate::meta::EventMeta;
use crate::name::TopicName;
use crate::offset::Offset;

/// One event of a topic. In JSON, absent fields are left out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// Its id, unique in its topic for the topic's dedupe window.
    pub id: EventId,
    /// Its time in milliseconds since 1970 began: the server's stamp, unless the publisher gave a time.
    pub ts: i64,
    /// Its topic.
    pub topic: TopicName,
    /// Its offset in the topic.
    pub offset: Offset,
    /// Its key: what it is about. Events of one key can be kept in order, compacted and folded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its label for routing, if the topic has partitions or the publisher gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Its headers: texts by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Its payload: the text of any JSON value; `null` is a tombstone.
    pub payload: Box<RawValue>,
    /// Its tags: words to filter by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// The events that led to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caused_by: Option<Vec<EventId>>,
    /// The session of its publisher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
}

impl Event {
    /// Whether the payload is `null`, which deletes the key.
    pub fn is_tombstone(&self) -> bool {
        self.payload.get() == "null"
    }

    /// Copies the optional fields beside the key.
    pub fn meta(&self) -> EventMeta {
        EventMeta {
            partition: self.partition,
            headers: self.headers.clone(),
            tags: self.tags.clone(),
            caused_by: self.caused_by.clone(),
            sid: self.sid.clone(),
        }
    }

    /// Replaces the optional fields beside the key.
    pub fn with_meta(self, meta: EventMeta) -> Self {
        let EventMeta { partition, headers, tags, caused_by, sid } = meta;
        Self { partition, headers, tags, caused_by, sid, ..self }
    }
}

/// Payloads are compared as texts.
impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.ts == other.ts
            && self.topic == other.topic
            && self.offset == other.offset
            && self.key == other.key
            && self.partition == other.partition
            && self.headers == other.headers
            && self.payload.get() == other.payload.get()
            && self.tags == other.tags
            && self.caused_by == other.caused_by
            && self.sid == other.sid
    }
}

impl Eq for Event {}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";

    fn read(json: &str) -> Event {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn json_has_the_contracts_fields() {
        let least = format!(r#"{{"id":"{ID}","ts":-1,"topic":"a.b","offset":0,"payload":{{"n":1.50}}}}"#);
        let most = format!(
            r#"{{"id":"{ID}","ts":1,"topic":"a.b","offset":7,"key":"k","partition":3,"headers":{{"a":"1","b":""}},"payload":null,"tags":["t"],"caused_by":["{ID}"],"sid":"s"}}"#
        );
        for json in [least, most] {
            assert_eq!(serde_json::to_string(&read(&json)).unwrap(), json);
        }
    }

    #[test]
    fn null_and_nothing_else_is_a_tombstone() {
        let tombstone = |payload: &str| {
            read(&format!(r#"{{"id":"{ID}","ts":0,"topic":"a","offset":0,"payload":{payload}}}"#))
                .is_tombstone()
        };
        assert!(tombstone("null") && tombstone(" \n null "));
        assert!(!tombstone("\"null\"") && !tombstone("{}") && !tombstone("0") && !tombstone("[null]"));
    }

    #[test]
    fn refuses_what_is_no_event() {
        for json in [
            format!(r#"{{"id":"{ID}","ts":0,"topic":"a","offset":0}}"#),
            format!(r#"{{"id":"{ID}","ts":0,"topic":"A","offset":0,"payload":1}}"#),
            format!(r#"{{"id":"{ID}","ts":0,"topic":"a","offset":-1,"payload":1}}"#),
            format!(r#"{{"id":"x{ID}","ts":0,"topic":"a","offset":0,"payload":1}}"#),
        ] {
            assert!(serde_json::from_str::<Event>(&json).is_err(), "{json}");
        }
    }

    #[test]
    fn meta_comes_off_and_on() {
        let event = read(&format!(r#"{{"id":"{ID}","ts":0,"topic":"a","offset":0,"payload":1,"sid":"s"}}"#));
        let bare = event.clone().with_meta(EventMeta::default());
        assert_eq!(bare.sid, None);
        assert_eq!(bare.with_meta(event.meta()), event);
    }
}
