//! The row of a schema version.

use promethean_model::{Compat, Offset, TopicName, Undeclared};
use serde::{Deserialize, Serialize};

use super::{RowError, bad};

const TABLE: &str = "Schemas";
const VERSION: u32 = 1;

/// The key of a row: `topic 0 version(be32)`. So the versions of a topic are in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaKey {
    /// The topic.
    pub topic: TopicName,
    /// The version.
    pub version: u32,
}

/// The value of a row, as JSON:
/// `{"v":1,"schema":"text","compat":"backward","undeclared":"any","created":ms,"end":n}`, and `"forced":true`
/// if it was forced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaRow {
    v: u32,
    /// The schema's text, exactly as it was given.
    pub schema: String,
    /// The rule by which it was compared with the versions before.
    pub compat: Compat,
    /// How that comparison treated undeclared properties.
    pub undeclared: Undeclared,
    /// Whether it was registered although it is not compatible.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// When it was registered, epoch ms.
    pub created: i64,
    /// The end of the topic at some time before the registration: no event below it has this version.
    pub end: Offset,
}

impl SchemaKey {
    /// Encodes the key.
    pub fn encode(topic: &TopicName, version: u32) -> Vec<u8> {
        let mut key = Self::prefix(topic);
        key.extend_from_slice(&version.to_be_bytes());
        key
    }

    /// The prefix of the keys of a topic's versions.
    pub fn prefix(topic: &TopicName) -> Vec<u8> {
        [topic.as_str().as_bytes(), &[0]].concat()
    }

    /// Decodes a key that `encode` wrote.
    pub fn decode(key: &[u8]) -> Result<Self, RowError> {
        let parsed = || {
            let (topic, version) = key.split_last_chunk::<4>()?;
            let topic = str::from_utf8(topic.strip_suffix(&[0])?).ok()?;
            Some(Self { topic: topic.parse().ok()?, version: u32::from_be_bytes(*version) })
        };
        parsed().ok_or_else(|| bad(TABLE, "malformed key"))
    }
}

impl SchemaRow {
    /// A row for a schema that was not forced.
    pub fn new(schema: String, compat: Compat, undeclared: Undeclared, created: i64, end: Offset) -> Self {
        Self { v: VERSION, schema, compat, undeclared, forced: false, created, end }
    }

    /// Encodes the row.
    pub fn encode(&self) -> Result<Vec<u8>, RowError> {
        serde_json::to_vec(self).map_err(|error| bad(TABLE, error.to_string()))
    }

    /// Decodes a row that `encode` wrote. Fields that a newer release added are ignored: they cannot change
    /// which payloads a schema accepts.
    pub fn decode(value: &[u8]) -> Result<Self, RowError> {
        let row: Self = serde_json::from_slice(value).map_err(|error| bad(TABLE, error.to_string()))?;
        if row.v == VERSION { Ok(row) } else { Err(bad(TABLE, format!("version {}", row.v))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_never_change() {
        let topic = "a.b".parse().unwrap();
        assert_eq!(SchemaKey::encode(&topic, 258), b"a.b\0\0\0\x01\x02");
        assert_eq!(SchemaKey::decode(b"a.b\0\0\0\x01\x02"), Ok(SchemaKey { topic, version: 258 }));
        let row = SchemaRow::new("true".to_owned(), Compat::Full, Undeclared::Absent, 9, Offset(7));
        let json = r#"{"v":1,"schema":"true","compat":"full","undeclared":"absent","created":9,"end":7}"#;
        assert_eq!(String::from_utf8(row.encode().unwrap()).unwrap(), json);
        assert_eq!(SchemaRow::decode(json.as_bytes()), Ok(row.clone()));
        let forced = SchemaRow { forced: true, ..row };
        assert_eq!(SchemaRow::decode(&forced.encode().unwrap()), Ok(forced));
    }

    #[test]
    fn malformed_keys_and_unknown_versions_are_refused() {
        for key in [&b""[..], b"a\0\0\0\0", b"a", b"A\0\0\0\0\x01", b"\0\0\0\0\x01"] {
            assert!(SchemaKey::decode(key).is_err(), "{key:?}");
        }
        for row in ["", "{}", r#"{"v":2,"schema":"","compat":"full","undeclared":"any","created":9,"end":7}"#]
        {
            assert!(SchemaRow::decode(row.as_bytes()).is_err(), "{row}");
        }
    }
}
