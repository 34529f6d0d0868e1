//! Schemas without `unevaluatedProperties` and `unevaluatedItems`, as far as they can be said without them.
//!
//! Beside `allOf` and `$ref` of parts that only list properties, `unevaluatedProperties` is `additionalProperties` of a
//! schema that lists the properties of the parts too. The same holds for `unevaluatedItems`, `items` and `prefixItems`.
//! Where more can evaluate a property or an item (`anyOf`, `if`, `contains` ...), the keyword stays as it is.

use std::borrow::Cow;
use std::collections::BTreeSet;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::node::join;
use super::scan::{self, DATA, MAPS};
use crate::validator;

/// Parts of one schema that are looked at, one below the other.
const DEPTH_MAX: usize = 16;
/// Keywords whose schemas may evaluate a property or an item in one instance and not in another.
const DEPENDS: [&str; 7] = ["anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies", "$dynamicRef"];

/// A document in plainer words, and where the words were changed.
pub(super) struct PlainSchema<'a> {
    pub(super) root: Cow<'a, Value>,
    /// Pointers of the keywords that were replaced, in the given document, and of the keywords in their place.
    moved: Vec<(String, String)>,
}

impl<'a> PlainSchema<'a> {
    pub(super) fn of(root: &'a Value) -> Self {
        let mut plain = Self { root: Cow::Borrowed(root), moved: Vec::new() };
        let newer = validator::draft_of(root).is_ok_and(|draft| draft == Draft::Draft202012);
        if newer && scan::look_at(root).odd.is_none() && !refers_into(root) {
            let mut rewrite = PlainRewrite { root, moved: Vec::new() };
            let rewritten = rewrite.value(root, "", "", false);
            if !rewrite.moved.is_empty() {
                plain = Self { root: Cow::Owned(rewritten), moved: rewrite.moved };
            }
        }
        plain
    }

    /// The place in the given document that a place in the plain one stands for.
    pub(super) fn given(&self, path: String) -> String {
        // The longest pointer first: a keyword may be replaced below another that is.
        let found = self.moved.iter().filter(|(_, to)| {
            path.strip_prefix(to.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        match found.max_by_key(|(_, to)| to.len()) {
            Some((from, to)) => format!("{from}{}", path.get(to.len()..).unwrap_or_default()),
            None => path,
        }
    }
}

/// Whether a `$ref` points into a keyword that could be replaced.
fn refers_into(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.iter().any(refers_into),
        Value::Object(map) => map.iter().any(|(key, value)| {
            (key == "$ref" && value.as_str().is_some_and(|target| target.contains("unevaluated")))
                || refers_into(value)
        }),
        _ => false,
    }
}

/// A rewrite of a document into one without `unevaluated*`, and where its parts went.
struct PlainRewrite<'a> {
    root: &'a Value,
    moved: Vec<(String, String)>,
}

impl<'a> PlainRewrite<'a> {
    /// Rewrites a value. `from` is its pointer in the given document, `to` in the plain one; `names`: its keys are
    /// names, not keywords.
    fn value(&mut self, value: &'a Value, from: &str, to: &str, names: bool) -> Value {
        match value {
            Value::Array(list) => {
                let item = |(index, value): (usize, &'a Value)| {
                    let step = index.to_string();
                    self.value(value, &join(from, &[&step]), &join(to, &[&step]), false)
                };
                Value::Array(list.iter().enumerate().map(item).collect())
            }
            Value::Object(map) if names => Value::Object(self.entries(map, from, to, &[], true)),
            Value::Object(map) => Value::Object(self.schema(map, from, to)),
            other => other.clone(),
        }
    }

    fn schema(&mut self, schema: &'a Map<String, Value>, from: &str, to: &str) -> Map<String, Value> {
        let properties = self.evaluated_properties(schema);
        let items = self.evaluated_items(schema);
        let mut renamed = Vec::new();
        if properties.is_some() {
            renamed.push(("unevaluatedProperties", "additionalProperties"));
        }
        if items.is_some() {
            renamed.push(("unevaluatedItems", "items"));
        }
        let mut plain = self.entries(schema, from, to, &renamed, false);
        for (keyword, names) in properties.into_iter().flatten() {
            let Value::Object(listed) = plain.entry(keyword).or_insert_with(|| Map::new().into()) else {
                continue;
            };
            for name in names {
                listed.entry(name).or_insert(Value::Bool(true));
            }
        }
        if let Some(count) = items.filter(|count| *count > 0)
            && let Value::Array(listed) =
                plain.entry("prefixItems").or_insert_with(|| Value::Array(Vec::new()))
        {
            listed.resize(count.max(listed.len()), Value::Bool(true));
        }
        for (old, new) in renamed {
            self.moved.push((join(from, &[old]).to_string(), join(to, &[new]).to_string()));
        }
        plain
    }

