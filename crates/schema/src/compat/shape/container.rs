//! Objects and arrays of a shape.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{SchemaPair, ValueShape};
use crate::compat::Undeclared;
use crate::compat::node::{Conjunction, DocumentSide, SchemaNode};

/// Properties that are not listed by name.
pub(crate) struct OtherProperties<'a> {
    /// The schemas that apply to them.
    pub(crate) all: Conjunction<'a>,
    /// The pattern of the shape that they match; `None` for properties that match no pattern of that part.
    pub(crate) pattern: Option<&'a str>,
}

/// Keywords that make a schema see more properties than its own.
const SEES_MORE: [&str; 10] = [
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "dependentSchemas",
    "dependencies",
    "additionalProperties",
    "$dynamicRef",
];

/// The schema that a part has for properties that it does not list.
pub(crate) fn additional<'a>(docs: &SchemaPair<'a>, part: &SchemaNode<'a>) -> Option<SchemaNode<'a>> {
    let plain = || SEES_MORE.iter().all(|keyword| part.get(keyword).is_none());
    part.child("additionalProperties").or_else(|| {
        let knows = !docs.of(part.side).is_draft_7();
        (knows && plain()).then(|| part.child("unevaluatedProperties")).flatten()
    })
}

/// One entry of `dependentRequired`: the keyword, the property, and the properties that must be there beside
/// it.
type DependentNames<'a> = (&'static str, &'a str, Vec<&'a str>);

/// The keywords of dependencies. The validator reads the keyword of draft 7 in the newer draft too.
fn dependent_keywords(docs: &SchemaPair<'_>, part: &SchemaNode<'_>, own: &'static str) -> Vec<&'static str> {
    if docs.of(part.side).is_draft_7() { vec!["dependencies"] } else { vec![own, "dependencies"] }
}

/// The lists of `dependentRequired` and `dependencies`.
pub(crate) fn dependent_names<'a>(docs: &SchemaPair<'a>, part: &SchemaNode<'a>) -> Vec<DependentNames<'a>> {
    let mut all = Vec::new();
    for keyword in dependent_keywords(docs, part, "dependentRequired") {
        let Some(Value::Object(map)) = part.get(keyword) else { continue };
        for (name, list) in map {
            if let Some(list) = list.as_array() {
                all.push((keyword, name.as_str(), list.iter().filter_map(Value::as_str).collect()));
            }
        }
    }
    all
}

/// The schemas of `dependentSchemas` and `dependencies`.
pub(crate) fn dependent_schemas<'a>(
    docs: &SchemaPair<'a>,
    part: &SchemaNode<'a>,
) -> Vec<(&'a str, SchemaNode<'a>)> {
    let keywords = dependent_keywords(docs, part, "dependentSchemas").into_iter();
    let all = keywords.flat_map(|keyword| part.names(keyword).map(move |name| (keyword, name)));
    all.filter_map(|(keyword, name)| Some((name, part.entry(keyword, name)?))).collect()
}

/// The schemas of the first items of a part, and the one of all further items.
pub(crate) fn items_of<'a>(
    docs: &SchemaPair<'a>,
    part: &SchemaNode<'a>,
) -> (Vec<SchemaNode<'a>>, Option<SchemaNode<'a>>) {
    if docs.of(part.side).is_draft_7() {
        return match part.get("items") {
            Some(Value::Array(_)) => (part.list("items"), part.child("additionalItems")),
            _ => (Vec::new(), part.child("items")),
        };
    }
    (part.list("prefixItems"), part.child("items"))
}

impl<'a> ValueShape<'a> {
    /// The properties that every object has.
    pub(crate) fn required(&self, docs: &SchemaPair<'a>) -> BTreeSet<&str> {
        let listed = self.all("required").filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        let mut names: BTreeSet<&str> = listed.chain(self.present.iter().map(String::as_str)).collect();
        let dependent: Vec<_> = self.parts.iter().flat_map(|part| dependent_names(docs, part)).collect();
        loop {
            let known = names.len();
            for (_, name, more) in &dependent {
                if names.contains(name) {
                    names.extend(more);
                }
            }
            if names.len() == known {
                return names;
            }
        }
    }

