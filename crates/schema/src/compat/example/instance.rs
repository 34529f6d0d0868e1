//! Instances of the whole document: made around a value at some place, and checked by both validators.

use serde_json::{Map, Value};

use super::sampler::{Sampler, object_with};
use crate::compat::Undeclared;
use crate::compat::node::Conjunction;
use crate::compat::shape::{SchemaPair, ValueShape, flatten};

/// How deep an instance is searched for undeclared properties.
const DEPTH_MAX: usize = 64;

/// Whether an instance shows an incompatibility: the one document accepts it and the other refuses it.
pub(crate) fn shows(docs: &SchemaPair<'_>, instance: &Value) -> bool {
    docs.writes.whole().is_valid(instance)
        && !docs.reads.whole().is_valid(instance)
        && (docs.undeclared == Undeclared::Any
            || is_declared(docs, &Conjunction::of(vec![docs.writes.root()]), instance, DEPTH_MAX))
}

/// Whether an instance holds only declared properties, in one of the shapes that the schemas have.
fn is_declared<'a>(docs: &SchemaPair<'a>, all: &Conjunction<'a>, value: &Value, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    flatten(docs, all).iter().any(|shape| {
        shape.may_be(docs, value)
            && match value {
                Value::Object(object) => object.iter().all(|(name, value)| {
                    let own = shape.property(docs, name);
                    !own.is_nothing() && is_declared(docs, &own, value, depth - 1)
                }),
                Value::Array(items) => items
                    .iter()
                    .enumerate()
                    .all(|(index, item)| is_declared(docs, &shape.item(docs, index), item, depth - 1)),
                _ => true,
            }
    })
}

/// The step from a place of an instance to one below.
#[derive(Debug, Clone)]
pub(crate) enum InstanceStep {
    /// To the property of that name.
    Name(String),
    /// To the item at that index.
    Index(usize),
    /// To the name of a property.
    Key,
}

/// One step down into an instance, with the shape of the place above.
#[derive(Debug, Clone)]
pub(crate) struct InstanceFrame<'a> {
    /// The shape of the place above.
    pub(crate) shape: ValueShape<'a>,
    pub(crate) step: InstanceStep,
    /// The step as findings show it.
    pub(crate) shown: String,
}

/// Makes instances of the whole document that hold a value at a place: with as little as possible around it, and with all
/// that is named.
pub(crate) fn embed<'a>(docs: &SchemaPair<'a>, frames: &[InstanceFrame<'a>], value: Value) -> Vec<Value> {
    let mut wholes = vec![value];
    for frame in frames.iter().rev() {
        let sampler = Sampler::new(docs);
        let above = |value: &Value| match &frame.step {
            InstanceStep::Name(name) => {
                [false, true].map(|full| object_with(&sampler, &frame.shape, name, value, full)).to_vec()
            }
            InstanceStep::Index(index) => sampler.lists_with(&frame.shape, *index, value),
            InstanceStep::Key => key(&sampler, &frame.shape, value),
        };
        wholes = wholes.iter().flat_map(above).collect();
        wholes.dedup();
        wholes.truncate(4);
    }
    wholes
}

fn key<'a>(sampler: &Sampler<'_, 'a>, shape: &ValueShape<'a>, name: &Value) -> Vec<Value> {
    let Some(name) = name.as_str() else { return Vec::new() };
    let values = sampler.of_all(&shape.property(sampler.docs, name), 2);
    let mut object: Map<String, Value> = sampler.object(shape, 2, false);
    object.insert(name.to_owned(), values.into_iter().next().unwrap_or(Value::Null));
    vec![Value::Object(object)]
}