    fn entries(
        &mut self,
        map: &'a Map<String, Value>,
        from: &str,
        to: &str,
        renamed: &[(&str, &'static str)],
        names: bool,
    ) -> Map<String, Value> {
        let mut plain = Map::new();
        for (key, value) in map {
            let new = renamed.iter().find(|(old, _)| old == key).map_or(key.as_str(), |(_, new)| *new);
            let value = if !names && DATA.contains(&key.as_str()) {
                value.clone()
            } else {
                let below_names = !names && MAPS.contains(&key.as_str());
                self.value(value, &join(from, &[key]), &join(to, &[new]), below_names)
            };
            plain.insert(new.to_owned(), value);
        }
        plain
    }

    /// The names and patterns that all parts of a schema list; `None` if its `unevaluatedProperties` stays.
    fn evaluated_properties(
        &self,
        schema: &Map<String, Value>,
    ) -> Option<[(&'static str, BTreeSet<String>); 2]> {
        schema.get("unevaluatedProperties").filter(|asked| **asked != Value::Bool(true))?;
        // Alone it is read as `additionalProperties` anyway.
        let alone = !schema.contains_key("allOf") && !schema.contains_key("$ref");
        if alone || schema.contains_key("additionalProperties") {
            return None;
        }
        let mut found = [("properties", BTreeSet::new()), ("patternProperties", BTreeSet::new())];
        let lists =
            self.parts_list(schema, &["additionalProperties", "unevaluatedProperties"], 0, &mut |part| {
                for (keyword, names) in &mut found {
                    let listed = part.get(*keyword).and_then(Value::as_object);
                    names.extend(listed.into_iter().flat_map(|map| map.keys().cloned()));
                }
            });
        lists.then_some(found)
    }

    /// How many first items the parts of a schema list; `None` if its `unevaluatedItems` stays.
    fn evaluated_items(&self, schema: &Map<String, Value>) -> Option<usize> {
        schema.get("unevaluatedItems").filter(|asked| **asked != Value::Bool(true))?;
        if schema.contains_key("items") || schema.contains_key("contains") {
            return None;
        }
        let mut most = 0;
        let lists = self.parts_list(schema, &["items", "contains", "unevaluatedItems"], 0, &mut |part| {
            most = most.max(part.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len));
        });
        lists.then_some(most)
    }

    /// Hands a schema and its parts to `visit`. Returns whether each of them only lists: none but the schema itself has
    /// one of the `closing` keywords, and none has one of which it depends on the instance what it evaluates.
    fn parts_list(
        &self,
        schema: &Map<String, Value>,
        closing: &[&str],
        depth: usize,
        visit: &mut dyn FnMut(&Map<String, Value>),
    ) -> bool {
        let has = |keyword: &&str| schema.contains_key(*keyword);
        if depth > DEPTH_MAX || DEPENDS.iter().any(has) || (depth > 0 && closing.iter().any(has)) {
            return false;
        }
        visit(schema);
        let target = match schema.get("$ref").map(Value::as_str) {
            None => None,
            Some(reference) => {
                let pointer = reference.and_then(|text| text.strip_prefix('#'));
                let pointer = pointer.filter(|text| text.starts_with('/') && !text.contains('%'));
                match pointer.and_then(|pointer| self.root.pointer(pointer)) {
                    Some(target) => Some(target),
                    None => return false,
                }
            }
        };
        let listed = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
        listed.chain(target).all(|part| match part {
            Value::Object(part) => self.parts_list(part, closing, depth + 1, visit),
            other => other.is_boolean(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn closed_parts_become_one_closed_object() {
        let schema = json!({
            "$defs": {"base": {"properties": {"id": {"type": "string"}}, "patternProperties": {"^x-": {}}}},
            "properties": {"in": {
                "$ref": "#/$defs/base",
                "allOf": [{"properties": {"a": {"type": "integer"}}}],
                "properties": {"b": {}},
                "unevaluatedProperties": {"allOf": [{"prefixItems": [{}, {}]}], "unevaluatedItems": false}
            }}
        });
        let plain = PlainSchema::of(&schema);
        let inner = &plain.root["properties"]["in"];
        assert_eq!(inner["properties"], json!({"a": true, "b": {}, "id": true}));
        assert_eq!(inner["patternProperties"], json!({"^x-": true}));
        assert_eq!(inner.get("unevaluatedProperties"), None);
        let rest = &inner["additionalProperties"];
        assert_eq!((&rest["prefixItems"], &rest["items"]), (&json!([true, true]), &json!(false)));
        let given = |path: &str| plain.given(path.to_owned());
        assert_eq!(given("/properties/in/additionalProperties"), "/properties/in/unevaluatedProperties");
        assert_eq!(
            given("/properties/in/additionalProperties/items"),
            "/properties/in/unevaluatedProperties/unevaluatedItems"
        );
        assert_eq!(given("/properties/in/properties/b"), "/properties/in/properties/b");
    }

    #[test]
    fn what_depends_on_the_instance_stays() {
        for (keyword, schema) in [
            (
                "unevaluatedProperties",
                json!({"allOf": [{"anyOf": [{"properties": {"a": {}}}]}], "unevaluatedProperties": false}),
            ),
            (
                "unevaluatedProperties",
                json!({"allOf": [{"additionalProperties": {}}], "unevaluatedProperties": false}),
            ),
            ("unevaluatedProperties", json!({"$ref": "#", "unevaluatedProperties": false})),
            ("unevaluatedItems", json!({"contains": {"type": "string"}, "unevaluatedItems": false})),
            ("unevaluatedItems", json!({"allOf": [{"items": true}], "unevaluatedItems": false})),
        ] {
            assert!(PlainSchema::of(&schema).root.get(keyword).is_some(), "{schema}");
        }
        let data = json!({"const": {"allOf": [], "unevaluatedProperties": false}});
        assert_eq!(*PlainSchema::of(&data).root, data);
    }
}
