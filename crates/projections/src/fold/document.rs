//! A document while changes are applied to it.

use promethean_store::port::{Doc, StoredEvent};
use serde_json::{Map, Number, Value};

use crate::change::Upsert;

/// The field that has the document's key.
pub(super) const KEY: &str = "_key";
/// The field that has the time of the event that wrote the document last, in epoch ms.
pub(super) const TS: &str = "_ts";
/// The field that has the offset of that event in the projector's topic.
pub(super) const OFFSET: &str = "_offset";
/// The field that has the document's version, where its projector gives versions.
pub(super) const VERSION: &str = "_v";

/// The most bytes of a document as JSON text.
pub(super) const DOC_BYTES_MAX: usize = 1 << 20;

/// A document in memory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    pub(super) fields: Map<String, Value>,
    pub(super) ts: i64,
    pub(super) version: Option<i64>,
}

impl Draft {
    /// Reads a stored document.
    pub(super) fn read(doc: &Doc) -> Result<Self, String> {
        let fields = serde_json::from_str(&doc.body)
            .map_err(|error| format!("document `{}` cannot be read: {error}", doc.key))?;
        Ok(Self { fields, ts: doc.ts, version: doc.version })
    }

    /// Applies an upsert of an event in place. Returns whether anything was written: nothing is if the document has the
    /// version of the upsert or a later one. After a failure the document is half changed, and must be thrown
    /// away.
    pub(super) fn upsert(
        draft: &mut Option<Self>,
        upsert: Upsert,
        event: &StoredEvent,
    ) -> Result<bool, String> {
        if Self::is_newer(draft.as_ref(), upsert.version) {
            return Ok(false);
        }
        let version = draft.as_ref().and_then(|draft| draft.version);
        let is_new = draft.is_none();
        let draft = draft.get_or_insert_with(|| Self { fields: Map::new(), ts: 0, version: None });
        let fields = &mut draft.fields;
        if is_new {
            write(fields, upsert.set_on_insert);
        }
        write(fields, upsert.set);
        for name in &upsert.unset {
            fields.remove(name);
        }
        for (name, by) in &upsert.inc {
            let sum = add(fields.get(name), by).map_err(|what| {
                format!("field `{name}` of document `{}` {what}, so nothing can be added to it", upsert.key)
            })?;
            put(fields, name, Value::Number(sum));
        }
        if is_new || fields.get(KEY).and_then(Value::as_str) != Some(&upsert.key) {
            put(fields, KEY, Value::String(upsert.key));
        }
        put(fields, TS, event.ts.into());
        put(fields, OFFSET, event.offset.get().into());
        draft.ts = event.ts;
        draft.version = upsert.version.or(version);
        match draft.version {
            Some(version) => put(fields, VERSION, version.into()),
            None => _ = fields.remove(VERSION),
        }
        Ok(true)
    }

    /// Whether an upsert gives a field that is there another value, or takes it away.
    pub(super) fn changes(&self, field: &str, upsert: &Upsert) -> bool {
        let Some(there) = self.fields.get(field) else { return false };
        upsert.set.get(field).is_some_and(|value| value != there)
            || upsert.unset.iter().any(|name| name == field)
            || upsert.inc.contains_key(field)
    }

    /// Whether a document has the version of a change or a later one.
    pub(super) fn is_newer(draft: Option<&Self>, given: Option<i64>) -> bool {
        let there = draft.and_then(|draft| draft.version);
        there.zip(given).is_some_and(|(there, given)| there >= given)
    }

    /// The document as JSON text, as it is stored and served.
    pub(super) fn body(&self, key: &str) -> Result<String, String> {
        let body = serde_json::to_string(&self.fields).map_err(|error| error.to_string())?;
        if body.len() > DOC_BYTES_MAX {
            let bytes = body.len();
            return Err(format!(
                "document `{key}` has {bytes} bytes, more than {DOC_BYTES_MAX}; keep less in it"
            ));
        }
        Ok(body)
    }
}

fn write(fields: &mut Map<String, Value>, given: Map<String, Value>) {
    if fields.is_empty() {
        *fields = given;
        return;
    }
    for (name, value) in given {
        match fields.get_mut(&name) {
            Some(there) => *there = value,
            None => _ = fields.insert(name, value),
        }
    }
}

/// Sets a field. Most fields are there already, so that their names need not be allocated again.
fn put(fields: &mut Map<String, Value>, name: &str, value: Value) {
    match fields.get_mut(name) {
        Some(there) => *there = value,
        None => _ = fields.insert(name.to_owned(), value),
    }
}

