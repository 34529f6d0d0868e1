//! Changes: what a projector makes of an event.
//!
//! As JSON, which jq programs give, a change is an object with one name:
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

/// A change that a projector makes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Writes fields of a document, and creates the document if it does not exist.
    Upsert(Upsert),
    /// Removes a document, if it exists.
    Delete(Removal),
    /// Publishes an event.
    Publish(Emit),
}

/// Fields of a document to write. The names `_key`, `_ts`, `_offset` and `_v` are reserved: values given for
/// them are ignored.
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
    /// Fields to set only if the document is new.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub set_on_insert: Map<String, Value>,
    /// Numbers to add to fields; a field that does not exist counts as 0.
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
    /// The topic it is published to.
    pub topic: TopicName,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its payload, any JSON; `null` is a tombstone.
    pub payload: Box<RawValue>,
    /// Its headers, text by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The event is published only if the latest event of its key is at this offset. Otherwise a timer passes
    /// it over, and a projector fails at its event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_key_offset: Option<Offset>,
}

impl Emit {
    /// The event to publish, under the given id.
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
    /// An upsert without fields; [`Change::set`] and [`Change::inc`] add them.
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

    /// The removal of a document.
    pub fn delete(collection: CollectionName, key: impl Into<String>) -> Self {
        Self::Delete(Removal { collection, key: key.into(), version: None })
    }

    /// An event without key and headers.
    pub fn publish(topic: TopicName, payload: Box<RawValue>) -> Self {
        let headers = BTreeMap::new();
        Self::Publish(Emit { topic, key: None, payload, headers, expected_key_offset: None })
    }

    /// Adds a field to set. Other changes than upserts stay as they are.
    #[must_use]
    pub fn set(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        if let Self::Upsert(upsert) = &mut self {
            upsert.set.insert(field.into(), value.into());
        }
        self
    }

    /// Adds a number to add to a field. Other changes than upserts stay as they are.
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
