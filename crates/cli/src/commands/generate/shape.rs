//! What a schema is, as far as a type can say it.
//!
//! Types are wider than schemas: bounds, patterns and conditions are left to a validator. A schema that names properties
//! and no `type` is taken for one of objects.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// References that are followed one after the other.
const HOPS_MAX: usize = 16;
/// What can stand beside a reference without changing what fits.
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
pub(super) enum Sort<'a> {
    Any,
    Never,
    Null,
    Bool,
    Integer {
        negative: bool,
    },
    Number,
    Text,
    /// With what its items are.
    List(Option<&'a Value>),
    /// With what its values are.
    Map(Option<&'a Value>),
    Object(Parts<'a>),
    Words(BTreeSet<&'a str>),
    /// One of several values that are not all texts.
    Values(Vec<&'a Value>),
    Reference(&'a str),
    Nullable(Box<Sort<'a>>),
    Tagged {
        tag: &'a str,
        branches: Vec<(&'a str, Parts<'a>)>,
    },
    Union(Vec<Sort<'a>>),
}

/// An object's properties, those of its `allOf` among them.
#[derive(Debug, Default)]
pub(super) struct Parts<'a> {
    pub(super) properties: BTreeMap<&'a str, &'a Value>,
    pub(super) required: BTreeSet<&'a str>,
    pub(super) closed: bool,
    /// What properties hold that are not named.
    pub(super) others: Option<&'a Value>,
}

/// A document, which references point into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Document<'a> {
    pub(super) root: &'a Value,
    /// Schemas that may still be looked at: references to references can be very many.
    pub(super) steps: &'a Cell<u32>,
}

/// Schemas of one document that are looked at, each as often as it is referred to. Beyond, everything is `Any`.
pub(super) const STEPS_MAX: u32 = 100_000;

impl<'a> Document<'a> {
    pub(super) fn sort(self, schema: &'a Value) -> Sort<'a> {
        if !self.step() {
            return Sort::Any;
        }
        match schema {
            Value::Bool(false) => return Sort::Never,
            Value::Object(_) => {}
            _ => return Sort::Any,
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
            return Sort::Reference(to);
        }
        if schema.get("$ref").is_some() || schema.get("allOf").is_some() {
            return self.all(schema);
        }
        match (schema.get("oneOf"), schema.get("anyOf")) {
            (Some(Value::Array(branches)), None) | (None, Some(Value::Array(branches))) => {
                self.one(schema, branches)
            }
            (None, None) => self.typed(schema),
            _ => Sort::Any,
        }
    }

    /// Everything at once: only of objects that have no property in common can that be said.
    fn all(self, schema: &'a Value) -> Sort<'a> {
        if let Some(Value::Array(all)) = schema.get("allOf")
            && let [only] = all.as_slice()
            && has_only(
                schema,
                &[&ANNOTATIONS[..], &["allOf", "$defs", "definitions", "$schema", "$id"]].concat(),
            )
            && schema.get("$ref").is_none()
        {
            return self.sort(only);
        }
        self.parts(schema, HOPS_MAX).map_or(Sort::Any, Sort::Object)
    }

    /// One of several.
    fn one(self, schema: &'a Value, branches: &'a [Value]) -> Sort<'a> {
        let narrows = |branch: &Value| has_only(branch, &["required", "not", "title", "description", "type"]);
        if schema.get("properties").is_some() {
            // Branches that only say what must be there leave the properties as they are.
            return if branches.iter().all(narrows) { self.typed(schema) } else { Sort::Any };
        }
        let mut sorts: Vec<Sort<'a>> = branches.iter().map(|branch| self.sort(branch)).collect();
        let count = sorts.len();
        sorts.retain(|sort| !matches!(sort, Sort::Null));
        let nullable = sorts.len() < count;
        let sort = self.union(sorts);
        if nullable { sort.nullable() } else { sort }
    }

    fn union(self, mut sorts: Vec<Sort<'a>>) -> Sort<'a> {
        if sorts.len() < 2 {
            return sorts.pop().unwrap_or(Sort::Null);
        }
        if let Some(tagged) = self.tagged(&sorts) {
            return tagged;
        }
        let mut words = BTreeSet::new();
        for sort in &sorts {
            match sort {
                Sort::Words(more) => words.extend(more),
                _ => return Sort::Union(sorts),
            }
        }
        Sort::Words(words)
    }

    /// Objects that a property with one text in each tells apart.
    fn tagged(self, sorts: &[Sort<'a>]) -> Option<Sort<'a>> {
        let objects = || sorts.iter().map(|sort| self.object(sort));
        let first = objects().next()??;
        let mut found = first.properties.keys().filter_map(|tag| {
            let mut branches: Vec<(&str, Parts<'a>)> = Vec::new();
            for object in objects() {
                let mut object = object?;
                let Sort::Words(words) = self.sort(object.properties.remove(tag)?) else { return None };
                let mut words = words.into_iter();
                let (word, None) = (words.next()?, words.next()) else { return None };
                let again = branches.iter().any(|(known, _)| *known == word);
                if again || !object.required.remove(tag) {
                    return None;
                }
                branches.push((word, object));
            }
            Some(Sort::Tagged { tag, branches })
        });
        found.next()
    }

    fn object(self, sort: &Sort<'a>) -> Option<Parts<'a>> {
        match sort {
            Sort::Object(parts) => Some(parts.copy()),
            Sort::Reference(to) => self.parts(self.target(to)?, HOPS_MAX),
            _ => None,
        }
    }

    fn typed(self, schema: &'a Value) -> Sort<'a> {
        let has = |names: &[&str]| names.iter().any(|name| schema.get(name).is_some());
        let types: Vec<&str> = match schema.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ if has(&["properties", "required", "additionalProperties", "patternProperties"]) => {
                vec!["object"]
            }
            _ if has(&["items", "prefixItems"]) => vec!["array"],
            _ => return Sort::Any,
        };
        let mut sorts: Vec<Sort<'a>> = Vec::new();
        for one in types.iter().filter(|one| **one != "null") {
            sorts.push(self.of_type(schema, one));
        }
        let nullable = types.contains(&"null");
        let sort = self.union(sorts);
        if nullable { sort.nullable() } else { sort }
    }

    fn of_type(self, schema: &'a Value, name: &str) -> Sort<'a> {
        match name {
            "boolean" => Sort::Bool,
            "number" => Sort::Number,
            "string" => Sort::Text,
            "integer" => {
                let from = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
                let positive = |least: Option<f64>| least.is_some_and(|least| least >= 0.0);
                Sort::Integer { negative: !positive(from("minimum")) && !positive(from("exclusiveMinimum")) }
            }
            // Items that differ by their place have no type in common.
            "array" => Sort::List(schema.get("items").filter(|items| {
                schema.get("prefixItems").is_none() && (items.is_object() || items.is_boolean())
            })),
            "object" => match self.parts(schema, HOPS_MAX) {
                Some(parts) if parts.is_map() => Sort::Map(parts.others),
                Some(parts) => Sort::Object(parts),
                None => Sort::Any,
            },
            _ => Sort::Any,
        }
    }

    /// The properties of an object and of all that it must be besides; `None` where that is no plain object.
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

    /// Whether one more may be looked at.
    fn step(self) -> bool {
        let left = self.steps.get();
        self.steps.set(left.saturating_sub(1));
        left > 0
    }

    /// Where a reference points.
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

impl<'a> Sort<'a> {
    fn nullable(self) -> Self {
        match self {
            Self::Null | Self::Nullable(_) => self,
            sort => Self::Nullable(Box::new(sort)),
        }
    }

    /// Whether its type has a name.
    pub(super) fn is_named(&self) -> bool {
        match self {
            Self::Nullable(sort) => sort.is_named(),
            sort => matches!(sort, Self::Object(_) | Self::Words(_) | Self::Tagged { .. }),
        }
    }
}

impl<'a> Parts<'a> {
    /// Without what `$ref` and `allOf` add.
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

    /// Both at once; `None` if they say different things of a property.
    fn add(&mut self, more: Self) -> Option<()> {
        for (name, schema) in more.properties {
            if *self.properties.entry(name).or_insert(schema) != schema {
                return None;
            }
        }
        self.required.extend(more.required);
        // What one of them closes is open to the properties of the other, so neither holds for both.
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

fn values(listed: &[Value]) -> Sort<'_> {
    let count = listed.len();
    let some: Vec<&Value> = listed.iter().filter(|value| !value.is_null()).collect();
    let nullable = some.len() < count;
    let words: BTreeSet<&str> = some.iter().filter_map(|value| value.as_str()).collect();
    let sort = match () {
        () if some.is_empty() => Sort::Null,
        () if some.iter().all(|value| value.is_string()) => Sort::Words(words),
        () => Sort::Values(some),
    };
    if nullable { sort.nullable() } else { sort }
}

fn has_only(schema: &Value, names: &[&str]) -> bool {
    schema.as_object().is_some_and(|schema| schema.keys().all(|name| names.contains(&name.as_str())))
}

/// The pointer of a fragment, whose bytes may be written as `%2F`.
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
