//! The shape of a schema, as far as a type can express it.
//!
//! Types accept more than schemas: bounds, patterns and conditions are left to a validator. A schema that
//! names properties and no `type` is read as one of objects.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Longest chain of references that is followed.
pub(super) const HOPS_MAX: usize = 16;
/// Keywords beside a reference that do not change which values fit.
const ANNOTATIONS: [&str; 15] = [
    "$ref",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "$schema",
    "$id",
    "$anchor",
    "$vocabulary",
    "$defs",
    "definitions",
];
const ANYTHING: &Value = &Value::Bool(true);

#[derive(Debug, Clone, PartialEq)]
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
    Object(SchemaParts<'a>),
    Words(BTreeSet<&'a str>),
    /// One of several values that are not all text.
    Values(Vec<&'a Value>),
    Reference(&'a str),
    Nullable(Box<Shape<'a>>),
    Tagged {
        tag: &'a str,
        branches: Vec<(&'a str, SchemaParts<'a>)>,
    },
    Union(Vec<Shape<'a>>),
}

/// The properties of an object, with those of its `allOf`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SchemaParts<'a> {
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
    /// How many more references may be followed to combine what they point to with other schemas.
    pub(super) hops: usize,
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
        let mut shape = self.typed(schema);
        if shape == Shape::Any && schema.get("properties").is_some() {
            // Two schemas describe one of the properties in different ways.
            return Shape::Any;
        }
        // The parts of an object are read with those of `$ref` and `allOf`.
        let combined = matches!(shape, Shape::Object(_) | Shape::Map(_));
        for name in ["oneOf", "anyOf"] {
            if let Some(Value::Array(branches)) = schema.get(name) {
                shape = self.one(schema, shape, branches);
            }
        }
        if let (Some(Value::String(to)), false) = (schema.get("$ref"), combined) {
            shape = self.meet(shape, Shape::Reference(to));
        }
        if let (Some(Value::Array(all)), false) = (schema.get("allOf"), combined) {
            for part in all {
                shape = self.meet(shape, self.shape(part));
            }
        }
        shape
    }

    /// The shape of `oneOf` or `anyOf`, where `outer` is the shape of the keywords beside it.
    fn one(self, schema: &'a Value, outer: Shape<'a>, branches: &'a [Value]) -> Shape<'a> {
        let narrows = |branch: &Value| has_only(branch, &["required", "not", "title", "description", "type"]);
        if schema.get("properties").is_some() {
            // Branches that only require properties do not change them.
            if branches.iter().all(narrows) {
                return outer;
            }
            // The properties of the branches differ, so they are kept as they are.
            return match (outer, schema.get("type")) {
                (Shape::Object(mut parts), Some(kind)) if kind == "object" => {
                    parts.others = if parts.closed { None } else { parts.others.or(Some(ANYTHING)) };
                    Shape::Object(parts)
                }
                _ => Shape::Any,
            };
        }
        let shapes = branches.iter().map(|branch| self.meet(outer.clone(), self.shape(branch)));
        // A branch that nothing fits adds nothing.
        let mut shapes: Vec<Shape<'a>> = shapes.filter(|shape| *shape != Shape::Never).collect();
        if shapes.is_empty() {
            return Shape::Never;
        }
        let is_nullable = |shape: &Shape<'a>| matches!(shape, Shape::Null | Shape::Nullable(_));
        let nullable = shapes.iter().any(is_nullable);
        shapes.retain(|shape| *shape != Shape::Null);
        let shape = self.union(shapes.into_iter().map(Shape::not_null).collect());
        if nullable { shape.nullable() } else { shape }
    }

    /// The shape of what fits both. Where a type cannot tell, it is the wider one: types may accept more than
    /// schemas, and never less.
    fn meet(self, one: Shape<'a>, other: Shape<'a>) -> Shape<'a> {
        match (one, other) {
            (one, other) if one == other => one,
            (Shape::Any, shape) | (shape, Shape::Any) => shape,
            (Shape::Never, _) | (_, Shape::Never) => Shape::Never,
            (Shape::Reference(to), shape) | (shape, Shape::Reference(to)) => {
                let target = self.target(to).zip(self.hops.checked_sub(1));
                target.map_or(shape.clone(), |(target, hops)| {
                    self.meet(Self { hops, ..self }.shape(target), shape)
                })
            }
            (Shape::Nullable(one), Shape::Nullable(other)) => self.meet(*one, *other).nullable(),
            (Shape::Nullable(_), Shape::Null) | (Shape::Null, Shape::Nullable(_)) => Shape::Null,
            (Shape::Nullable(one), other) | (other, Shape::Nullable(one)) => self.meet(*one, other),
            (Shape::Union(shapes), other) | (other, Shape::Union(shapes)) => {
                let met = shapes.into_iter().map(|shape| self.meet(shape, other.clone()));
                let met: Vec<Shape<'a>> = met.filter(|shape| *shape != Shape::Never).collect();
                if met.is_empty() { Shape::Never } else { self.union(met) }
            }
            (one, other) => one.meet_plain(other),
        }
    }

    fn union(self, shapes: Vec<Shape<'a>>) -> Shape<'a> {
        let mut distinct: Vec<Shape<'a>> = Vec::new();
        for shape in shapes {
            if !distinct.contains(&shape) {
                distinct.push(shape);
            }
        }
        let mut shapes = distinct;
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
            let mut branches: Vec<(&str, SchemaParts<'a>)> = Vec::new();
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

    fn object(self, shape: &Shape<'a>) -> Option<SchemaParts<'a>> {
        match shape {
            Shape::Object(parts) => Some(parts.clone()),
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
    fn parts(self, schema: &'a Value, hops: usize) -> Option<SchemaParts<'a>> {
        let hops = hops.checked_sub(1).filter(|_| self.step())?;
        let kind = schema.get("type").is_none_or(|kind| {
            kind == "object" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "object"))
        });
        let combined = ["const", "enum", "oneOf", "anyOf"].iter().any(|name| schema.get(name).is_some());
        if !schema.is_object() || !kind || (combined && schema.get("properties").is_none()) {
            return None;
        }
        let mut parts = SchemaParts::of(schema);
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

    /// The shape without null.
    fn not_null(self) -> Self {
        match self {
            Self::Nullable(shape) => *shape,
            shape => shape,
        }
    }

    /// Whether the shape is one of values without parts. Only `type`, `const` and `enum` give such a shape.
    fn is_scalar(&self) -> bool {
        matches!(
            self,
            Self::Null | Self::Bool | Self::Integer { .. } | Self::Number | Self::Text | Self::Words(_)
        )
    }

    /// The shape of what fits both of two shapes without references, unions and null.
    fn meet_plain(self, other: Self) -> Self {
        match (self, other) {
            (Self::Integer { negative }, Self::Integer { negative: also }) => {
                Self::Integer { negative: negative && also }
            }
            (integer @ Self::Integer { .. }, Self::Number)
            | (Self::Number, integer @ Self::Integer { .. }) => integer,
            (Self::Words(words), Self::Text) | (Self::Text, Self::Words(words)) => Self::Words(words),
            (Self::Words(words), Self::Words(others)) => {
                let both: BTreeSet<&str> = words.intersection(&others).copied().collect();
                if both.is_empty() { Self::Never } else { Self::Words(both) }
            }
            (values @ Self::Values(_), _) | (_, values @ Self::Values(_)) => values,
            (one, other) if one.is_scalar() && other.is_scalar() => Self::Never,
            // A schema that names properties and no type is taken for one of objects, and this one shows that it is not.
            (scalar, _) | (_, scalar) if scalar.is_scalar() => scalar,
            (Self::Object(mut parts), Self::Object(more)) => match parts.add(more) {
                Some(()) => Self::Object(parts),
                None => Self::Any,
            },
            (Self::Object(parts), Self::Map(_)) | (Self::Map(_), Self::Object(parts)) => Self::Object(parts),
            (Self::Map(one), Self::Map(other)) => Self::Map(either(one, other)),
            (Self::List(one), Self::List(other)) => Self::List(either(one, other)),
            (tagged @ Self::Tagged { .. }, Self::Object(_) | Self::Map(_))
            | (Self::Object(_) | Self::Map(_), tagged @ Self::Tagged { .. }) => tagged,
            _ => Self::Any,
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

impl<'a> SchemaParts<'a> {
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
}

/// The schema of parts that two schemas describe: the only one there is.
fn either<'a>(one: Option<&'a Value>, other: Option<&'a Value>) -> Option<&'a Value> {
    match (one, other) {
        (Some(_), Some(_)) => None,
        (one, other) => one.or(other),
    }
}

fn values(listed: &[Value]) -> Shape<'_> {
    if listed.is_empty() {
        return Shape::Never;
    }
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
