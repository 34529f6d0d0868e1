//! Filters: which events of a topic a group receives.

use std::collections::{BTreeMap, BTreeSet};

use promethean_model::{EventMeta, StoredEvent};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::error::DeliveryError;

/// The most values of one kind.
pub const FILTER_VALUES_MAX: usize = 64;
/// The most bytes of one value.
pub const FILTER_VALUE_BYTES_MAX: usize = 1 << 10;

/// A test of events by key, key prefix, headers and tags. An event must pass every kind that is given; it passes
/// a kind if one of the values matches. Each header is a kind of its own.
///
/// ```json
/// {"key": ["a", "b"], "keyPrefix": "host:", "headers": {"x-region": "eu", "x-kind": ["new", "old"]}, "tags": "hot"}
/// ```
///
/// means: the key is a or b, and begins with `host:`, and `x-region` is eu, and `x-kind` is new or old, and one tag
/// is hot. A single value may be written without brackets. Values are sets: two filters that differ in order only
/// are equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", rename_all = "camelCase")]
pub struct Filter {
    /// The key is one of these.
    #[serde(skip_serializing_if = "FilterValues::is_empty")]
    key: FilterValues,
    /// The key begins with one of these.
    #[serde(skip_serializing_if = "FilterValues::is_empty")]
    key_prefix: FilterValues,
    /// The header of that name is one of these.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, FilterValues>,
    /// One of the tags is one of these.
    #[serde(skip_serializing_if = "FilterValues::is_empty")]
    tags: FilterValues,
}

/// The values of one kind; in JSON a text or a list of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct FilterValues(BTreeSet<String>);

impl Filter {
    /// Reads a filter from JSON text.
    pub fn from_json(json: &str) -> Result<Self, DeliveryError> {
        match serde_json::from_str(json) {
            Ok(Value::Object(map)) => map.try_into(),
            Ok(_) => bad("it must be an object".into()),
            Err(error) => bad(error.to_string()),
        }
    }

    /// Adds a key that passes.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key.0.insert(key.into());
        self
    }

    /// Adds a prefix of keys that pass.
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix.0.insert(prefix.into());
        self
    }

    /// Adds a value of a header that passes.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.entry(name.into()).or_default().0.insert(value.into());
        self
    }

    /// Adds a tag that passes.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.0.insert(tag.into());
        self
    }

    /// Refuses a filter that no event can pass, or that is too slow to test.
    pub fn validate(&self) -> Result<(), DeliveryError> {
        self.key.validate("key")?;
        self.key_prefix.validate("keyPrefix")?;
        self.tags.validate("tags")?;
        if self.headers.len() > FILTER_VALUES_MAX {
            return bad(format!("`headers` has {}; give at most {FILTER_VALUES_MAX}", self.headers.len()));
        }
        self.headers.iter().try_for_each(|(name, values)| {
            if name.is_empty() || name.len() > FILTER_VALUE_BYTES_MAX {
                return bad("a header's name is empty or too long; give the name as it is published".into());
            }
            values.validate(&format!("headers.{name}"))
        })
    }

    /// Whether every event passes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.key.is_empty() && self.key_prefix.is_empty() && self.headers.is_empty() && self.tags.is_empty()
    }

    /// Whether the event passes. An event whose meta cannot be read passes: skipped, it would be finished
    /// without being seen.
    pub fn matches(&self, event: &StoredEvent) -> bool {
        let key_needed = !self.key.is_empty() || !self.key_prefix.is_empty();
        if key_needed && !event.key().is_some_and(|key| self.passes_key(key)) {
            return false;
        }
        let meta_needed = !self.headers.is_empty() || !self.tags.is_empty();
        !meta_needed || EventMeta::decode(event.meta()).map_or(true, |meta| self.passes_meta(&meta))
    }

    fn passes_key(&self, key: &str) -> bool {
        let begins = || self.key_prefix.0.iter().any(|prefix| key.starts_with(prefix.as_str()));
        (self.key.is_empty() || self.key.0.contains(key)) && (self.key_prefix.is_empty() || begins())
    }

    fn passes_meta(&self, meta: &EventMeta) -> bool {
        let header = |name: &str| meta.headers.as_ref().and_then(|headers| headers.get(name));
        let headers = self
            .headers
            .iter()
            .all(|(name, values)| header(name).is_some_and(|value| values.0.contains(value)));
        let tagged = || meta.tags.iter().flatten().any(|tag| self.tags.0.contains(tag));
        headers && (self.tags.is_empty() || tagged())
    }
}

