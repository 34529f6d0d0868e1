//! The shapes of schemas: references and `allOf` are expanded, and each member of a union makes a shape of its own.

use std::collections::HashSet;
use std::rc::Rc;

use serde_json::Value;

use super::container::dependent_schemas;
use super::{SchemaPair, ValueShape};
use crate::compat::node::{Conjunction, DocumentSide, SchemaNode};
use crate::compat::number::ExactNumber;
use crate::compat::scan::is_annotation;
use crate::compat::types::TypeSet;

/// Shapes of one schema, at most; beyond it, its unions are left out.
const SHAPES_MAX: usize = 64;

/// A shape that is being put together.
#[derive(Clone)]
struct PartialShape<'a> {
    shape: ValueShape<'a>,
    todo: Vec<SchemaNode<'a>>,
    seen: HashSet<(DocumentSide, Rc<str>)>,
}

/// All shapes of a value that satisfies a conjunction.
pub(crate) fn flatten<'a>(docs: &SchemaPair<'a>, all: &Conjunction<'a>) -> Vec<ValueShape<'a>> {
    flatten_from(docs, ValueShape::new(all.types, all.values.clone()), all.nodes.clone())
}

impl<'a> ValueShape<'a> {
    /// All shapes of a value that is of this shape and also satisfies a schema.
    pub(crate) fn and(&self, docs: &SchemaPair<'a>, node: &SchemaNode<'a>) -> Vec<Self> {
        flatten_from(docs, self.clone(), vec![node.clone()])
    }
}

fn flatten_from<'a>(
    docs: &SchemaPair<'a>,
    shape: ValueShape<'a>,
    todo: Vec<SchemaNode<'a>>,
) -> Vec<ValueShape<'a>> {
    let start = PartialShape { shape, todo, seen: HashSet::new() };
    grow(docs, start.clone(), true).or_else(|| grow(docs, start, false)).unwrap_or_default()
}

/// Expands all schemas; `None` if there are too many shapes.
fn grow<'a>(docs: &SchemaPair<'a>, start: PartialShape<'a>, unions: bool) -> Option<Vec<ValueShape<'a>>> {
    let mut open = vec![start];
    let mut done = Vec::new();
    while let Some(mut growing) = open.pop() {
        if growing.shape.types.is_empty() {
            continue;
        }
        let Some(node) = growing.todo.pop() else {
            done.push(growing.shape);
            continue;
        };
        open.extend(growing.take(docs, &node, unions));
        if open.len() + done.len() > SHAPES_MAX {
            return None;
        }
    }
    done.reverse();
    Some(done)
}

impl<'a> PartialShape<'a> {
    /// Adds a schema, and returns the shapes that are left.
    fn take(mut self, docs: &SchemaPair<'a>, node: &SchemaNode<'a>, unions: bool) -> Vec<Self> {
        let Some(schema) = node.object() else {
            return if node.schema == &Value::Bool(false) { Vec::new() } else { vec![self] };
        };
        // A schema that applies twice to the same place adds nothing.
        if !self.seen.insert(node.key()) {
            return vec![self];
        }
        let doc = docs.of(node.side);
        if let Some(target) = doc.reference(schema) {
            let only = || schema.keys().all(|keyword| keyword == "$ref" || is_annotation(keyword));
            let resolved = target.is_ok();
            self.todo.extend(target.ok());
            if doc.is_draft_7() || (resolved && only()) {
                return vec![self];
            }
        }
        self.shape.types = self.shape.types.and(TypeSet::of_keyword(node.get("type")));
        if matches!(node.get("multipleOf").and_then(ExactNumber::of_value), Some(ExactNumber::Whole(_))) {
            self.shape.types = self.shape.types.without(TypeSet::FRACTION);
        }
        self.shape.parts.push(node.clone());
        self.todo.extend(node.list("allOf"));
        let mut ways = vec![self];
        if let Some(not) = node.child("not") {
            ways = ways.into_iter().filter_map(|way| way.without(not.clone())).collect();
        }
        for choices in choices_of(docs, node) {
            if !unions {
                ways.iter_mut().for_each(|way| way.shape.lossy = true);
                continue;
            }
            let chosen = |way: &Self| choices.iter().map(|choice| way.choose(choice)).collect::<Vec<_>>();
            ways = ways.iter().flat_map(chosen).filter(|way| !way.shape.types.is_empty()).collect();
            if ways.len() > SHAPES_MAX {
                break;
            }
        }
        ways
    }

