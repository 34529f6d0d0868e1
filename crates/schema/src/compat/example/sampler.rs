//! Values that schemas accept, small ones and ones at their bounds.

use std::cell::Cell;
use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::{anything, around, name_like, strings};
use crate::compat::node::Conjunction;
use crate::compat::number::{ExactNumber, equal};
use crate::compat::shape::{SchemaPair, ValueShape, flatten};
use crate::compat::types::TypeSet;

/// How deep values are nested.
const DEPTH_MAX: usize = 6;
/// Values of one schema, at most.
const VALUES_MAX: usize = 40;
/// Schemas that one search makes values of, at most.
const WORK_MAX: u32 = 1_500;
/// Lengths that are made for a bound, at most.
pub(super) const LENGTH_MAX: u64 = 4_096;

/// Makes values that schemas accept, within a bound on the work.
pub(super) struct Sampler<'d, 'a> {
    pub(super) docs: &'d SchemaPair<'a>,
    work: Cell<u32>,
}

impl<'d, 'a> Sampler<'d, 'a> {
    pub(super) fn new(docs: &'d SchemaPair<'a>) -> Self {
        Self { docs, work: Cell::new(0) }
    }

    fn may_work(&self, depth: usize) -> bool {
        self.work.set(self.work.get() + 1);
        self.work.get() <= WORK_MAX && depth <= DEPTH_MAX
    }

    /// Values that all of the schemas accept.
    pub(super) fn of_all(&self, all: &Conjunction<'a>, depth: usize) -> Vec<Value> {
        if !self.may_work(depth) || all.is_nothing() {
            return Vec::new();
        }
        if all.is_anything() {
            return anything();
        }
        let mut values = Vec::new();
        for shape in flatten(self.docs, all).iter().take(12) {
            values.extend(self.of_shape(shape, depth));
        }
        values.truncate(VALUES_MAX * 2);
        values
    }

    /// One small value that all of the schemas accept.
    fn one(&self, all: &Conjunction<'a>, depth: usize) -> Option<Value> {
        if !self.may_work(depth) || all.is_nothing() {
            return None;
        }
        if all.is_anything() {
            return Some(Value::Null);
        }
        flatten(self.docs, all).iter().take(12).find_map(|shape| self.one_of_shape(shape, depth))
    }

    fn one_of_shape(&self, shape: &ValueShape<'a>, depth: usize) -> Option<Value> {
        if let Some(values) = shape.finite(self.docs) {
            return values.into_iter().next();
        }
        TypeSet::EACH.into_iter().find_map(|types| {
            let one = shape.only(types);
            let some = match types {
                _ if one.types.is_empty() => Vec::new(),
                TypeSet::NULL => vec![Value::Null],
                TypeSet::BOOLEAN => vec![json!(false), json!(true)],
                TypeSet::NUMBER => numbers(&one),
                TypeSet::STRING => strings::of_shape(&one),
                TypeSet::ARRAY => {
                    let least = usize::try_from(shape.items_min().min(LENGTH_MAX)).unwrap_or(0);
                    let lists =
                        [least, least + 1].into_iter().filter_map(|length| self.list(&one, length, depth));
                    lists.map(Value::Array).collect()
                }
                _ => vec![
                    Value::Object(self.object(&one, depth, false)),
                    Value::Object(self.object(&one, depth, true)),
                ],
            };
            some.into_iter().find(|value| one.may_be(self.docs, value))
        })
    }

    /// Values of a shape.
    pub(super) fn of_shape(&self, shape: &ValueShape<'a>, depth: usize) -> Vec<Value> {
        if let Some(mut values) = shape.finite(self.docs) {
            values.truncate(VALUES_MAX);
            return values;
        }
        let mut values = Vec::new();
        for types in TypeSet::EACH {
            let one = shape.only(types);
            if one.types.is_empty() {
                continue;
            }
            let mut some = match types {
                TypeSet::NULL => vec![Value::Null],
                TypeSet::BOOLEAN => vec![json!(false), json!(true)],
                TypeSet::NUMBER => numbers(&one),
                TypeSet::STRING => strings::of_shape(&one),
                TypeSet::ARRAY => self.lists(&one, depth),
                _ => self.objects(&one, depth),
            };
            some.retain(|value| one.may_be(self.docs, value));
            some.truncate(VALUES_MAX);
            values.extend(some);
        }
        values
    }