impl FilterValues {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of_json(kind: &str, json: Value) -> Result<Self, DeliveryError> {
        let text = |json: Value| match json {
            Value::String(text) => Ok(text),
            _ => bad(format!("`{kind}` must be a text or a list of texts")),
        };
        match json {
            Value::Array(texts) if texts.is_empty() => {
                bad(format!("`{kind}` is an empty list, which nothing passes; leave it out to pass all"))
            }
            Value::Array(texts) => texts.into_iter().map(text).collect::<Result<_, _>>().map(Self),
            one => text(one).map(|text| Self(BTreeSet::from([text]))),
        }
    }

    fn validate(&self, kind: &str) -> Result<(), DeliveryError> {
        let count = self.0.len();
        if count > FILTER_VALUES_MAX {
            return bad(format!("`{kind}` has {count} values; give at most {FILTER_VALUES_MAX}"));
        }
        if self.0.iter().any(|text| text.len() > FILTER_VALUE_BYTES_MAX) {
            return bad(format!("`{kind}` has a value over {FILTER_VALUE_BYTES_MAX} bytes; shorten it"));
        }
        Ok(())
    }
}

impl Serialize for FilterValues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.first() {
            Some(one) if self.0.len() == 1 => one.serialize(serializer),
            _ => self.0.serialize(serializer),
        }
    }
}

/// The only way in from JSON, so that each filter of a client or of the store is validated.
impl TryFrom<Map<String, Value>> for Filter {
    type Error = DeliveryError;

    fn try_from(map: Map<String, Value>) -> Result<Self, Self::Error> {
        let mut filter = Self::default();
        for (kind, json) in map {
            match kind.as_str() {
                "key" => filter.key = FilterValues::of_json("key", json)?,
                "keyPrefix" => filter.key_prefix = FilterValues::of_json("keyPrefix", json)?,
                "tags" => filter.tags = FilterValues::of_json("tags", json)?,
                "headers" => filter.headers = headers_of_json(json)?,
                _ => {
                    let kind: String = kind.chars().take(40).collect();
                    return bad(format!("unknown `{kind}`; use `key`, `keyPrefix`, `headers` and `tags`"));
                }
            }
        }
        filter.validate()?;
        Ok(filter)
    }
}

fn headers_of_json(json: Value) -> Result<BTreeMap<String, FilterValues>, DeliveryError> {
    let Value::Object(map) = json else {
        return bad("`headers` must be an object of names and values".into());
    };
    let of_json = |(name, json): (String, Value)| {
        let values = FilterValues::of_json(&format!("headers.{name}"), json)?;
        Ok((name, values))
    };
    map.into_iter().map(of_json).collect()
}

fn bad<T>(reason: String) -> Result<T, DeliveryError> {
    Err(DeliveryError::BadFilter { reason })
}

#[cfg(test)]
mod tests {
    use promethean_model::EventBody;
    use promethean_model::{EventId, Offset};
    use proptest::prelude::*;

    use super::*;

    fn event(key: Option<&str>, meta: &[u8]) -> StoredEvent {
        let body = EventBody { key: key.map(str::as_bytes), meta, payload: b"1" };
        StoredEvent::new("a".parse().unwrap(), Offset(0), EventId::from_bytes([0; 16]), 0).with_body(body)
    }

    fn with(headers: &[(&str, &str)], tags: &[&str]) -> Vec<u8> {
        let own = |text: &&str| (*text).to_owned();
        let meta = EventMeta {
            headers: Some(headers.iter().map(|(name, value)| (own(name), own(value))).collect()),
            tags: Some(tags.iter().map(own).collect()),
            ..EventMeta::default()
        };
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        bytes
    }

