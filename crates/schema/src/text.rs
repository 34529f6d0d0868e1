//! The text of a schema, within limits.

use promethean_model::json::minify;
use serde_json::Value;

use crate::error::BadSchema;

/// Bytes of a schema, at most.
pub const SCHEMA_BYTES_MAX: usize = 256 << 10;
/// How deep a schema may be nested.
pub const SCHEMA_DEPTH_MAX: usize = 64;

/// The text of a schema: JSON within limits. Whether it is a valid schema is checked when it is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaText {
    text: String,
    value: Value,
}

impl SchemaText {
    /// Reads a text, and refuses what is no JSON or over the limits.
    pub fn parse(text: impl Into<String>) -> Result<Self, BadSchema> {
        let text = text.into();
        if text.len() > SCHEMA_BYTES_MAX {
            return Err(BadSchema::whole(format!(
                "it has {} bytes; the limit is {SCHEMA_BYTES_MAX}",
                text.len()
            )));
        }
        // As strict as for payloads: of a name that an object has twice, readers would see one value or the other.
        minify(&text).map_err(|error| BadSchema::whole(format!("it is not valid JSON: {error}")))?;
        let value: Value =
            serde_json::from_str(&text).map_err(|error| BadSchema::whole(error.to_string()))?;
        if depth(&value) > SCHEMA_DEPTH_MAX {
            return Err(BadSchema::whole(format!(
                "it is nested deeper than {SCHEMA_DEPTH_MAX}; use `$defs` and `$ref`"
            )));
        }
        if !value.is_object() && !value.is_boolean() {
            return Err(BadSchema::whole("a schema is an object, `true` or `false`"));
        }
        Ok(Self { text, value })
    }

    /// The text as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text as JSON.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// A hash that is equal for texts which differ only in whitespace and in the order of names.
    pub fn fingerprint(&self) -> String {
        let mut canonical = String::new();
        write(&self.value, &mut canonical);
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(canonical.as_bytes()))
    }
}

/// How deep a value is nested. It recurses, at most [`promethean_model::json::JSON_DEPTH_MAX`] deep.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Writes a value with sorted names, whatever order the map keeps.
fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            items.iter().for_each(|item| {
                write(item, out);
                out.push(',');
            });
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, member) in members {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write(member, out);
                out.push(',');
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        SchemaText::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn texts_have_limits() {
        assert!(refused("{").contains("not valid JSON"));
        assert!(refused("[]").contains("an object"));
        assert!(refused(r#"{"a":1,"a":2}"#).contains("already"));
        assert!(
            refused(&format!("{{\"title\":\"{}\"}}", "x".repeat(SCHEMA_BYTES_MAX)))
                .contains("limit is 262144")
        );
        let nested = |n: usize| format!("{}true{}", r#"{"not":"#.repeat(n), "}".repeat(n));
        assert!(SchemaText::parse(nested(64)).is_ok());
        assert!(refused(&nested(65)).contains("deeper than 64"));
        assert!(SchemaText::parse(" true ").is_ok());
    }

    #[test]
    fn the_fingerprint_is_that_of_what_it_says() {
        let print = |text: &str| SchemaText::parse(text).unwrap().fingerprint();
        assert_eq!(print(r#"{"a":[1,{"c":2,"b":3}]}"#), print(r#" { "a" : [1, {"b":3,"c":2}] } "#));
        assert_ne!(print(r#"{"a":[1,2]}"#), print(r#"{"a":[2,1]}"#));
        assert_ne!(print(r#"{"a":"1"}"#), print(r#"{"a":1}"#));
        assert_eq!(print("{}").len(), 32);
    }
}
