//! Shapes: schemas without unions. A shape is one way in which a value can satisfy a schema.
//!
//! A shape accepts at least the values that its schemas accept in that way. Keywords that it cannot express
//! are left out, so a fact about all values of a shape is also a fact about all values of its schemas.

mod container;
mod expansion;
mod scalar;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub(super) use container::{additional, dependent_names, dependent_schemas, items_of};
pub(super) use expansion::flatten;

use super::Undeclared;
use super::document::SchemaDocument;
use super::node::{Conjunction, DocumentSide, SchemaNode};
use super::types::TypeSet;

/// Both documents, and how open objects are read.
pub(super) struct SchemaPair<'a> {
    pub(super) writes: SchemaDocument<'a>,
    pub(super) reads: SchemaDocument<'a>,
    pub(super) undeclared: Undeclared,
}

impl<'a> SchemaPair<'a> {
    pub(super) fn of(&self, side: DocumentSide) -> &SchemaDocument<'a> {
        match side {
            DocumentSide::Writes => &self.writes,
            DocumentSide::Reads => &self.reads,
        }
    }

    pub(super) fn accepts(&self, node: &SchemaNode<'a>, value: &Value) -> Option<bool> {
        self.of(node.side).accepts(node, value)
    }

    /// Whether a value satisfies a conjunction, or that cannot be told.
    pub(super) fn may_accept(&self, all: &Conjunction<'a>, value: &Value) -> bool {
        TypeSet::of_value(value).within(all.types)
            && all
                .values
                .as_ref()
                .is_none_or(|values| values.iter().any(|one| super::number::equal(one, value)))
            && all.nodes.iter().all(|node| self.accepts(node, value) != Some(false))
    }
}

/// A conjunction of schemas without unions.
#[derive(Debug, Clone)]
pub(super) struct ValueShape<'a> {
    /// Schemas that the value satisfies. Their unions and references for the same place are expanded already.
    pub(super) parts: Vec<SchemaNode<'a>>,
    /// Schemas that the value does not satisfy.
    pub(super) nots: Vec<SchemaNode<'a>>,
    pub(super) types: TypeSet,
    /// The value is one of these.
    pub(super) values: Option<Vec<Value>>,
    /// Properties that hold one of these values.
    pub(super) fields: BTreeMap<String, Vec<Value>>,
    /// Properties that an object has.
    pub(super) present: BTreeSet<String>,
    /// Properties that an object does not have.
    pub(super) absent: BTreeSet<String>,
    /// Some union was left out because there are too many combinations.
    pub(super) lossy: bool,
}

impl<'a> ValueShape<'a> {
    pub(super) fn new(types: TypeSet, values: Option<Vec<Value>>) -> Self {
        Self {
            parts: Vec::new(),
            nots: Vec::new(),
            types,
            values,
            fields: BTreeMap::new(),
            present: BTreeSet::new(),
            absent: BTreeSet::new(),
            lossy: false,
        }
    }

    /// This shape with fewer types.
    pub(super) fn only(&self, types: TypeSet) -> Self {
        Self { types: self.types.and(types), ..self.clone() }
    }

    /// All values of the shape, if they are few.
    pub(super) fn finite(&self, docs: &SchemaPair<'a>) -> Option<Vec<Value>> {
        let listed = self.values.clone().or_else(|| self.listed()).or_else(|| self.counted(docs))?;
        Some(listed.into_iter().filter(|value| self.may_be(docs, value)).collect())
    }

    /// The shortest list of values in `const` or `enum` of a part.
    fn listed(&self) -> Option<Vec<Value>> {
        let lists = self.parts.iter().filter_map(|part| match (part.get("const"), part.get("enum")) {
            (Some(value), _) => Some(vec![value.clone()]),
            (None, Some(Value::Array(values))) => Some(values.clone()),
            _ => None,
        });
        lists.min_by_key(Vec::len)
    }

    /// Whether a value is of this shape, or that cannot be told.
    pub(super) fn may_be(&self, docs: &SchemaPair<'a>, value: &Value) -> bool {
        let fits = match value {
            Value::Object(object) => {
                self.present.iter().all(|name| object.contains_key(name))
                    && !self.absent.iter().any(|name| object.contains_key(name))
                    && self.fields.iter().all(|(name, values)| {
                        object
                            .get(name)
                            .is_none_or(|value| values.iter().any(|one| super::number::equal(one, value)))
                    })
            }
            _ => true,
        };
        fits && TypeSet::of_value(value).within(self.types)
            && self.parts.iter().all(|part| docs.accepts(part, value) != Some(false))
            && self.nots.iter().all(|not| docs.accepts(not, value) != Some(true))
    }

    /// The values of a keyword in all parts that have it.
    pub(super) fn all(&self, keyword: &str) -> impl Iterator<Item = &'a Value> {
        self.parts.iter().filter_map(move |part| part.get(keyword))
    }
}
