//! JSON merge patch, RFC 7386.
//!
//! Values that a patch does not look into keep their text, so numbers stay as they were written. Names come out sorted:
//! the same events give the same bytes whether they are folded at once or from a snapshot on.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// A document being patched.
#[derive(Debug)]
pub(super) enum Document {
    Object(BTreeMap<String, Self>),
    Other(Box<RawValue>),
}

impl Document {
    /// What a patch makes of a document, or of nothing. A `null` at the top is the caller's to see: it is a tombstone.
    pub(super) fn patched(before: Option<Self>, patch: &RawValue) -> serde_json::Result<Self> {
        if !patch.get().starts_with('{') {
            return Ok(Self::Other(patch.to_owned()));
        }
        let mut members = match before {
            Some(Self::Object(members)) => members,
            _ => BTreeMap::new(),
        };
        for (name, value) in serde_json::from_str::<BTreeMap<String, &RawValue>>(patch.get())? {
            let before = members.remove(&name);
            if value.get() != "null" {
                members.insert(name, Self::patched(before, value)?);
            }
        }
        Ok(Self::Object(members))
    }

    /// What [`Document::text`] gave.
    pub(super) fn read(text: &RawValue) -> serde_json::Result<Self> {
        if !text.get().starts_with('{') {
            return Ok(Self::Other(text.to_owned()));
        }
        let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(text.get())?;
        let read = |(name, value)| Self::read(value).map(|value| (name, value));
        members.into_iter().map(read).collect::<Result<_, _>>().map(Self::Object)
    }

    pub(super) fn text(&self) -> serde_json::Result<Box<RawValue>> {
        serde_json::value::to_raw_value(self)
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object(members) => serializer.collect_map(members),
            Self::Other(text) => text.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(target: &str, patch: &str) -> String {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let target = Document::read(&raw(target)).unwrap();
        Document::patched(Some(target), &raw(patch)).unwrap().text().unwrap().get().to_owned()
    }

    #[test]
    fn the_examples_of_the_rfc() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            (r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            (r#"{}"#, r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merge(target, patch), result, "{target} with {patch}");
        }
    }

    #[test]
    fn numbers_stay_as_they_were_written() {
        assert_eq!(
            merge(r#"{"a":1.50,"b":123456789012345678901234567890}"#, r#"{"c":{"d":1e2}}"#),
            r#"{"a":1.50,"b":123456789012345678901234567890,"c":{"d":1e2}}"#
        );
    }
}
