//! The shape of a schema, as far as a type can express it.
//!
//! Types accept more than schemas: bounds, patterns and conditions are left to a validator. A schema that
//! names properties and no `type` is read as one of objects.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Longest chain of references that is followed.
const HOPS_MAX: usize = 16;
/// Keywords beside a reference that do not change which values fit.
const ANNOTATIONS: [&str; 9] = [
    "$ref",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
];

#[derive(Debug)]
pub(super) enum Shape<'a> {
    Any,
    Never,
    Null,
    Bool,
    Integer {
        negative: bool,
    },
    Number,
    Text,
    /// A list, with the schema of its items.
    List(Option<&'a Value>),
    /// A map, with the schema of its values.
    Map(Option<&'a Value>),
    Object(Parts<'a>),
    Words(BTreeSet<&'a str>),
    /// One of several values that are not all text.
    Values(Vec<&'a Value>),
    Reference(&'a str),
    Nullable(Box<Shape<'a>>),
    Tagged {
        tag: &'a str,
        branches: Vec<(&'a str, Parts<'a>)>,
    },
    Union(Vec<Shape<'a>>),
}

/// The properties of an object, with those of its `allOf`.
#[derive(Debug, Default)]
pub(super) struct Parts<'a> {
    pub(super) properties: BTreeMap<&'a str, &'a Value>,
    pub(super) required: BTreeSet<&'a str>,
    pub(super) closed: bool,
    /// The schema of properties that are not named.
    pub(super) others: Option<&'a Value>,
}

/// The document that references point into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Document<'a> {
    pub(super) root: &'a Value,
    /// How many more schemas may be read: references to references can be very many.
    pub(super) steps: &'a Cell<u32>,
}

/// Schemas of one document that are read, counted again for each reference. Further ones become `Any`.
pub(super) const STEPS_MAX: u32 = 100_000;

impl<'a> Document<'a> {
    pub(super) fn shape(self, schema: &'a Value) -> Shape<'a> {
        if !self.step() {
            return Shape::Any;
        }
        match schema {
            Value::Bool(false) => return Shape::Never,
            Value::Object(_) => {}
            _ => return Shape::Any,
        }
        if let Some(value) = schema.get("const") {
            return values(std::slice::from_ref(value));
        }
        if let Some(Value::Array(listed)) = schema.get("enum") {
            return values(listed);
        }
        if let Some(Value::String(to)) = schema.get("$ref")
            && has_only(schema, &ANNOTATIONS)
        {
            return Shape::Reference(to);
        }
        if schema.get("$ref").is_some() || schema.get("allOf").is_some() {
            return self.all(schema);
        }
        match (schema.get("oneOf"), schema.get("anyOf")) {
            (Some(Value::Array(branches)), None) | (None, Some(Value::Array(branches))) => {
                self.one(schema, branches)
            }
            (None, None) => self.typed(schema),
            _ => Shape::Any,
        }
    }

    /// The shape of `allOf` and of a reference with siblings: only objects without common properties can be
    /// combined.
    fn all(self, schema: &'a Value) -> Shape<'a> {
        if let Some(Value::Array(all)) = schema.get("allOf")
            && let [only] = all.as_slice()
            && has_only(
                schema,
                &[&ANNOTATIONS[..], &["allOf", "$defs", "definitions", "$schema", "$id"]].concat(),
            )
            && schema.get("$ref").is_none()
        {
            return self.shape(only);
        }
        self.parts(schema, HOPS_MAX).map_or(Shape::Any, Shape::Object)
    }

    /// The shape of `oneOf` and `anyOf`.
    fn one(self, schema: &'a Value, branches: &'a [Value]) -> Shape<'a> {
        let narrows = |branch: &Value| has_only(branch, &["required", "not", "title", "description", "type"]);
        if schema.get("properties").is_some() {
            // Branches that only require properties do not change them.
            return if branches.iter().all(narrows) { self.typed(schema) } else { Shape::Any };
        }
        let mut shapes: Vec<Shape<'a>> = branches.iter().map(|branch| self.shape(branch)).collect();
        let count = shapes.len();
        shapes.retain(|shape| !matches!(shape, Shape::Null));
        let nullable = shapes.len() < count;
        let shape = self.union(shapes);
        if nullable { shape.nullable() } else { shape }
    }

    fn union(self, mut shapes: Vec<Shape<'a>>) -> Shape<'a> {
        if shapes.len() < 2 {
            return shapes.pop().unwrap_or(Shape::Null);
        }
        if let Some(tagged) = self.tagged(&shapes) {
            return tagged;
        }
        let mut words = BTreeSet::new();
        for shape in &shapes {
            match shape {
                Shape::Words(more) => words.extend(more),
                _ => return Shape::Union(shapes),
            }
        }
        Shape::Words(words)
    }

    /// Objects that differ by a required property with one text in each.
    fn tagged(self, shapes: &[Shape<'a>]) -> Option<Shape<'a>> {
        let objects = || shapes.iter().map(|shape| self.object(shape));
        let first = objects().next()??;
        let mut found = first.properties.keys().filter_map(|tag| {
            let mut branches: Vec<(&str, Parts<'a>)> = Vec::new();
            for object in objects() {
                let mut object = object?;
                let Shape::Words(words) = self.shape(object.properties.remove(tag)?) else { return None };
                let mut words = words.into_iter();
                let (word, None) = (words.next()?, words.next()) else { return None };
                let again = branches.iter().any(|(known, _)| *known == word);
                if again || !object.required.remove(tag) {
                    return None;
                }
                branches.push((word, object));
            }
            Some(Shape::Tagged { tag, branches })
        });
        found.next()
    }

    fn object(self, shape: &Shape<'a>) -> Option<Parts<'a>> {
        match shape {
            Shape::Object(parts) => Some(parts.copy()),
            Shape::Reference(to) => self.parts(self.target(to)?, HOPS_MAX),
            _ => None,
        }
    }

    fn typed(self, schema: &'a Value) -> Shape<'a> {
        let has = |names: &[&str]| names.iter().any(|name| schema.get(name).is_some());
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ if has(&["properties", "required", "additionalProperties", "patternProperties"]) => {
                vec!["object"]
            }
            _ if has(&["items", "prefixItems"]) => vec!["array"],
            _ => return Shape::Any,
        };
        let mut shapes: Vec<Shape<'a>> = Vec::new();
        for one in types.iter().filter(|one| **one != "null") {
            shapes.push(self.of_type(schema, one));
        }
        let nullable = types.contains(&"null");
        let shape = self.union(shapes);
        if nullable { shape.nullable() } else { shape }
    }

    fn of_type(self, schema: &'a Value, name: &str) -> Shape<'a> {
        match name {
            "boolean" => Shape::Bool,
            "number" => Shape::Number,
            "string" => Shape::Text,
            "integer" => {
                let from = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
                let positive = |least: Option<f64>| least.is_some_and(|least| least >= 0.0);
                Shape::Integer { negative: !positive(from("minimum")) && !positive(from("exclusiveMinimum")) }
            }
            // Items with a schema for each position have no common type.
            "array" => Shape::List(schema.get("items").filter(|items| {
                schema.get("prefixItems").is_none() && (items.is_object() || items.is_boolean())
            })),
            "object" => match self.parts(schema, HOPS_MAX) {
                Some(parts) if parts.is_map() => Shape::Map(parts.others),
                Some(parts) => Shape::Object(parts),
                None => Shape::Any,
            },
            _ => Shape::Any,
        }
    }

    /// The properties of an object and of its `$ref` and `allOf`; `None` if one of them is not a plain
    /// object.
    fn parts(self, schema: &'a Value, hops: usize) -> Option<Parts<'a>> {
        let hops = hops.checked_sub(1).filter(|_| self.step())?;
        let kind = schema.get("type").is_none_or(|kind| {
            kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
        });
        let combined = ["const", "enum", "oneOf", "anyOf"].iter().any(|name| schema.get(name).is_some());
        if !schema.is_object() || !kind || (combined && schema.get("properties").is_none()) {
            return None;
        }
        let mut parts = Parts::of(schema);
        let reference = schema.get("$ref").and_then(Value::as_str).map(|to| self.target(to));
        let all = schema.get("allOf").and_then(Value::as_array).into_iter().flatten().map(Some);
        for more in reference.into_iter().chain(all) {
            parts.add(self.parts(more?, hops)?)?;
        }
        Some(parts)
    }

    /// Counts a schema; returns whether it may be read.
    fn step(self) -> bool {
        let left = self.steps.get();
        self.steps.set(left.saturating_sub(1));
        left > 0
    }

    /// The schema that a reference points to.
    pub(super) fn target(self, reference: &str) -> Option<&'a Value> {
        let fragment = reference.strip_prefix('#')?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return self.root.pointer(&decoded(fragment)?);
        }
        let defs = ["$defs", "definitions"].into_iter().filter_map(|name| self.root.get(name)?.as_object());
        defs.flat_map(|defs| defs.values()).find(|def| {
            def.get("$anchor").is_some_and(|anchor| anchor == fragment)
                || def.get("$id").is_some_and(|id| id == reference)
        })
    }
}

impl<'a> Shape<'a> {
    fn nullable(self) -> Self {
        match self {
            Self::Null | Self::Nullable(_) => self,
            shape => Self::Nullable(Box::new(shape)),
        }
    }

    /// Whether its type has a name.
    pub(super) fn is_named(&self) -> bool {
        match self {
            Self::Nullable(shape) => shape.is_named(),
            shape => matches!(shape, Self::Object(_) | Self::Words(_) | Self::Tagged { .. }),
        }
    }
}

impl<'a> Parts<'a> {
    /// The parts of the schema itself, without those of `$ref` and `allOf`.
    fn of(schema: &'a Value) -> Self {
        let members = |name: &str| schema.get(name).and_then(Value::as_object).into_iter().flatten();
        let properties = members("properties").map(|(name, schema)| (name.as_str(), schema)).collect();
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let patterns: Vec<&Value> = members("patternProperties").map(|(_, schema)| schema).collect();
        let further = schema.get("additionalProperties").or_else(|| schema.get("unevaluatedProperties"));
        let refused = further == Some(&Value::Bool(false));
        let combined = ["$ref", "allOf"].iter().any(|name| schema.get(name).is_some());
        let others = match (patterns.as_slice(), refused) {
            ([only], true) => Some(*only),
            ([], false) => further.filter(|further| further.is_object()),
            _ => None,
        };
        Self {
            properties,
            required: required.filter_map(Value::as_str).collect(),
            closed: refused && patterns.is_empty() && !combined,
            others,
        }
    }

    /// Adds the parts of another schema; `None` if both have a property with different schemas.
    fn add(&mut self, more: Self) -> Option<()> {
        for (name, schema) in more.properties {
            if *self.properties.entry(name).or_insert(schema) != schema {
                return None;
            }
        }
        self.required.extend(more.required);
        // A closed schema would refuse the properties of the other, so the combination is treated as open.
        (self.closed, self.others) = (false, None);
        Some(())
    }

    fn is_map(&self) -> bool {
        self.properties.is_empty() && self.required.is_empty() && !self.closed
    }

    fn copy(&self) -> Self {
        let Self { properties, required, closed, others } = self;
        Self { properties: properties.clone(), required: required.clone(), closed: *closed, others: *others }
    }
}

fn values(listed: &[Value]) -> Shape<'_> {
    let count = listed.len();
    let some: Vec<&Value> = listed.iter().filter(|value| !value.is_null()).collect();
    let nullable = some.len() < count;
    let words: BTreeSet<&str> = some.iter().filter_map(|value| value.as_str()).collect();
    let shape = match () {
        () if some.is_empty() => Shape::Null,
        () if some.iter().all(|value| value.is_string()) => Shape::Words(words),
        () => Shape::Values(some),
    };
    if nullable { shape.nullable() } else { shape }
}

fn has_only(schema: &Value, names: &[&str]) -> bool {
    schema.as_object().is_some_and(|schema| schema.keys().all(|name| names.contains(&name.as_str())))
}

/// Decodes the pointer of a fragment, in which bytes may be written as `%2F`.
fn decoded(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16).map(|digit| digit as u8);
        bytes.push(digit(rest.next())? * 16 + digit(rest.next())?);
    }
    String::from_utf8(bytes).ok()
}
