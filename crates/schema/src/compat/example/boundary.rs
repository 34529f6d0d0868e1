//! Values just beyond a bound, names beyond the declared ones, and values that a schema refuses.

use serde_json::{Value, json};

use super::sampler::{LENGTH_MAX, Sampler, of_all};
use super::strings;
use crate::compat::node::{Conjunction, SchemaNode};
use crate::compat::shape::{SchemaPair, ValueShape};
use crate::compat::types::TypeSet;

/// Values of every kind, the unusual ones first.
pub(crate) fn anything() -> Vec<Value> {
    vec![
        json!(null),
        json!(0),
        json!("?"),
        json!(true),
        json!(1.5),
        json!({}),
        json!([]),
        json!(""),
        json!(-1),
        json!([null]),
        json!({ "?": null }),
        json!(1e9),
        json!([0, 0]),
        json!("x".repeat(300)),
    ]
}

/// Values that a schema refuses.
pub(crate) fn anything_but<'a>(docs: &SchemaPair<'a>, node: &SchemaNode<'a>) -> Vec<Value> {
    let mut values = anything();
    values.extend(of_all(docs, &Conjunction::of(vec![node.clone()])).iter().flat_map(around));
    values.retain(|value| docs.accepts(node, value) == Some(false));
    values.truncate(16);
    values
}

/// Values near a value.
pub(crate) fn around(value: &Value) -> Vec<Value> {
    match value {
        Value::Number(number) => {
            let Some(float) = number.as_f64() else { return Vec::new() };
            let whole = number.as_i64().into_iter().flat_map(|whole| {
                [
                    whole.checked_sub(1),
                    whole.checked_add(1),
                    Some(whole),
                    whole.checked_mul(2),
                    whole.checked_mul(3),
                ]
            });
            let whole = whole.flatten().map(Value::from);
            whole
                .chain(
                    [float, float - 0.5, float + 0.5, float - 1.0, float + 1.0, float / 2.0].map(Value::from),
                )
                .collect()
        }
        Value::String(text) => {
            let mut shorter = text.clone();
            shorter.pop();
            vec![
                json!(format!("{text}?")),
                json!(shorter),
                json!(format!("?{text}")),
                json!(text.to_uppercase()),
            ]
        }
        Value::Array(items) => {
            let mut longer = items.clone();
            longer.push(items.last().cloned().unwrap_or(Value::Null));
            let shorter = items.iter().skip(1).cloned().collect::<Vec<_>>();
            vec![json!(longer), json!(shorter)]
        }
        Value::Object(object) => {
            let without = |name: &String| {
                let rest = object.iter().filter(|(other, _)| *other != name);
                Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect())
            };
            let changed = |name: &String| {
                let mut object = object.clone();
                object.insert(name.clone(), Value::Null);
                Value::Object(object)
            };
            object.keys().take(8).flat_map(|name| [without(name), changed(name)]).collect()
        }
        _ => Vec::new(),
    }
}

/// Strings of a shape, one short of a length or one above it.
pub(crate) fn texts_of_length(shape: &ValueShape<'_>, length: u64, above: bool) -> Vec<Value> {
    let wanted = if above { length.saturating_add(1) } else { length.saturating_sub(1) };
    strings::of_length(shape, wanted.min(LENGTH_MAX))
}

/// Lists of a shape, one short of a length or one above it.
pub(crate) fn lists_of_length<'a>(
    docs: &SchemaPair<'a>,
    shape: &ValueShape<'a>,
    length: u64,
    above: bool,
) -> Vec<Value> {
    let wanted = if above { length.saturating_add(1) } else { length.saturating_sub(1) };
    let wanted = if above { wanted.max(shape.items_min()) } else { wanted };
    let Ok(wanted) = usize::try_from(wanted.min(LENGTH_MAX)) else { return Vec::new() };
    Sampler::new(docs).list(shape, wanted, 0).map(Value::Array).into_iter().collect()
}

/// Lists that hold the same item twice.
pub(crate) fn lists_with_twins<'a>(docs: &SchemaPair<'a>, shape: &ValueShape<'a>) -> Vec<Value> {
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

/// Lists that hold many, and none, of the items that `contains` asks for.
pub(crate) fn lists_for_contains<'a>(
    docs: &SchemaPair<'a>,
    shape: &ValueShape<'a>,
    asked: &SchemaNode<'a>,
) -> Vec<Value> {
    let sampler = Sampler::new(docs);
    let least = usize::try_from(shape.items_min().clamp(1, 64)).unwrap_or(1);
    let item = shape.item(docs, shape.prefix_len(docs));
    let (mut wanted, mut other) = (sampler.of_all(&item, 1), sampler.of_all(&item, 1));
    wanted.extend(sampler.of_all(&Conjunction::of(vec![asked.clone()]), 1));
    wanted.retain(|value| docs.accepts(asked, value) == Some(true));
    other.extend(anything_but(docs, asked).into_iter().filter(|value| docs.may_accept(&item, value)));
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
pub(crate) fn objects_of_size<'a>(
    docs: &SchemaPair<'a>,
    shape: &ValueShape<'a>,
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
pub(crate) fn name_like<'a>(docs: &SchemaPair<'a>, shape: &ValueShape<'a>, pattern: Option<&str>) -> String {
    let named = shape.named(docs);
    let mut names: Vec<String> = pattern.map(strings::like).unwrap_or_default();
    let own = shape.parts.iter().filter_map(|part| part.child("propertyNames")).collect();
    let own = Conjunction { types: TypeSet::STRING, ..Conjunction::of(own) };
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
