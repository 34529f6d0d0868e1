//! The checks of arrays.

use serde_json::Value;

use super::findings::ProofFailure;
use super::proof::Prover;
use crate::compat::Undeclared;
use crate::compat::example::{self, InstanceFrame, InstanceStep};
use crate::compat::node::{Conjunction, SchemaNode};
use crate::compat::report::CompatRule;
use crate::compat::shape::{ValueShape, flatten, items_of};
use crate::compat::types::TypeSet;

impl<'a> Prover<'_, 'a> {
    pub(super) fn arrays(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, _hops: usize) -> bool {
        let shape = &shape.only(TypeSet::ARRAY);
        if shape.types.is_empty() {
            return true;
        }
        let (least, most) = (shape.items_min(), shape.items_max(self.docs));
        let mut proved = true;
        for (keyword, implied) in [
            ("minItems", reads.count("minItems").is_none_or(|asked| least >= asked)),
            ("maxItems", reads.count("maxItems").is_none_or(|asked| most <= asked)),
        ] {
            if !implied {
                let asked = reads.count(keyword).unwrap_or(0);
                let tries = example::lists_of_length(self.docs, shape, asked, keyword == "maxItems");
                let writes = shape.all(keyword).next().cloned();
                let fail = ProofFailure {
                    rule: CompatRule::ItemCountTightened,
                    node: reads,
                    at: &[keyword],
                    writes,
                    tries,
                };
                proved &= self.fail(fail, shape);
            }
        }
        if reads.get("uniqueItems") == Some(&Value::Bool(true)) && !shape.is_unique() && most > 1 {
            let tries = example::lists_with_twins(self.docs, shape);
            let fail = ProofFailure {
                rule: CompatRule::UniqueItemsAdded,
                node: reads,
                at: &["uniqueItems"],
                writes: None,
                tries,
            };
            proved &= self.fail(fail, shape);
        }
        proved &= self.items(shape, reads, most);
        proved &= self.contains(shape, reads, least, most);
        proved && self.unevaluated_items(shape, reads)
    }

    fn items(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, most: u64) -> bool {
        let (first, rest) = items_of(self.docs, reads);
        let mut proved = true;
        // Behind the longer of the two prefixes all items are alike; one index stands for them.
        let alike = first.len().max(shape.prefix_len(self.docs));
        for index in 0..=alike {
            let Some(asked) = first.get(index).or(rest.as_ref()) else { continue };
            if index as u64 >= most || (!proved && self.quiet > 0) {
                break;
            }
            let own = shape.item(self.docs, index);
            let frame = self.through_item(shape, index, index == alike);
            if asked.schema == &Value::Bool(false) && !own.is_nothing() {
                self.frames.push(frame);
                let item = ValueShape::new(TypeSet::ALL, None);
                let item = flatten(self.docs, &own).into_iter().next().unwrap_or(item);
                let fail = ProofFailure {
                    rule: CompatRule::ItemsNarrowed,
                    node: asked,
                    at: &[],
                    writes: None,
                    tries: Vec::new(),
                };
                proved &= self.fail(fail, &item);
                self.frames.pop();
                continue;
            }
            proved &= self.below(frame, &own, asked);
        }
        proved
    }

    fn through_item(&self, shape: &ValueShape<'a>, index: usize, any: bool) -> InstanceFrame<'a> {
        let shown = if any { "/*".to_owned() } else { format!("/{index}") };
        InstanceFrame { shape: shape.clone(), step: InstanceStep::Index(index), shown }
    }

    fn contains(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, least: u64, most: u64) -> bool {
        let Some(asked) = reads.child("contains") else { return true };
        let counts = !self.docs.of(reads.side).is_draft_7();
        let (asked_min, asked_max) = if counts {
            (reads.count("minContains").unwrap_or(1), reads.count("maxContains"))
        } else {
            (1, None)
        };
        let enough = asked_min == 0
            || self.has_contained(shape, &asked, asked_min)
            || (least >= asked_min && self.all_items(shape, &asked, most));
        let mut proved = true;
        let tries = example::lists_for_contains(self.docs, shape, &asked);
        if !enough {
            let writes = shape.all("contains").next().cloned();
            let fail = ProofFailure {
                rule: CompatRule::ContainsChanged,
                node: reads,
                at: &["contains"],
                writes,
                tries: tries.clone(),
            };
            proved &= self.fail(fail, shape);
        }
        if let Some(asked_max) = asked_max
            && most > asked_max
            && !self.has_no_more(shape, &asked, asked_max)
        {
            let writes = shape.all("maxContains").next().cloned();
            let fail = ProofFailure {
                rule: CompatRule::ContainsChanged,
                node: reads,
                at: &["maxContains"],
                writes,
                tries,
            };
            proved &= self.fail(fail, shape);
        }
        proved
    }

    fn has_contained(&mut self, shape: &ValueShape<'a>, asked: &SchemaNode<'a>, asked_min: u64) -> bool {
        shape.parts.iter().any(|part| {
            let counts = !self.docs.of(part.side).is_draft_7();
            let min = if counts { part.count("minContains").unwrap_or(1) } else { 1 };
            let Some(own) = part.child("contains").filter(|_| min >= asked_min) else { return false };
            // `contains` declares nothing: which properties an item may hold is said by `items`.
            if self.docs.undeclared == Undeclared::Absent {
                return self.same.are(self.docs, &own, asked);
            }
            let frame = self.through_item(shape, 0, true);
            self.quietly(|prover| prover.below(frame, &Conjunction::of(vec![own]), asked))
        })
    }

    fn has_no_more(&mut self, shape: &ValueShape<'a>, asked: &SchemaNode<'a>, asked_max: u64) -> bool {
        shape.parts.iter().any(|part| {
            let counts = !self.docs.of(part.side).is_draft_7();
            let max = if counts { part.count("maxContains") } else { None };
            let Some(own) = part.child("contains").filter(|_| max.is_some_and(|max| max <= asked_max)) else {
                return false;
            };
            let frame = self.through_item(shape, 0, true);
            self.quietly(|prover| prover.below(frame, &Conjunction::of(vec![asked.clone()]), &own))
        })
    }

    /// Whether every item satisfies a schema.
    fn all_items(&mut self, shape: &ValueShape<'a>, asked: &SchemaNode<'a>, most: u64) -> bool {
        (0..=shape.prefix_len(self.docs)).all(|index| {
            let own = shape.item(self.docs, index);
            let frame = self.through_item(shape, index, true);
            index as u64 >= most || self.quietly(|prover| prover.below(frame, &own, asked))
        })
    }

    fn unevaluated_items(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        let asked = reads.get("unevaluatedItems").filter(|asked| **asked != Value::Bool(true));
        if asked.is_none() || self.docs.of(reads.side).is_draft_7() {
            return true;
        }
        let at = &["unevaluatedItems"];
        self.fail(
            ProofFailure {
                rule: CompatRule::UnsupportedKeyword,
                node: reads,
                at,
                writes: None,
                tries: Vec::new(),
            },
            shape,
        )
    }
}
