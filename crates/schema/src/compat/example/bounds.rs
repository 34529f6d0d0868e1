//! Values just beyond a bound, and names beyond those that are declared.

use serde_json::Value;

use super::sample::{LENGTH_MAX, Sampler, of_all};
use super::text;
use crate::compat::node::{All, Node};
use crate::compat::shape::{Docs, Shape};
use crate::compat::types::Types;

/// Strings of a shape, one short of a length or one above it.
pub(in super::super) fn texts_of_length(shape: &Shape<'_>, length: u64, above: bool) -> Vec<Value> {
    let wanted = if above { length.saturating_add(1) } else { length.saturating_sub(1) };
    text::of_length(shape, wanted.min(LENGTH_MAX))
}

/// Lists of a shape, one short of a length or one above it.
pub(in super::super) fn lists_of_length<'a>(
    docs: &Docs<'a>,
    shape: &Shape<'a>,
    length: u64,
    above: bool,
) -> Vec<Value> {
    let wanted = if above { length.saturating_add(1) } else { length.saturating_sub(1) };
    let wanted = if above { wanted.max(shape.items_min()) } else { wanted };
    let Ok(wanted) = usize::try_from(wanted.min(LENGTH_MAX)) else { return Vec::new() };
    Sampler::new(docs).list(shape, wanted, 0).map(Value::Array).into_iter().collect()
}

/// Lists that hold the same item twice.
pub(in super::super) fn lists_with_twins<'a>(docs: &Docs<'a>, shape: &Shape<'a>) -> Vec<Value> {
    let sampler = Sampler::new(docs);
    let least = usize::try_from(shape.items_min().clamp(2, LENGTH_MAX)).unwrap_or(2);
    let firsts = sampler.of_all(&shape.item(docs, 0), 1);
    let mut lists = Vec::new();
    for first in firsts.into_iter().take(8) {
        let Some(mut list) = sampler.list(shape, least, 0) else { continue };
        list.iter_mut().take(2).for_each(|item| *item = first.clone());
        lists.push(Value::Array(list));
    }
    lists
}

/// Lists that hold many, and none, of what is asked for.
pub(in super::super) fn lists_for_contains<'a>(
    docs: &Docs<'a>,
    shape: &Shape<'a>,
    asked: &Node<'a>,
) -> Vec<Value> {
    let sampler = Sampler::new(docs);
    let least = usize::try_from(shape.items_min().clamp(1, 64)).unwrap_or(1);
    let item = shape.item(docs, shape.prefix_len(docs));
    let (mut wanted, mut other) = (sampler.of_all(&item, 1), sampler.of_all(&item, 1));
    wanted.extend(sampler.of_all(&All::of(vec![asked.clone()]), 1));
    wanted.retain(|value| docs.accepts(asked, value) == Some(true));
    other.extend(super::anything_but(docs, asked).into_iter().filter(|value| docs.may_accept(&item, value)));
    other.retain(|value| docs.accepts(asked, value) == Some(false));
    let mut lists = Vec::new();
    for some in [other, wanted] {
        lists.extend(some.iter().map(|one| Value::from(vec![one.clone(); least])));
        for length in [least, least + 1, least + 2, least + 4] {
            lists.extend(some.first().map(|one| Value::from(vec![one.clone(); length])));
            lists.push(Value::from(some.iter().take(length).cloned().collect::<Vec<_>>()));
        }
    }
    lists
}

/// Objects of a shape, one short of a number of properties or one above it.
pub(in super::super) fn objects_of_size<'a>(
    docs: &Docs<'a>,
    shape: &Shape<'a>,
    size: u64,
    above: bool,
) -> Vec<Value> {
    let sampler = Sampler::new(docs);
    let mut object = sampler.object(shape, 0, false);
    let wanted = if above { size.saturating_add(1) } else { size.saturating_sub(1) };
    sampler.fill(shape, &mut object, wanted.min(LENGTH_MAX), 0);
    vec![Value::Object(object)]
}

/// A name that no schema names, and that matches a pattern when one is given.
pub(in super::super) fn name_like<'a>(docs: &Docs<'a>, shape: &Shape<'a>, pattern: Option<&str>) -> String {
    let named = shape.named(docs);
    let mut names: Vec<String> = pattern.map(text::like).unwrap_or_default();
    let own = shape.parts.iter().filter_map(|part| part.child("propertyNames")).collect();
    let own = All { types: Types::STRING, ..All::of(own) };
    if pattern.is_none() && !own.nodes.is_empty() {
        names.extend(of_all(docs, &own).iter().filter_map(Value::as_str).map(str::to_owned));
    }
    names.extend(["undeclared", "undeclared_2", "z", "0", "Z", "x-undeclared", "_"].map(str::to_owned));
    let fits = |name: &&String| {
        let matches = pattern.is_none_or(|pattern| docs.writes.matches(pattern, name) == Some(true));
        matches && !named.contains(name.as_str()) && docs.may_accept(&own, &Value::from(name.as_str()))
    };
    names.iter().find(fits).cloned().unwrap_or_else(|| "undeclared".into())
}