    fn lists(&self, shape: &ValueShape<'a>, depth: usize) -> Vec<Value> {
        let least = usize::try_from(shape.items_min().min(LENGTH_MAX)).unwrap_or(0);
        let mut lists: Vec<Value> = [least, least + 1, least + 2, 0]
            .into_iter()
            .filter_map(|length| self.list(shape, length, depth).map(Value::Array))
            .collect();
        if self.may_work(depth + 1) {
            for index in 0..=shape.prefix_len(self.docs) {
                for item in self.of_all(&shape.item(self.docs, index), depth + 1).into_iter().take(10) {
                    lists.extend(self.lists_with(shape, index, &item));
                }
            }
        }
        lists
    }

    /// A list of so many items.
    pub(super) fn list(&self, shape: &ValueShape<'a>, length: usize, depth: usize) -> Option<Vec<Value>> {
        if !self.may_work(depth + 1) {
            return (length == 0).then(Vec::new);
        }
        let mut contained: Vec<Value> = Vec::new();
        for part in &shape.parts {
            if let Some(node) = part.child("contains") {
                let times = part.count("minContains").unwrap_or(1).clamp(1, 8);
                let some = self.of_all(&Conjunction::of(vec![node]), depth + 1);
                contained.extend(
                    (0..times).filter_map(|time| {
                        some.get(usize::try_from(time).ok()? % some.len().max(1)).cloned()
                    }),
                );
            }
        }
        let alike = shape.prefix_len(self.docs);
        let mut rest: Vec<Value> = Vec::new();
        let mut items: Vec<Value> = Vec::with_capacity(length);
        for index in 0..length {
            let all = shape.item(self.docs, index);
            let some = match index {
                _ if index > alike => rest.clone(),
                _ if shape.is_unique() => self.of_all(&all, depth + 1),
                _ => self.one(&all, depth + 1).into_iter().collect(),
            };
            if index >= alike && rest.is_empty() {
                rest.clone_from(&some);
            }
            let fitting = contained.iter().position(|one| self.docs.may_accept(&all, one));
            let item = match fitting {
                Some(place) => contained.remove(place),
                None => {
                    let fresh =
                        |one: &&Value| !shape.is_unique() || !items.iter().any(|item| equal(item, one));
                    some.iter().find(fresh)?.clone()
                }
            };
            items.push(item);
        }
        Some(items)
    }

    /// Lists that hold an item at an index.
    pub(super) fn lists_with(&self, shape: &ValueShape<'a>, index: usize, item: &Value) -> Vec<Value> {
        let least = usize::try_from(shape.items_min().min(LENGTH_MAX)).unwrap_or(0).max(index + 1);
        let mut lists = Vec::new();
        for length in [least, least + 1] {
            let Some(mut list) = self.list(shape, length, 2) else { continue };
            if let Some(place) = list.get_mut(index) {
                *place = item.clone();
            }
            lists.push(Value::Array(list));
        }
        lists
    }

    fn objects(&self, shape: &ValueShape<'a>, depth: usize) -> Vec<Value> {
        let (small, full) = (self.object(shape, depth, false), self.object(shape, depth, true));
        let mut objects = vec![small.clone(), full.clone()];
        let (named, required) = (shape.named(self.docs), shape.required(self.docs));
        if self.may_work(depth + 1) {
            for name in &named {
                let values = self.of_all(&shape.property(self.docs, name), depth + 1);
                for value in values.into_iter().take(if depth < 2 { 10 } else { 3 }) {
                    for base in [&small, &full] {
                        let mut object = base.clone();
                        object.insert((*name).to_owned(), value.clone());
                        objects.push(object);
                    }
                }
                if !required.contains(name) {
                    let mut object = full.clone();
                    object.remove(*name);
                    objects.push(object);
                }
            }
            for other in shape.others(self.docs, None) {
                let name = name_like(self.docs, shape, other.pattern);
                for value in self.of_all(&other.all, depth + 1).into_iter().take(6) {
                    let mut object = small.clone();
                    object.insert(name.clone(), value);
                    objects.push(object);
                }
            }
        }
        objects.dedup();
        objects.into_iter().map(Value::Object).collect()
    }

