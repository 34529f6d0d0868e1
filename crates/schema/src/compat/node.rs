//! Places in the two documents, and the schemas that apply to one place of an instance.

use std::fmt::Write;
use std::rc::Rc;

use serde_json::{Map, Value};

use super::types::TypeSet;

/// Which of the two documents: the one whose instances are looked at, or the one that must accept them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum DocumentSide {
    Writes,
    Reads,
}

/// A schema inside one of the documents.
#[derive(Debug, Clone)]
pub(super) struct SchemaNode<'a> {
    pub(super) side: DocumentSide,
    /// Its JSON pointer.
    pub(super) at: Rc<str>,
    pub(super) schema: &'a Value,
}

impl<'a> SchemaNode<'a> {
    pub(super) fn object(&self) -> Option<&'a Map<String, Value>> {
        self.schema.as_object()
    }

    pub(super) fn get(&self, keyword: &str) -> Option<&'a Value> {
        self.schema.get(keyword)
    }

    /// The schema under a keyword, if there is one.
    pub(super) fn child(&self, keyword: &str) -> Option<Self> {
        let schema = self.get(keyword)?;
        let fits = schema.is_object() || schema.is_boolean();
        fits.then(|| Self { side: self.side, at: join(&self.at, &[keyword]), schema })
    }

    /// The schemas of the list under a keyword.
    pub(super) fn list(&self, keyword: &str) -> Vec<Self> {
        let Some(Value::Array(list)) = self.get(keyword) else { return Vec::new() };
        let node = |(index, schema)| Self {
            side: self.side,
            at: join(&self.at, &[keyword, &format!("{index}")]),
            schema,
        };
        list.iter().enumerate().map(node).collect()
    }

    /// The schema of a name in the map under a keyword.
    pub(super) fn entry(&self, keyword: &str, name: &str) -> Option<Self> {
        let schema = self.get(keyword)?.as_object()?.get(name)?;
        let fits = schema.is_object() || schema.is_boolean();
        fits.then(|| Self { side: self.side, at: join(&self.at, &[keyword, name]), schema })
    }

    /// The names of the map under a keyword.
    pub(super) fn names(&self, keyword: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.get(keyword)
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|map| map.keys().map(String::as_str))
    }

    /// The number of a counting keyword such as `minLength`; `2.0` counts as 2.
    pub(super) fn count(&self, keyword: &str) -> Option<u64> {
        let value = self.get(keyword)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and not negative")]
        value.as_u64().or_else(|| {
            let float = value.as_f64()?;
            (float.fract() == 0.0 && float >= 0.0).then_some(float as u64)
        })
    }

    pub(super) fn key(&self) -> (DocumentSide, Rc<str>) {
        (self.side, self.at.clone())
    }
}

/// Appends steps to a JSON pointer.
pub(super) fn join(at: &str, steps: &[&str]) -> Rc<str> {
    let mut path = at.to_owned();
    for step in steps {
        let escaped = step.replace('~', "~0").replace('/', "~1");
        // Writing to a string does not fail.
        let _ = write!(path, "/{escaped}");
    }
    path.into()
}

/// Schemas, values and types that a value at one place of an instance must all satisfy.
#[derive(Debug, Clone)]
pub(super) struct Conjunction<'a> {
    pub(super) nodes: Vec<SchemaNode<'a>>,
    /// The value must be one of these.
    pub(super) values: Option<Vec<Value>>,
    /// The value must be of one of these types.
    pub(super) types: TypeSet,
}

impl<'a> Conjunction<'a> {
    pub(super) fn of(nodes: Vec<SchemaNode<'a>>) -> Self {
        Self { nodes, values: None, types: TypeSet::ALL }
    }

    /// Whether every value satisfies it.
    pub(super) fn is_anything(&self) -> bool {
        self.values.is_none()
            && self.types == TypeSet::ALL
            && self.nodes.iter().all(|node| says_nothing(node.schema))
    }

    /// Whether it is plain that no value satisfies it.
    pub(super) fn is_nothing(&self) -> bool {
        self.nodes.iter().any(|node| node.schema == &Value::Bool(false))
            || self.values.as_ref().is_some_and(Vec::is_empty)
    }

    /// A text that identifies it; the order of schemas does not matter.
    pub(super) fn key(&self) -> String {
        let mut keys: Vec<_> = self.nodes.iter().map(SchemaNode::key).collect();
        keys.sort();
        keys.dedup();
        let mut text = format!("{:?}", self.types);
        for (side, at) in keys {
            let _ = write!(text, "|{side:?}{at}");
        }
        if let Some(values) = &self.values {
            let _ = write!(text, "={}", Value::from(values.clone()));
        }
        text
    }
}

fn says_nothing(schema: &Value) -> bool {
    schema == &Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty)
}
