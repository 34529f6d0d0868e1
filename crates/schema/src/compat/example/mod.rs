//! Instances that show what was found, and that they do.

mod bounds;
mod lift;
mod sample;
mod text;

use serde_json::{Value, json};

pub(super) use bounds::{
    lists_for_contains, lists_of_length, lists_with_twins, name_like, objects_of_size, texts_of_length,
};
pub(super) use lift::{Frame, Step, lift};
pub(super) use sample::{of_all, of_shape};

use super::node::{All, Node};
use super::report::Rule;
use super::shape::{Docs, flatten};
use super::types::Types;
use super::{Undeclared, number};
use crate::validator;

/// How deep an instance is looked at for undeclared properties.
const DEPTH_MAX: usize = 64;

/// Whether the one document accepts an instance and the other refuses it.
pub(super) fn shows(docs: &Docs<'_>, instance: &Value) -> bool {
    docs.writes.whole().is_valid(instance)
        && !docs.reads.whole().is_valid(instance)
        && (docs.undeclared == Undeclared::Any
            || is_declared(docs, &All::of(vec![docs.writes.root()]), instance, DEPTH_MAX))
}

/// Whether an instance holds only what is declared, in one of the ways that it can be what the schemas ask for.
fn is_declared<'a>(docs: &Docs<'a>, all: &All<'a>, value: &Value, depth: usize) -> bool {
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

/// Values of every kind, the odd ones first.
pub(super) fn anything() -> Vec<Value> {
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
pub(super) fn anything_but<'a>(docs: &Docs<'a>, node: &Node<'a>) -> Vec<Value> {
    let mut values = anything();
    values.extend(of_all(docs, &All::of(vec![node.clone()])).iter().flat_map(around));
    values.retain(|value| docs.accepts(node, value) == Some(false));
    values.truncate(16);
    values
}

/// Values near a value.
pub(super) fn around(value: &Value) -> Vec<Value> {
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

/// The rule that stands for a keyword.
fn rule_of(keyword: &str) -> Rule {
    match keyword {
        "type" => Rule::TypeNarrowed,
        "enum" => Rule::EnumValueRemoved,
        "const" => Rule::ConstChanged,
        "required" => Rule::RequiredAdded,
        "additionalProperties" => Rule::AdditionalClosed,
        "propertyNames" => Rule::PropertyNamesNarrowed,
        "minProperties" | "maxProperties" => Rule::PropertyCountTightened,
        "dependentRequired" | "dependentSchemas" | "dependencies" => Rule::DependencyAdded,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => Rule::BoundTightened,
        "multipleOf" => Rule::MultipleOfChanged,
        "minLength" | "maxLength" => Rule::LengthTightened,
        "pattern" => Rule::PatternChanged,
        "format" => Rule::FormatAdded,
        "contentEncoding" | "contentMediaType" => Rule::ContentChanged,
        "items" | "prefixItems" | "additionalItems" => Rule::ItemsNarrowed,
        "minItems" | "maxItems" => Rule::ItemCountTightened,
        "uniqueItems" => Rule::UniqueItemsAdded,
        "contains" | "minContains" | "maxContains" => Rule::ContainsChanged,
        "anyOf" => Rule::UnionMemberRemoved,
        "oneOf" => Rule::UnionOverlap,
        "not" => Rule::NotAdded,
        "if" | "then" | "else" => Rule::ConditionChanged,
        "unevaluatedProperties" | "unevaluatedItems" => Rule::UnsupportedKeyword,
        _ => Rule::NothingAccepted,
    }
}

/// Keywords that refuse a value on their own.
const DATA: [&str; 17] = [
    "enum",
    "const",
    "type",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// The keyword of a schema that refuses a value, and its rule.
pub(super) fn blame<'a>(docs: &Docs<'a>, node: &Node<'a>, value: &Value) -> (Rule, String) {
    for keyword in DATA {
        let Some(said) = node.get(keyword) else { continue };
        let refuses = match keyword {
            "enum" => !said.as_array().is_some_and(|all| all.iter().any(|one| number::equal(one, value))),
            "const" => !number::equal(said, value),
            "type" => !Types::of_value(value).within(Types::of_keyword(Some(said))),
            _ => {
                let draft = docs.of(node.side).draft();
                let alone = validator::options(draft).build(&json!({ keyword: said }));
                alone.is_ok_and(|alone| !alone.is_valid(value))
            }
        };
        if refuses {
            return (rule_of(keyword), keyword.to_owned());
        }
    }
    if let Some((keyword, members)) = ["anyOf", "oneOf"].into_iter().find_map(|keyword| {
        let members = node.list(keyword);
        (!members.is_empty()).then_some((keyword, members))
    }) {
        let taken = members.iter().filter(|member| docs.accepts(member, value) == Some(true)).count();
        if taken == 0 {
            return (Rule::UnionMemberRemoved, keyword.to_owned());
        }
        if taken > 1 && keyword == "oneOf" {
            return (Rule::UnionOverlap, keyword.to_owned());
        }
    }
    if let Some(keyword) = ["not", "if", "required", "additionalProperties"]
        .into_iter()
        .find(|keyword| node.get(keyword).is_some())
    {
        return (rule_of(keyword), keyword.to_owned());
    }
    (
        if node.schema == &Value::Bool(false) { Rule::NothingAccepted } else { Rule::EnumValueRemoved },
        String::new(),
    )
}

/// The rule and place by which the document that reads refuses an instance.
pub(super) fn blame_whole(docs: &Docs<'_>, instance: &Value) -> (Rule, String) {
    let Some(error) = docs.reads.whole().iter_errors(instance).next() else {
        return (Rule::NothingAccepted, String::new());
    };
    let path = error.schema_path().to_string();
    let keyword = path.rsplit('/').next().unwrap_or_default();
    (rule_of(keyword), path)
}
