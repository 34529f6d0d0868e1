//! What a projector makes of an event.
//!
//! As JSON, which is what jq programs give, a change is an object with one name:
//!
//! ```json
//! {"upsert": {"collection": "hosts", "key": "a", "set": {"up": true}, "inc": {"seen": 1}}}
//! {"delete": {"collection": "hosts", "key": "a"}}
//! {"publish": {"topic": "host.seen", "key": "a", "payload": {"host": "a"}}}
//! ```

use std::collections::BTreeMap;

use promethean_bus::publish::{Payload, Publish};
use promethean_model::{CollectionName, EventId, Offset, TopicName};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// One change.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Writes fields of a document, which is made if it is not there.
    Upsert(Upsert),
    /// Removes a document; one that is not there stays so.
    Delete(Removal),
    /// Publishes an event.
    Publish(Emit),
}

/// Fields of a document to write. Names that begin with `_` and that we know (`_key`, `_ts`, `_offset`, `_v`) are ours:
/// what is given for them is passed over.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upsert {
    /// The collection.
    pub collection: CollectionName,
    /// The document's key.
    pub key: String,
    /// Fields to set.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub set: Map<String, Value>,
    /// Fields to set in a document that is new.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub set_on_insert: Map<String, Value>,
    /// Fields to add to; one that is not there begins at 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inc: BTreeMap<String, Number>,
    /// Fields to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unset: Vec<String>,
    /// Written only if the document has no version or a lower one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

/// A document to remove.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    /// The collection.
    pub collection: CollectionName,
    /// The document's key.
    pub key: String,
    /// Removed only if the document has no version or a lower one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

/// An event to publish.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emit {
    /// Where to.
    pub topic: TopicName,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Any JSON; `null` is a tombstone.
    pub payload: Box<RawValue>,
    /// Text by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Only if the key's latest event is at this offset. Where it is not, a timer passes the event over, and a projector
    /// fails at its event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_key_offset: Option<Offset>,
}

impl Emit {
    /// The event, under an id that follows from what it is derived from.
    pub(crate) fn into_event(self, id: EventId) -> Publish<'static> {
        let mut event = Publish::new(self.topic, Payload::from(self.payload)).id(id);
        if let Some(key) = self.key {
            event = event.key(key);
        }
        if !self.headers.is_empty() {
            event = event.headers(self.headers);
        }
        match self.expected_key_offset {
            Some(offset) => event.expected_key_offset(Some(offset)),
            None => event,
        }
    }
}

impl Change {
    /// An upsert without any field; add them with [`Change::set`] and [`Change::inc`].
    pub fn upsert(collection: CollectionName, key: impl Into<String>) -> Self {
        Self::Upsert(Upsert {
            collection,
            key: key.into(),
            set: Map::new(),
            set_on_insert: Map::new(),
            inc: BTreeMap::new(),
            unset: Vec::new(),
            version: None,
        })
    }

    /// A document goes.
    pub fn delete(collection: CollectionName, key: impl Into<String>) -> Self {
        Self::Delete(Removal { collection, key: key.into(), version: None })
    }

    /// An event without key and headers.
    pub fn publish(topic: TopicName, payload: Box<RawValue>) -> Self {
        let headers = BTreeMap::new();
        Self::Publish(Emit { topic, key: None, payload, headers, expected_key_offset: None })
    }

    /// With a field to set. Of other changes than upserts, nothing happens.
    #[must_use]
    pub fn set(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        if let Self::Upsert(upsert) = &mut self {
            upsert.set.insert(field.into(), value.into());
        }
        self
    }

    /// With a field to add to. Of other changes than upserts, nothing happens.
    #[must_use]
    pub fn inc(mut self, field: impl Into<String>, by: impl Into<Number>) -> Self {
        if let Self::Upsert(upsert) = &mut self {
            upsert.inc.insert(field.into(), by.into());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Change, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn json_has_one_name_and_only_fields_that_are_known() {
        for json in [
            r#"{"upsert":{"collection":"c","key":"k","set":{"a":[1]},"set_on_insert":{"b":2},"inc":{"n":1.5},"unset":["x"],"version":7}}"#,
            r#"{"upsert":{"collection":"c","key":"k"}}"#,
            r#"{"delete":{"collection":"c","key":"k"}}"#,
            r#"{"publish":{"topic":"a.b","key":"k","payload":{"n":1.50},"headers":{"x-a":"b"},"expected_key_offset":4}}"#,
            r#"{"publish":{"topic":"a.b","payload":null}}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(json).unwrap()).unwrap(), json);
        }
        for json in [
            "{}",
            r#"{"insert":{"collection":"c","key":"k"}}"#,
            r#"{"upsert":{"collection":"c"}}"#,
            r#"{"upsert":{"collection":"c","key":"k","put":{}}}"#,
            r#"{"upsert":{"collection":"c","key":"k","inc":{"n":"1"}}}"#,
            r#"{"upsert":{"collection":"no spaces","key":"k"}}"#,
            r#"{"publish":{"topic":"a.b"}}"#,
            r#"{"delete":{"collection":"c","key":"k"},"upsert":{"collection":"c","key":"k"}}"#,
        ] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