    fn choose(&self, choice: &Choice<'a>) -> Self {
        let mut way = self.clone();
        way.todo.extend(choice.holds.iter().cloned());
        way.shape.nots.extend(choice.fails.iter().cloned());
        way.shape.present.extend(choice.present.map(str::to_owned));
        way.shape.absent.extend(choice.absent.map(str::to_owned));
        for node in &choice.holds {
            if !hides_its_type(node) {
                way.shape.types = way.shape.types.and(TypeSet::of_keyword(node.get("type")));
            }
        }
        way
    }

    /// Takes out the values that a schema accepts; `None` if no value is left.
    fn without(mut self, not: SchemaNode<'a>) -> Option<Self> {
        let Some(schema) = not.object() else {
            return (not.schema == &Value::Bool(false)).then_some(self);
        };
        if schema.is_empty() {
            return None;
        }
        let only = |keywords: &[&str]| schema.keys().all(|key| keywords.contains(&key.as_str()));
        if only(&["type"]) {
            self.shape.types = self.shape.types.without(TypeSet::of_keyword(not.get("type")));
        } else if only(&["not"]) {
            self.todo.extend(not.child("not"));
        } else if only(&["anyOf"]) {
            for member in not.list("anyOf") {
                self = self.without(member)?;
            }
        } else if only(&["required"])
            && let Some([Value::String(name)]) =
                not.get("required").and_then(Value::as_array).map(Vec::as_slice)
        {
            self.shape.types = self.shape.types.and(TypeSet::OBJECT);
            self.shape.absent.insert(name.clone());
        } else {
            self.shape.nots.push(not);
        }
        Some(self)
    }
}

/// A draft 7 schema with a reference hides its own type.
fn hides_its_type(node: &SchemaNode<'_>) -> bool {
    node.get("$ref").is_some()
}

/// One member of a union.
#[derive(Default)]
struct Choice<'a> {
    holds: Vec<SchemaNode<'a>>,
    fails: Vec<SchemaNode<'a>>,
    present: Option<&'a str>,
    absent: Option<&'a str>,
}

/// The unions of a schema, each as its members.
fn choices_of<'a>(docs: &SchemaPair<'a>, node: &SchemaNode<'a>) -> Vec<Vec<Choice<'a>>> {
    let mut unions = Vec::new();
    let any = node.list("anyOf");
    if !any.is_empty() {
        unions.push(
            any.into_iter().map(|member| Choice { holds: vec![member], ..Choice::default() }).collect(),
        );
    }
    let one = node.list("oneOf");
    if !one.is_empty() {
        let choice = |(index, member): (usize, &SchemaNode<'a>)| Choice {
            holds: vec![member.clone()],
            fails: one
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index)
                .map(|(_, other)| other.clone())
                .collect(),
            ..Choice::default()
        };
        unions.push(one.iter().enumerate().map(choice).collect());
    }
    if let Some(condition) = node.child("if") {
        let (then, otherwise) = (node.child("then"), node.child("else"));
        if then.is_some() || otherwise.is_some() {
            let met = [condition.clone()].into_iter().chain(then).collect();
            unions.push(vec![
                Choice { holds: met, ..Choice::default() },
                Choice {
                    holds: otherwise.into_iter().collect(),
                    fails: vec![condition],
                    ..Choice::default()
                },
            ]);
        }
    }
    for (name, schema) in dependent_schemas(docs, node) {
        unions.push(vec![
            Choice { holds: vec![schema], present: Some(name), ..Choice::default() },
            Choice { absent: Some(name), ..Choice::default() },
        ]);
    }
    unions
}
