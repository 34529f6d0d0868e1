//! Whether a shape has no value at all.

use super::proof::Prover;
use crate::compat::node::{Conjunction, SchemaNode};
use crate::compat::number::range_is_empty;
use crate::compat::shape::{ValueShape, flatten};
use crate::compat::types::TypeSet;

/// How deep contradictions are searched for.
const DEPTH_MAX: usize = 4;

impl<'a> Prover<'_, 'a> {
    /// Whether a shape is known to be empty.
    pub(super) fn is_empty(&mut self, shape: &ValueShape<'a>) -> bool {
        if shape.types.is_empty() {
            return true;
        }
        if self.empty_depth >= DEPTH_MAX || !self.step() {
            return false;
        }
        if let Some(values) = shape.finite(self.docs) {
            return values.is_empty();
        }
        self.empty_depth += 1;
        let empty = TypeSet::EACH.into_iter().all(|types| {
            let one = shape.only(types);
            one.types.is_empty() || self.is_impossible(&one)
        }) || self.is_denied(shape);
        self.empty_depth -= 1;
        empty
    }

    /// Whether no value is known to be both of a shape and of a schema.
    pub(super) fn is_apart(&mut self, shape: &ValueShape<'a>, node: &SchemaNode<'a>) -> bool {
        shape.and(self.docs, node).iter().all(|both| self.is_empty(both))
    }

    fn is_impossible(&mut self, shape: &ValueShape<'a>) -> bool {
        if shape.types.within(TypeSet::NUMBER) {
            return match (shape.low(), shape.high()) {
                (Some(low), Some(high)) => range_is_empty(low, high, shape.is_whole()),
                _ => false,
            };
        }
        if shape.types == TypeSet::STRING {
            return shape.at_most("maxLength").is_some_and(|most| shape.at_least("minLength") > most);
        }
        if shape.types == TypeSet::ARRAY {
            return self.is_impossible_array(shape);
        }
        shape.types == TypeSet::OBJECT && self.is_impossible_object(shape)
    }

    fn is_impossible_array(&mut self, shape: &ValueShape<'a>) -> bool {
        let least = shape.items_min();
        least > shape.items_max(self.docs)
            || (0..=shape.prefix_len(self.docs))
                .take_while(|index| (*index as u64) < least)
                .any(|index| self.is_empty_at_all(&shape.item(self.docs, index)))
    }

    fn is_impossible_object(&mut self, shape: &ValueShape<'a>) -> bool {
        if shape.properties_min(self.docs) > shape.properties_max(self.docs) {
            return true;
        }
        let names: Vec<String> = shape.required(self.docs).into_iter().map(str::to_owned).collect();
        names.iter().any(|name| self.is_empty_at_all(&shape.property(self.docs, name)))
    }

    fn is_empty_at_all(&mut self, all: &Conjunction<'a>) -> bool {
        if all.is_anything() {
            return false;
        }
        all.is_nothing() || flatten(self.docs, all).iter().all(|shape| self.is_empty(shape))
    }

    /// Whether a schema under `not` accepts every value of a shape.
    fn is_denied(&mut self, shape: &ValueShape<'a>) -> bool {
        if shape.nots.is_empty() {
            return false;
        }
        let plain = ValueShape { nots: Vec::new(), ..shape.clone() };
        shape.nots.iter().any(|not| self.quietly(|prover| prover.node(&plain, not, 0)))
    }
}