    /// An object with what is required, or with all that is named.
    pub(super) fn object(&self, shape: &ValueShape<'a>, depth: usize, full: bool) -> Map<String, Value> {
        let mut object = Map::new();
        let names = if full { shape.named(self.docs) } else { shape.required(self.docs) };
        for name in names {
            if shape.absent.contains(name) || !self.may_work(depth + 1) {
                continue;
            }
            let all = shape.property(self.docs, name);
            let value = self.one(&all, depth + 1);
            object.extend(value.map(|value| (name.to_owned(), value)));
        }
        self.fill(shape, &mut object, shape.properties_min(self.docs), depth);
        object
    }

    /// Adds properties until there are so many.
    pub(super) fn fill(
        &self,
        shape: &ValueShape<'a>,
        object: &mut Map<String, Value>,
        least: u64,
        depth: usize,
    ) {
        let named = shape.named(self.docs).into_iter().map(str::to_owned);
        let unnamed = (0..least.min(64)).map(|index| format!("more{index}"));
        for name in named.chain(unnamed) {
            if object.len() as u64 >= least {
                return;
            }
            if object.contains_key(&name) || shape.absent.contains(&name) || !self.may_work(depth + 1) {
                continue;
            }
            let value = self.one(&shape.property(self.docs, &name), depth + 1);
            object.extend(value.map(|value| (name, value)));
        }
    }
}

/// An object that holds a property, with as little else as possible or with all that is named.
pub(super) fn object_with<'a>(
    sampler: &Sampler<'_, 'a>,
    shape: &ValueShape<'a>,
    name: &str,
    value: &Value,
    full: bool,
) -> Value {
    let mut with = shape.clone();
    with.present.insert(name.to_owned());
    let mut object = sampler.object(&with, 2, full);
    object.insert(name.to_owned(), value.clone());
    Value::Object(object)
}

fn numbers(shape: &ValueShape<'_>) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    for keyword in ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"] {
        values.extend(shape.all(keyword).flat_map(around));
    }
    let steps = shape.all("multipleOf").filter_map(Value::as_f64);
    values.extend(steps.flat_map(|step| [step, step * 2.0, step * 3.0, step * 7.0, -step]).map(Value::from));
    values.extend([
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(0.25),
        json!(1000),
        json!(-1e6),
        json!(1e12),
    ]);
    values.sort_by(|one, two| {
        let size = |value: &Value| {
            value.as_f64().map_or(ExactNumber::Whole(0), |float| ExactNumber::Float(float.abs()))
        };
        if let (ExactNumber::Float(one), ExactNumber::Float(two)) = (size(one), size(two)) {
            one.total_cmp(&two)
        } else {
            Ordering::Equal
        }
    });
    values.dedup();
    values
}

/// Values of a shape.
pub(crate) fn of_shape<'a>(docs: &SchemaPair<'a>, shape: &ValueShape<'a>) -> Vec<Value> {
    let says_nothing = shape.parts.is_empty() && shape.values.is_none() && shape.types == TypeSet::ALL;
    if says_nothing { anything() } else { Sampler::new(docs).of_shape(shape, 0) }
}

/// Values that all of the schemas accept.
pub(crate) fn of_all<'a>(docs: &SchemaPair<'a>, all: &Conjunction<'a>) -> Vec<Value> {
    Sampler::new(docs).of_all(all, 0)
}
