//! Instances of the whole document: made around a value at some place, checked by both validators, and blamed on a
//! keyword.

use serde_json::{Map, Value, json};

use super::sampler::{Sampler, object_with};
use crate::compat::document::STEPS_MAX;
use crate::compat::node::{Conjunction, SchemaNode};
use crate::compat::report::CompatRule;
use crate::compat::shape::{SchemaPair, ValueShape, flatten};
use crate::compat::types::TypeSet;
use crate::compat::{Undeclared, number};
use crate::validator;

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

/// Makes instances of the whole document that hold a value at a place: with as little as possible around it,
/// and with all that is named.
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

/// The rule that stands for a keyword.
fn rule_of(keyword: &str) -> CompatRule {
    match keyword {
        "type" => CompatRule::TypeNarrowed,
        "enum" => CompatRule::EnumValueRemoved,
        "const" => CompatRule::ConstChanged,
        "required" => CompatRule::RequiredAdded,
        "additionalProperties" => CompatRule::AdditionalClosed,
        "propertyNames" => CompatRule::PropertyNamesNarrowed,
        "minProperties" | "maxProperties" => CompatRule::PropertyCountTightened,
        "dependentRequired" | "dependentSchemas" | "dependencies" => CompatRule::DependencyAdded,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => CompatRule::BoundTightened,
        "multipleOf" => CompatRule::MultipleOfChanged,
        "minLength" | "maxLength" => CompatRule::LengthTightened,
        "pattern" => CompatRule::PatternChanged,
        "format" => CompatRule::FormatAdded,
        "contentEncoding" | "contentMediaType" => CompatRule::ContentChanged,
        "items" | "prefixItems" | "additionalItems" => CompatRule::ItemsNarrowed,
        "minItems" | "maxItems" => CompatRule::ItemCountTightened,
        "uniqueItems" => CompatRule::UniqueItemsAdded,
        "contains" | "minContains" | "maxContains" => CompatRule::ContainsChanged,
        "anyOf" => CompatRule::UnionMemberRemoved,
        "oneOf" => CompatRule::UnionOverlap,
        "not" => CompatRule::NotAdded,
        "if" | "then" | "else" => CompatRule::ConditionChanged,
        "unevaluatedProperties" | "unevaluatedItems" => CompatRule::UnsupportedKeyword,
        _ => CompatRule::NothingAccepted,
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
pub(crate) fn blame<'a>(docs: &SchemaPair<'a>, node: &SchemaNode<'a>, value: &Value) -> (CompatRule, String) {
    for keyword in DATA {
        let Some(said) = node.get(keyword) else { continue };
        let refuses = match keyword {
            "enum" => !said.as_array().is_some_and(|all| all.iter().any(|one| number::equal(one, value))),
            "const" => !number::equal(said, value),
            "type" => !TypeSet::of_value(value).within(TypeSet::of_keyword(Some(said))),
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
            return (CompatRule::UnionMemberRemoved, keyword.to_owned());
        }
        if taken > 1 && keyword == "oneOf" {
            return (CompatRule::UnionOverlap, keyword.to_owned());
        }
    }
    if let Some(keyword) = ["not", "if", "required", "additionalProperties"]
        .into_iter()
        .find(|keyword| node.get(keyword).is_some())
    {
        return (rule_of(keyword), keyword.to_owned());
    }
    (
        if node.schema == &Value::Bool(false) {
            CompatRule::NothingAccepted
        } else {
            CompatRule::EnumValueRemoved
        },
        String::new(),
    )
}

/// The rule and place by which the document that reads refuses an instance.
pub(crate) fn blame_whole(docs: &SchemaPair<'_>, instance: &Value) -> (CompatRule, String) {
    let broken = docs.reads.whole().first_broken_rule(instance, STEPS_MAX);
    let Some(error) = broken.ok().flatten() else {
        return (CompatRule::NothingAccepted, String::new());
    };
    let path = error.schema_path().to_string();
    let keyword = path.rsplit('/').next().unwrap_or_default();
    (rule_of(keyword), path)
}