    #[test]
    fn kinds_all_hold_values_one_does() {
        let full = with(&[("r", "eu"), ("k", "new")], &["hot", "x"]);
        let check = |json: &str, passes: bool| {
            let filter = Filter::from_json(json).unwrap();
            assert_eq!(filter.matches(&event(Some("host:1"), &full)), passes, "{json}");
        };
        check("{}", true);
        check(r#"{"key":"host:1"}"#, true);
        check(r#"{"key":["other","host:1"]}"#, true);
        check(r#"{"key":"host:"}"#, false);
        check(r#"{"keyPrefix":"host:"}"#, true);
        check(r#"{"keyPrefix":["a","host:"]}"#, true);
        check(r#"{"key":"host:1","keyPrefix":"b"}"#, false);
        check(r#"{"headers":{"r":"eu"}}"#, true);
        check(r#"{"headers":{"r":["us","eu"],"k":"new"}}"#, true);
        check(r#"{"headers":{"r":"eu","k":"old"}}"#, false);
        check(r#"{"headers":{"absent":"eu"}}"#, false);
        check(r#"{"tags":"hot"}"#, true);
        check(r#"{"tags":["cold","x"]}"#, true);
        check(r#"{"tags":"cold"}"#, false);
        check(r#"{"tags":"hot","headers":{"r":"us"}}"#, false);
    }

    #[test]
    fn what_an_event_lacks_does_not_pass() {
        let bare = event(None, &[]);
        for filter in [
            Filter::default().key("k"),
            Filter::default().key_prefix(""),
            Filter::default().header("h", ""),
            Filter::default().tag("t"),
        ] {
            assert!(!filter.matches(&bare), "{filter:?}");
        }
        assert!(Filter::default().matches(&bare) && Filter::default().is_empty());
        assert!(Filter::default().key_prefix("").matches(&event(Some("k"), &[])));
    }

    #[test]
    fn meta_is_read_only_when_needed_and_never_hides_an_event() {
        let unreadable = event(Some("k"), &[99, 1]);
        assert!(Filter::default().key("k").matches(&unreadable));
        assert!(!Filter::default().key("x").tag("t").matches(&unreadable));
        assert!(Filter::default().tag("t").matches(&unreadable));
    }

    #[test]
    fn refuses_and_says_why() {
        let check = |json: &str, part: &str| {
            let error = Filter::from_json(json).unwrap_err();
            assert_eq!(error.code(), "bad_filter");
            assert!(error.to_string().contains(part), "{json}: {error}");
        };
        check(r#"{"keys":"a"}"#, "unknown `keys`");
        check(r#"{"key":[]}"#, "`key` is an empty list");
        check(r#"{"headers":{"h":[]}}"#, "`headers.h` is an empty list");
        check(r#"{"headers":{"":"x"}}"#, "a header's name is empty");
        check(r#"{"key":1}"#, "`key` must be a text");
        check(r#"{"headers":["a"]}"#, "`headers` must be an object");
        check("[]", "must be an object");
        assert!(serde_json::from_str::<Filter>("[]").is_err());
        let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        check(&serde_json::json!({ "tags": many }).to_string(), "65 values; give at most 64");
        check(&serde_json::json!({ "key": "k".repeat(1025) }).to_string(), "over 1024 bytes");
    }

    #[test]
    fn one_value_is_written_plainly() {
        let filter = Filter::default().key("k").tag("b").tag("a").header("h", "v");
        let json = serde_json::to_string(&filter).unwrap();
        assert_eq!(json, r#"{"key":"k","headers":{"h":"v"},"tags":["a","b"]}"#);
        assert_eq!(Filter::from_json(&json).unwrap(), filter);
        assert_eq!(
            Filter::from_json(r#"{"tags":["b","a","b"]}"#).unwrap(),
            Filter::default().tag("a").tag("b")
        );
        assert_eq!(serde_json::to_string(&Filter::default()).unwrap(), "{}");
    }

    proptest! {
        #[test]
        fn json_round_trips(keys in proptest::collection::vec(any::<String>(), 0..4), name in "[a-z]{1,4}", tag in any::<String>()) {
            let filter = keys.into_iter().fold(Filter::default().tag(tag).header(name, "v"), Filter::key);
            let json = serde_json::to_string(&filter).unwrap();
            prop_assert_eq!(serde_json::from_str::<Filter>(&json).unwrap(), filter);
        }
    }
}
