//! Whether two schemas say the same, word for word. Annotations do not matter, and references are followed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::node::{DocumentSide, SchemaNode};
use super::number::equal;
use super::shape::SchemaPair;

/// Keywords whose value is a schema or a list of schemas.
const SCHEMAS: [&str; 14] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
];
/// Keywords whose value is a map from names to schemas.
const MAPS: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];
/// Keywords whose value is data.
const DATA: [&str; 24] = [
    "type",
    "enum",
    "const",
    "required",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
    "dependentRequired",
    "contentEncoding",
    "contentMediaType",
    "$dynamicAnchor",
];
/// How deep two schemas are compared.
const DEPTH_MAX: usize = 160;

type Pair = ((DocumentSide, Rc<str>), (DocumentSide, Rc<str>));

/// Compares schemas, and remembers the answers.
#[derive(Default)]
pub(super) struct EqualityCache {
    known: HashMap<Pair, bool>,
}

impl EqualityCache {
    pub(super) fn are<'a>(
        &mut self,
        docs: &SchemaPair<'a>,
        one: &SchemaNode<'a>,
        two: &SchemaNode<'a>,
    ) -> bool {
        if one.side == two.side && one.at == two.at {
            return true;
        }
        if docs.of(one.side).draft() != docs.of(two.side).draft() {
            return false;
        }
        let pair = (one.key(), two.key());
        if let Some(known) = self.known.get(&pair) {
            return *known;
        }
        let same = EqualityCheck { docs, assumed: HashSet::new() }.nodes(one, two, 0);
        self.known.insert(pair, same);
        same
    }
}

struct EqualityCheck<'d, 'a> {
    docs: &'d SchemaPair<'a>,
    /// Pairs under way. A pair that is met again below itself is taken for equal: instances are finite.
    assumed: HashSet<Pair>,
}

impl<'a> EqualityCheck<'_, 'a> {
    fn nodes(&mut self, one: &SchemaNode<'a>, two: &SchemaNode<'a>, depth: usize) -> bool {
        if depth > DEPTH_MAX {
            return false;
        }
        let (Some(left), Some(right)) = (one.object(), two.object()) else { return one.schema == two.schema };
        if !self.assumed.insert((one.key(), two.key())) {
            return true;
        }
        let (left_target, right_target) =
            (self.docs.of(one.side).reference(left), self.docs.of(two.side).reference(right));
        let targets = match (left_target, right_target) {
            (None, None) => true,
            (Some(Ok(left)), Some(Ok(right))) => {
                let same = self.nodes(&left, &right, depth + 1);
                if self.docs.of(one.side).is_draft_7() {
                    return same;
                }
                same
            }
            _ => false,
        };
        targets && self.keywords(one, two, left, right, depth)
    }

    fn keywords(
        &mut self,
        one: &SchemaNode<'a>,
        two: &SchemaNode<'a>,
        left: &Map<String, Value>,
        right: &Map<String, Value>,
        depth: usize,
    ) -> bool {
        let keywords: BTreeSet<&str> = left.keys().chain(right.keys()).map(String::as_str).collect();
        keywords.into_iter().all(|keyword| {
            if DATA.contains(&keyword) {
                return matches!((left.get(keyword), right.get(keyword)), (Some(left), Some(right)) if equal(left, right));
            }
            if SCHEMAS.contains(&keyword) || keyword == "unevaluatedProperties" {
                return self.below(one, two, keyword, depth);
            }
            if MAPS.contains(&keyword) {
                return self.maps(one, two, keyword, depth);
            }
            // The target of a dynamic reference is not known here.
            keyword != "$dynamicRef" || (left.get(keyword) == right.get(keyword) && self.documents())
        })
    }

    /// Whether the whole documents are equal, so that even dynamic references have the same targets.
    fn documents(&self) -> bool {
        equal(self.docs.writes.root().schema, self.docs.reads.root().schema)
    }

    fn below(&mut self, one: &SchemaNode<'a>, two: &SchemaNode<'a>, keyword: &str, depth: usize) -> bool {
        match (one.child(keyword), two.child(keyword)) {
            (Some(one), Some(two)) => return self.nodes(&one, &two, depth + 1),
            (None, None) => {}
            _ => return false,
        }
        let (left, right) = (one.list(keyword), two.list(keyword));
        one.get(keyword).is_some()
            && two.get(keyword).is_some()
            && left.len() == right.len()
            && left.iter().zip(&right).all(|(one, two)| self.nodes(one, two, depth + 1))
    }

    fn maps(&mut self, one: &SchemaNode<'a>, two: &SchemaNode<'a>, keyword: &str, depth: usize) -> bool {
        let (left, right): (Vec<_>, Vec<_>) = (one.names(keyword).collect(), two.names(keyword).collect());
        left.len() == right.len()
            && left.into_iter().all(|name| match (one.entry(keyword, name), two.entry(keyword, name)) {
                (Some(one), Some(two)) => self.nodes(&one, &two, depth + 1),
                (None, None) => {
                    let value =
                        |node: &SchemaNode<'a>| node.get(keyword).and_then(|map| map.get(name)).cloned();
                    value(two).is_some() && value(one) == value(two)
                }
                _ => false,
            })
    }
}
