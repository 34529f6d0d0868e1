//! From a value at some place to an instance of the whole document.

use serde_json::{Map, Value};

use super::sample::{Sampler, object_with};
use crate::compat::shape::{Docs, Shape};

/// How a place is reached from the one above.
#[derive(Debug, Clone)]
pub(in super::super) enum Step {
    /// The property of that name.
    Name(String),
    /// The item at that index.
    Index(usize),
    /// It is the name of a property.
    Key,
}

/// One step down into an instance.
#[derive(Debug, Clone)]
pub(in super::super) struct Frame<'a> {
    /// What is above.
    pub(in super::super) shape: Shape<'a>,
    pub(in super::super) step: Step,
    /// The step as findings show it.
    pub(in super::super) shown: String,
}

/// Instances that hold a value at a place: with as little as possible around it, and with all.
pub(in super::super) fn lift<'a>(docs: &Docs<'a>, frames: &[Frame<'a>], value: Value) -> Vec<Value> {
    let mut wholes = vec![value];
    for frame in frames.iter().rev() {
        let sampler = Sampler::new(docs);
        let above = |value: &Value| match &frame.step {
            Step::Name(name) => {
                [false, true].map(|full| object_with(&sampler, &frame.shape, name, value, full)).to_vec()
            }
            Step::Index(index) => sampler.lists_with(&frame.shape, *index, value),
            Step::Key => key(&sampler, &frame.shape, value),
        };
        wholes = wholes.iter().flat_map(above).collect();
        wholes.dedup();
        wholes.truncate(4);
    }
    wholes
}

fn key<'a>(sampler: &Sampler<'_, 'a>, shape: &Shape<'a>, name: &Value) -> Vec<Value> {
    let Some(name) = name.as_str() else { return Vec::new() };
    let values = sampler.of_all(&shape.property(sampler.docs, name), 2);
    let mut object: Map<String, Value> = sampler.object(shape, 2, false);
    object.insert(name.to_owned(), values.into_iter().next().unwrap_or(Value::Null));
    vec![Value::Object(object)]
}
