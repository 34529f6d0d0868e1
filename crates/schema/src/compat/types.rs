//! Sets of JSON types.

use serde_json::{Number, Value};

/// A set of types. A number is an integer or a fraction; `1.0` is an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TypeSet(u8);

impl TypeSet {
    pub(super) const NONE: Self = Self(0);
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    pub(super) const INTEGER: Self = Self(4);
    pub(super) const FRACTION: Self = Self(8);
    pub(super) const NUMBER: Self = Self(4 | 8);
    pub(super) const STRING: Self = Self(16);
    pub(super) const ARRAY: Self = Self(32);
    pub(super) const OBJECT: Self = Self(64);
    pub(super) const ALL: Self = Self(127);

    /// The types that a union is split into.
    pub(super) const EACH: [Self; 6] =
        [Self::NULL, Self::BOOLEAN, Self::NUMBER, Self::STRING, Self::ARRAY, Self::OBJECT];

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn within(self, other: Self) -> bool {
        self.without(other) == Self::NONE
    }

    pub(super) fn meets(self, other: Self) -> bool {
        self.and(other) != Self::NONE
    }

    pub(super) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// The types that the keyword `type` lists; all types without it.
    pub(super) fn of_keyword(keyword: Option<&Value>) -> Self {
        match keyword {
            Some(Value::String(name)) => Self::of_name(name),
            Some(Value::Array(names)) => {
                Self(names.iter().filter_map(Value::as_str).fold(0, |all, name| all | Self::of_name(name).0))
            }
            _ => Self::ALL,
        }
    }

    fn of_name(name: &str) -> Self {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "string" => Self::STRING,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self::NONE,
        }
    }

    /// The type of a value.
    pub(super) fn of_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if is_integer(number) => Self::INTEGER,
            Value::Number(_) => Self::FRACTION,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// The names, as `type` would list them.
    pub(super) fn names(self) -> Value {
        let mut names = Vec::new();
        for (set, name) in [
            (Self::NULL, "null"),
            (Self::BOOLEAN, "boolean"),
            (Self::NUMBER, "number"),
            (Self::INTEGER, "integer"),
            (Self::STRING, "string"),
            (Self::ARRAY, "array"),
            (Self::OBJECT, "object"),
        ] {
            let integer_of_number = set == Self::INTEGER && Self::NUMBER.within(self);
            if set.within(self) && !integer_of_number {
                names.push(Value::from(name));
            }
        }
        match names.as_slice() {
            [name] => name.clone(),
            _ => Value::Array(names),
        }
    }
}

fn is_integer(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
}
