//! The keyword that refuses a value, and its rule.

use serde_json::{Value, json};

use crate::compat::node::SchemaNode;
use crate::compat::number;
use crate::compat::report::CompatRule;
use crate::compat::shape::SchemaPair;
use crate::compat::types::TypeSet;
use crate::validator;

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
    let Some(error) = docs.reads.whole().iter_errors(instance).next() else {
        return (CompatRule::NothingAccepted, String::new());
    };
    let path = error.schema_path().to_string();
    let keyword = path.rsplit('/').next().unwrap_or_default();
    (rule_of(keyword), path)
}
