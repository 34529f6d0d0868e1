//! The checks of `allOf`, `anyOf`, `oneOf`, `not` and conditions of the schema that reads.

use serde_json::Value;

use super::findings::ProofFailure;
use super::proof::Prover;
use crate::compat::node::{Conjunction, SchemaNode};
use crate::compat::report::CompatRule;
use crate::compat::shape::{ValueShape, flatten};
use crate::compat::types::TypeSet;

/// Values of a property that a shape is split by, at most.
const SPLIT_MAX: usize = 32;
/// Properties that a shape is split by one after the other, at most.
const SPLITS_MAX: usize = 3;

/// A union of the schema that reads.
struct Union<'n, 'a> {
    node: &'n SchemaNode<'a>,
    keyword: &'static str,
    members: Vec<SchemaNode<'a>>,
}

impl<'a> Prover<'_, 'a> {
    pub(super) fn unions(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, hops: usize) -> bool {
        let mut proved = true;
        for member in reads.list("allOf") {
            proved &= self.node(shape, &member, hops + 1);
            if !proved && self.quiet > 0 {
                return false;
            }
        }
        for keyword in ["anyOf", "oneOf"] {
            let members = reads.list(keyword);
            if !members.is_empty() {
                proved &= self.union(shape, &Union { node: reads, keyword, members });
            }
        }
        if let Some(not) = reads.child("not")
            && !self.is_apart(shape, &not)
        {
            // A value of both is the best example: the shape has it, and `not` refuses it.
            let both = shape.and(self.docs, &not).into_iter().next().unwrap_or_else(|| shape.clone());
            let writes = shape.all("not").next().cloned();
            proved &= self.fail(
                ProofFailure {
                    rule: CompatRule::NotAdded,
                    node: reads,
                    at: &["not"],
                    writes,
                    tries: Vec::new(),
                },
                &both,
            );
        }
        proved && self.condition(shape, reads, hops)
    }

    fn condition(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, hops: usize) -> bool {
        let Some(condition) = reads.child("if") else { return true };
        let mut proved = true;
        if let Some(then) = reads.child("then") {
            for met in shape.and(self.docs, &condition) {
                proved &= self.is_empty(&met) || self.condition_part(&met, reads, &then, "then", hops);
            }
        }
        if let Some(otherwise) = reads.child("else")
            && !self.quietly(|prover| prover.shape(shape, &condition))
        {
            let mut unmet = shape.clone();
            unmet.nots.push(condition);
            proved &= self.is_empty(&unmet) || self.condition_part(&unmet, reads, &otherwise, "else", hops);
        }
        proved
    }

    fn condition_part(
        &mut self,
        shape: &ValueShape<'a>,
        reads: &SchemaNode<'a>,
        part: &SchemaNode<'a>,
        at: &str,
        hops: usize,
    ) -> bool {
        if self.quietly(|prover| prover.node(shape, part, hops + 1)) {
            return true;
        }
        self.fail(
            ProofFailure {
                rule: CompatRule::ConditionChanged,
                node: reads,
                at: &[at],
                writes: None,
                tries: Vec::new(),
            },
            shape,
        )
    }

    fn union(&mut self, shape: &ValueShape<'a>, union: &Union<'_, 'a>) -> bool {
        self.fits_one(shape, union) || self.split(shape, union, 0)
    }

    /// Whether one member accepts every value of a shape, and for `oneOf` no other member accepts any.
    fn fits_one(&mut self, shape: &ValueShape<'a>, union: &Union<'_, 'a>) -> bool {
        self.quietly(|prover| {
            union.members.iter().enumerate().any(|(index, member)| {
                prover.shape(shape, member)
                    && (union.keyword == "anyOf" || prover.no_other(shape, union, index))
            })
        })
    }

    fn no_other(&mut self, shape: &ValueShape<'a>, union: &Union<'_, 'a>, taken: usize) -> bool {
        union.members.iter().enumerate().all(|(index, other)| index == taken || self.is_apart(shape, other))
    }

    /// Splits a shape until each piece fits a member: by type, then by the values of a property.
    fn split(&mut self, shape: &ValueShape<'a>, union: &Union<'_, 'a>, splits: usize) -> bool {
        if !self.step() {
            return self.too_complex(union.node);
        }
        let pieces = self.pieces(shape, union, splits);
        if pieces.is_empty() {
            return self.union_failed(shape, union);
        }
        let mut proved = true;
        for (piece, splits) in pieces {
            proved &=
                self.is_empty(&piece) || self.piece_fits(&piece, union) || self.split(&piece, union, splits);
            if !proved && self.quiet > 0 {
                return false;
            }
        }
        proved
    }

    fn piece_fits(&mut self, piece: &ValueShape<'a>, union: &Union<'_, 'a>) -> bool {
        match piece.finite(self.docs) {
            Some(values) => self.values_fit(&values, union),
            None => self.fits_one(piece, union),
        }
    }

    /// Whether each value fits a member, and for `oneOf` only one.
    fn values_fit(&self, values: &[Value], union: &Union<'_, 'a>) -> bool {
        values.iter().all(|value| {
            let answers: Vec<_> =
                union.members.iter().map(|member| self.docs.accepts(member, value)).collect();
            let taken = answers.iter().filter(|answer| **answer == Some(true)).count();
            let unknown = answers.contains(&None);
            if union.keyword == "anyOf" { taken > 0 } else { taken == 1 && !unknown }
        })
    }

    /// The pieces of a shape, each with how often it was split; none when it cannot be split further.
    fn pieces(
        &mut self,
        shape: &ValueShape<'a>,
        union: &Union<'_, 'a>,
        splits: usize,
    ) -> Vec<(ValueShape<'a>, usize)> {
        let types: Vec<TypeSet> =
            TypeSet::EACH.into_iter().filter(|types| shape.types.meets(*types)).collect();
        if types.len() > 1 {
            return types.into_iter().map(|types| (shape.only(types), splits)).collect();
        }
        if shape.types == TypeSet::NUMBER {
            return vec![(shape.only(TypeSet::INTEGER), splits), (shape.only(TypeSet::FRACTION), splits)];
        }
        if splits >= SPLITS_MAX || shape.types != TypeSet::OBJECT {
            return Vec::new();
        }
        let Some((name, values)) = self.telling_property(shape, union) else { return Vec::new() };
        let required = shape.required(self.docs).contains(name.as_str());
        let mut pieces = Vec::new();
        for value in values {
            let mut piece = shape.clone();
            piece.present.insert(name.clone());
            piece.fields.insert(name.clone(), vec![value]);
            pieces.push((piece, splits + 1));
        }
        if !required {
            let mut piece = shape.clone();
            piece.absent.insert(name);
            pieces.push((piece, splits + 1));
        }
        pieces
    }

    /// Finds a property with few values by which members can be told apart.
    fn telling_property(
        &mut self,
        shape: &ValueShape<'a>,
        union: &Union<'_, 'a>,
    ) -> Option<(String, Vec<Value>)> {
        let mut names: Vec<String> = Vec::new();
        for member in &union.members {
            for way in flatten(self.docs, &Conjunction::of(vec![member.clone()])) {
                for part in &way.parts {
                    let telling = |name: &&str| {
                        let said = part.entry("properties", name);
                        said.is_some_and(|said| {
                            ["const", "enum", "$ref"].iter().any(|keyword| said.get(keyword).is_some())
                        })
                    };
                    names.extend(part.names("properties").filter(telling).map(str::to_owned));
                }
            }
        }
        names.dedup();
        names.into_iter().filter(|name| !shape.absent.contains(name)).find_map(|name| {
            if shape.fields.get(&name).is_some_and(|values| values.len() < 2) {
                return None;
            }
            let mut values = Vec::new();
            for way in flatten(self.docs, &shape.property(self.docs, &name)) {
                values.extend(way.finite(self.docs)?);
            }
            let optional = !shape.required(self.docs).contains(name.as_str());
            (values.len() + usize::from(optional) > 1 && values.len() <= SPLIT_MAX).then_some((name, values))
        })
    }

    /// Reports why a shape fits no member: inside the one member that overlaps with it, or at the union if
    /// several do.
    fn union_failed(&mut self, shape: &ValueShape<'a>, union: &Union<'_, 'a>) -> bool {
        if self.quiet > 0 {
            return false;
        }
        let near: Vec<SchemaNode<'a>> =
            union.members.iter().filter(|member| !self.is_apart(shape, member)).cloned().collect();
        if let [one] = near.as_slice() {
            let one = one.clone();
            return self.shape(shape, &one);
        }
        let taken = union.members.iter().any(|member| self.quietly(|prover| prover.shape(shape, member)));
        let rule = if taken { CompatRule::UnionOverlap } else { CompatRule::UnionMemberRemoved };
        let writes = shape.parts.last().map(|part| part.schema.clone());
        let mut tries = Vec::new();
        if taken {
            for member in &near {
                for both in shape.and(self.docs, member) {
                    tries.extend(crate::compat::example::of_shape(self.docs, &both));
                }
            }
        }
        self.fail(ProofFailure { rule, node: union.node, at: &[union.keyword], writes, tries }, shape)
    }
}
