//! Values of document fields, as indexes and queries compare them.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value as Json};

/// A scalar of a document. Values are ordered null < bool < number < text, and numbers as 64-bit floats: two integers
/// beyond 2^53 may be equal here, as they are in JavaScript.
#[derive(Debug, Clone)]
pub enum Value {
    /// `null`, a missing field, an array or an object.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number. Never NaN: JSON has none.
    Number(f64),
    /// A string.
    Text(String),
}

/// The declared type of a field; a query must ask for a value of this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// A string.
    Text,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
}

impl Value {
    /// The scalar in a JSON value.
    pub fn of_json(json: &Json) -> Self {
        match json {
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => number.as_f64().map_or(Self::Null, Self::number),
            Json::String(text) => Self::Text(text.clone()),
            Json::Null | Json::Array(_) | Json::Object(_) => Self::Null,
        }
    }

    /// The scalar in a field of a document.
    pub fn of_field(document: &Map<String, Json>, field: &str) -> Self {
        document.get(field).map_or(Self::Null, Self::of_json)
    }

    /// A number; -0 becomes 0 and NaN null, so that equality and order agree with the encoded form.
    pub fn number(value: f64) -> Self {
        if value.is_nan() {
            Self::Null
        } else if value == 0.0 {
            Self::Number(0.0)
        } else {
            Self::Number(value)
        }
    }

    /// Whether a field of this type can be compared with this value.
    pub fn is(&self, field: FieldType) -> bool {
        matches!(
            (self, field),
            (Self::Text(_), FieldType::Text)
                | (Self::Number(_), FieldType::Number)
                | (Self::Bool(_), FieldType::Bool)
        )
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Number(_) => 2,
            Self::Text(_) => 3,
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(a), Self::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::number(value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl FieldType {
    /// The word used in declarations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "number",
            Self::Bool => "bool",
        }
    }
}

impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