/// Adds a number to a field: exactly if both are whole and the sum fits 64 bits, otherwise as 64-bit floats.
fn add(there: Option<&Value>, by: &Number) -> Result<Number, &'static str> {
    let there = match there {
        None => return Ok(by.clone()),
        Some(Value::Number(there)) => there,
        Some(_) => return Err("is no number"),
    };
    if let (Some(a), Some(b)) = (whole(there), whole(by)) {
        let sum = a + b;
        if let Ok(sum) = i64::try_from(sum) {
            return Ok(sum.into());
        }
        if let Ok(sum) = u64::try_from(sum) {
            return Ok(sum.into());
        }
    }
    let sum = there.as_f64().zip(by.as_f64()).map(|(a, b)| a + b);
    sum.and_then(Number::from_f64).ok_or("would be too large")
}

fn whole(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

#[cfg(test)]
mod tests {
    use promethean_model::{EventId, Offset};
    use serde_json::json;

    use super::*;
    use crate::change::Change;

    fn event() -> StoredEvent {
        StoredEvent::new("t".parse().unwrap(), Offset(9), EventId::derive(b"test", b""), 5)
    }

    fn upsert(json: Value) -> Upsert {
        let mut json = json;
        json["collection"] = "c".into();
        json["key"] = "k".into();
        match serde_json::from_str(&json!({"upsert": json}).to_string()).unwrap() {
            Change::Upsert(upsert) => upsert,
            other => panic!("{other:?}"),
        }
    }

    fn after(before: Option<&Draft>, change: Value) -> Draft {
        let mut draft = before.cloned();
        assert!(Draft::upsert(&mut draft, upsert(change), &event()).unwrap());
        draft.unwrap()
    }

    #[test]
    fn fields_are_set_added_to_and_removed() {
        let first = after(
            None,
            json!({"set": {"a": 1, "_ts": 77}, "set_on_insert": {"born": true}, "inc": {"n": 2}}),
        );
        assert_eq!(
            Value::Object(first.fields.clone()),
            json!({"_key": "k", "_ts": 5, "_offset": 9, "a": 1, "born": true, "n": 2})
        );
        let second = after(
            Some(&first),
            json!({"set": {"a": {"b": 2}}, "set_on_insert": {"born": false}, "inc": {"n": 1}, "unset": ["x", "born"]}),
        );
        assert_eq!(
            Value::Object(second.fields),
            json!({"_key": "k", "_ts": 5, "_offset": 9, "a": {"b": 2}, "n": 3})
        );
    }

    #[test]
    fn only_a_later_version_is_written() {
        let first = after(None, json!({"set": {"a": 1}, "version": 3}));
        assert_eq!(first.fields["_v"], 3);
        for version in [3, 2, -1] {
            let change = upsert(json!({"set": {"a": 2}, "version": version}));
            let mut draft = Some(first.clone());
            assert_eq!(Draft::upsert(&mut draft, change, &event()), Ok(false));
            assert_eq!(draft.as_ref(), Some(&first));
        }
        let later = after(Some(&first), json!({"set": {"a": 2}, "version": 4}));
        assert_eq!((later.fields["_v"].clone(), later.version), (4.into(), Some(4)));
        let without = after(Some(&later), json!({"set": {"a": 3}}));
        assert_eq!(without.version, Some(4), "a change without a version leaves it");
    }

    #[test]
    fn sums_are_exact_as_long_as_they_can_be() {
        let sum = |there: Value, by: Value| {
            let by: Number = serde_json::from_value(by).unwrap();
            add(Some(&there), &by).map(Value::Number)
        };
        assert_eq!(sum(json!(i64::MAX), json!(1)), Ok(json!(9_223_372_036_854_775_808_u64)));
        assert_eq!(sum(json!(u64::MAX), json!(-1)), Ok(json!(18_446_744_073_709_551_614_u64)));
        assert_eq!(sum(json!(u64::MAX), json!(1)), Ok(json!(18_446_744_073_709_551_616.0)));
        assert_eq!(sum(json!(1), json!(0.5)), Ok(json!(1.5)));
        assert_eq!(sum(json!(f64::MAX), json!(f64::MAX)), Err("would be too large"));
        assert_eq!(sum(json!("1"), json!(1)), Err("is no number"));
        assert_eq!(sum(json!(null), json!(1)), Err("is no number"));
    }
}
