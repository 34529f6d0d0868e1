//! Arrays of a shape.

use serde_json::Value;

use super::{Docs, Shape};
use crate::compat::node::{All, Node};

/// The schemas of the first items of a part, and the one of all further items.
pub(in super::super) fn items_of<'a>(docs: &Docs<'a>, part: &Node<'a>) -> (Vec<Node<'a>>, Option<Node<'a>>) {
    if docs.of(part.side).is_draft_7() {
        return match part.get("items") {
            Some(Value::Array(_)) => (part.list("items"), part.child("additionalItems")),
            _ => (Vec::new(), part.child("items")),
        };
    }
    (part.list("prefixItems"), part.child("items"))
}

impl<'a> Shape<'a> {
    /// What holds for the item at an index.
    pub(in super::super) fn item(&self, docs: &Docs<'a>, index: usize) -> All<'a> {
        let mut nodes = Vec::new();
        for part in &self.parts {
            let (first, rest) = items_of(docs, part);
            nodes.extend(first.get(index).cloned().or(rest));
        }
        All::of(nodes)
    }

    /// From here on all items are alike.
    pub(in super::super) fn prefix_len(&self, docs: &Docs<'a>) -> usize {
        self.parts.iter().map(|part| items_of(docs, part).0.len()).max().unwrap_or(0)
    }

    pub(in super::super) fn items_min(&self) -> u64 {
        self.at_least("minItems")
    }

    /// How many items there are at most. A place that nothing fits ends the array.
    pub(in super::super) fn items_max(&self, docs: &Docs<'a>) -> u64 {
        let said = self.at_most("maxItems").unwrap_or(u64::MAX);
        let end = (0..=self.prefix_len(docs)).find(|index| self.item(docs, *index).is_nothing());
        end.map_or(said, |end| said.min(end as u64))
    }

    pub(in super::super) fn is_unique(&self) -> bool {
        self.all("uniqueItems").any(|value| value == &Value::Bool(true))
    }
}