    /// The properties that are named anywhere, even if an object cannot have them.
    pub(crate) fn named(&self, docs: &SchemaPair<'a>) -> BTreeSet<&str> {
        let mut names = self.required(docs);
        names.extend(self.fields.keys().map(String::as_str));
        for part in &self.parts {
            names.extend(part.names("properties"));
        }
        names
    }

    /// The schemas and values that apply to the property of a name.
    pub(crate) fn property(&self, docs: &SchemaPair<'a>, name: &str) -> Conjunction<'a> {
        let mut all = Conjunction::of(Vec::new());
        for part in &self.parts {
            all.nodes.extend(property_of(docs, part, name));
        }
        all.values = self.fields.get(name).cloned();
        let undeclared = self.is_closed_by_reading(docs) && !self.is_declared(docs, name);
        if self.absent.contains(name)
            || undeclared
            || (self.is_full(docs) && !self.required(docs).contains(name))
        {
            all.values = Some(Vec::new());
        }
        all
    }

    /// Whether the required properties are as many as an object may have.
    fn is_full(&self, docs: &SchemaPair<'a>) -> bool {
        self.at_most("maxProperties").is_some_and(|most| self.required(docs).len() as u64 >= most)
    }

    /// The schemas that apply to properties which are not named. With a pattern, only to properties that
    /// match it.
    pub(crate) fn others(&self, docs: &SchemaPair<'a>, pattern: Option<&str>) -> Vec<OtherProperties<'a>> {
        if self.is_full(docs) {
            return Vec::new();
        }
        let mut base = Vec::new();
        let mut split: Option<&SchemaNode<'a>> = None;
        for part in &self.parts {
            let same = pattern.and_then(|pattern| part.entry("patternProperties", pattern));
            if let Some(same) = same {
                base.push(same);
            } else if part.names("patternProperties").next().is_none() {
                base.extend(additional(docs, part));
            } else {
                split.get_or_insert(part);
            }
        }
        let with = |more: Option<SchemaNode<'a>>| Conjunction::of(base.iter().cloned().chain(more).collect());
        let mut others = Vec::new();
        let mut rest = with(split.and_then(|part| additional(docs, part)));
        if self.is_closed_by_reading(docs) {
            let matched = pattern.is_some_and(|pattern| {
                self.parts.iter().any(|part| {
                    part.side == DocumentSide::Writes && part.entry("patternProperties", pattern).is_some()
                })
            });
            if !matched {
                rest.values = Some(Vec::new());
            }
        }
        others.push(OtherProperties { all: rest, pattern: None });
        if let Some(part) = split {
            for pattern in part.names("patternProperties") {
                others.push(OtherProperties {
                    all: with(part.entry("patternProperties", pattern)),
                    pattern: Some(pattern),
                });
            }
            // The patterns of further parts too: a property may be declared only there.
            if self.is_closed_by_reading(docs) {
                for part in self.parts.iter().filter(|other| other.at != part.at || other.side != part.side) {
                    for pattern in part.names("patternProperties") {
                        others.push(OtherProperties { all: with(None), pattern: Some(pattern) });
                    }
                }
            }
        }
        others.retain(|other| !other.all.is_nothing());
        others
    }

    /// Whether undeclared properties are taken to be absent. They are not if the object declares no property
    /// at all, or has a keyword about additional properties.
    fn is_closed_by_reading(&self, docs: &SchemaPair<'a>) -> bool {
        let own = || self.parts.iter().filter(|part| part.side == DocumentSide::Writes);
        docs.undeclared == Undeclared::Absent
            && !self.lossy
            && own().any(|part| part.names("properties").next().is_some())
            && !own().any(|part| {
                let said =
                    |keyword: &str| part.get(keyword).is_some_and(|value| value != &Value::Bool(false));
                said("additionalProperties") || said("unevaluatedProperties")
            })
    }

    fn is_declared(&self, docs: &SchemaPair<'a>, name: &str) -> bool {
        self.parts.iter().filter(|part| part.side == DocumentSide::Writes).any(|part| {
            let listed = |keyword: &str| part.names(keyword).any(|one| one == name);
            let required = part.get("required").and_then(Value::as_array);
            listed("properties")
                || required.is_some_and(|names| names.iter().any(|one| one == name))
                || dependent_names(docs, part)
                    .iter()
                    .any(|(_, one, more)| *one == name || more.contains(&name))
                || dependent_schemas(docs, part).iter().any(|(one, _)| *one == name)
                || part
                    .names("patternProperties")
                    .any(|pattern| docs.of(part.side).matches(pattern, name) != Some(false))
        })
    }

    /// How many properties an object has at least.
    pub(crate) fn properties_min(&self, docs: &SchemaPair<'a>) -> u64 {
        self.at_least("minProperties").max(self.required(docs).len() as u64)
    }

    /// How many properties an object has at most.
    pub(crate) fn properties_max(&self, docs: &SchemaPair<'a>) -> u64 {
        let said = self.at_most("maxProperties").unwrap_or(u64::MAX);
        if !self.others(docs, None).is_empty() {
            return said;
        }
        let possible = self.named(docs).into_iter().filter(|name| !self.property(docs, name).is_nothing());
        said.min(possible.count() as u64)
    }
}

impl<'a> ValueShape<'a> {
    /// The schemas that apply to the item at an index.
    pub(crate) fn item(&self, docs: &SchemaPair<'a>, index: usize) -> Conjunction<'a> {
        let mut nodes = Vec::new();
        for part in &self.parts {
            let (first, rest) = items_of(docs, part);
            nodes.extend(first.get(index).cloned().or(rest));
        }
        Conjunction::of(nodes)
    }

    /// The index from which all items are alike.
    pub(crate) fn prefix_len(&self, docs: &SchemaPair<'a>) -> usize {
        self.parts.iter().map(|part| items_of(docs, part).0.len()).max().unwrap_or(0)
    }

    pub(crate) fn items_min(&self) -> u64 {
        // Draft 7 does not know `minContains`, so a larger one counts as 1.
        let contained = |part: &SchemaNode<'a>| {
            part.get("contains").map_or(0, |_| part.count("minContains").unwrap_or(1).min(1))
        };
        self.at_least("minItems").max(self.parts.iter().map(contained).max().unwrap_or(0))
    }

    /// How many items an array has at most. An index that no value fits ends the array.
    pub(crate) fn items_max(&self, docs: &SchemaPair<'a>) -> u64 {
        let said = self.at_most("maxItems").unwrap_or(u64::MAX);
        let end = (0..=self.prefix_len(docs)).find(|index| self.item(docs, *index).is_nothing());
        end.map_or(said, |end| said.min(end as u64))
    }

    pub(crate) fn is_unique(&self) -> bool {
        self.all("uniqueItems").any(|value| value == &Value::Bool(true))
    }
}

/// The schemas that one part has for the property of a name.
fn property_of<'a>(docs: &SchemaPair<'a>, part: &SchemaNode<'a>, name: &str) -> Vec<SchemaNode<'a>> {
    let mut nodes: Vec<_> = part.entry("properties", name).into_iter().collect();
    for pattern in part.names("patternProperties") {
        match docs.of(part.side).matches(pattern, name) {
            Some(true) => nodes.extend(part.entry("patternProperties", pattern)),
            Some(false) => {}
            // The pattern cannot be compiled, so the schemas found so far must do.
            None => return nodes,
        }
    }
    if nodes.is_empty() {
        nodes.extend(additional(docs, part));
    }
    nodes
}
