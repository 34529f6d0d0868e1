//! The proof: places of both documents compared, pair by pair.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::findings::ProofFailure;
use crate::compat::equality::EqualityCache;
use crate::compat::example::{self, InstanceFrame, InstanceStep};
use crate::compat::node::{Conjunction, DocumentSide, SchemaNode, join};
use crate::compat::report::{CompatFinding, CompatRule};
use crate::compat::shape::{SchemaPair, ValueShape, flatten};
use crate::compat::types::TypeSet;
use crate::compat::{CheckLimits, CompatDirection};

/// How deep places of an instance are compared.
const DEPTH_MAX: usize = 96;

/// A proof under way.
pub(crate) struct Prover<'d, 'a> {
    pub(super) docs: &'d SchemaPair<'a>,
    pub(super) direction: CompatDirection,
    pub(super) limits: CheckLimits,
    pub(super) steps: u64,
    /// Above zero, failures are not reported: the prover only tries.
    pub(super) quiet: u32,
    pub(super) depth: usize,
    pub(super) empty_depth: usize,
    pub(super) frames: Vec<InstanceFrame<'a>>,
    /// The property that the next finding is about, if its path does not name it.
    pub(super) subject: Option<String>,
    /// Pairs under way, and how deep in the instance each was begun.
    pub(super) assumed: Vec<(String, usize)>,
    /// The index of the outermost pair under way that the current proof assumes.
    pub(super) rests_on: usize,
    pub(super) proven: HashSet<String>,
    pub(super) refuted: HashSet<String>,
    pub(super) same: EqualityCache,
    pub(super) findings: Vec<CompatFinding>,
    pub(super) reported: HashMap<(CompatRule, String, String), usize>,
    pub(super) tries: u64,
}

impl<'d, 'a> Prover<'d, 'a> {
    pub(crate) fn new(docs: &'d SchemaPair<'a>, direction: CompatDirection, limits: CheckLimits) -> Self {
        Self {
            docs,
            direction,
            limits,
            steps: 0,
            quiet: 0,
            depth: 0,
            empty_depth: 0,
            frames: Vec::new(),
            subject: None,
            assumed: Vec::new(),
            rests_on: usize::MAX,
            proven: HashSet::new(),
            refuted: HashSet::new(),
            same: EqualityCache::default(),
            findings: Vec::new(),
            reported: HashMap::new(),
            tries: 0,
        }
    }

    /// Compares the documents. Without findings, everything is proved.
    pub(crate) fn run(mut self) -> (Vec<CompatFinding>, u64) {
        let (writes, reads) = (self.docs.writes.root(), self.docs.reads.root());
        if self.same.are(self.docs, &writes, &reads) {
            return (Vec::new(), self.steps);
        }
        let odd = [DocumentSide::Reads, DocumentSide::Writes].map(|side| self.docs.of(side).odd().cloned());
        let odd = odd.into_iter().flatten().next();
        let shape = ValueShape::new(TypeSet::ALL, None);
        if let Some((at, keyword)) = odd {
            let rule = if keyword == "$ref" {
                CompatRule::ReferenceUnresolvable
            } else {
                CompatRule::UnsupportedKeyword
            };
            let node = SchemaNode { at: at.into(), ..reads };
            self.fail(
                ProofFailure { rule, node: &node, at: &[&keyword], writes: None, tries: Vec::new() },
                &shape,
            );
        } else if !self.all(&Conjunction::of(vec![writes]), &reads) && self.findings.is_empty() {
            self.fail(
                ProofFailure {
                    rule: CompatRule::TooComplex,
                    node: &reads,
                    at: &[],
                    writes: None,
                    tries: Vec::new(),
                },
                &shape,
            );
        }
        self.look_for_any_example();
        (self.findings, self.steps)
    }

    pub(super) fn step(&mut self) -> bool {
        self.steps += 1;
        self.steps <= self.limits.steps_max
    }

    pub(super) fn quietly<T>(&mut self, doing: impl FnOnce(&mut Self) -> T) -> T {
        self.quiet += 1;
        let done = doing(self);
        self.quiet -= 1;
        done
    }

    /// Proves that `reads` accepts every value that satisfies `writes`.
    pub(super) fn all(&mut self, writes: &Conjunction<'a>, reads: &SchemaNode<'a>) -> bool {
        if reads.schema == &Value::Bool(true) || writes.is_nothing() {
            return true;
        }
        if !self.step() || self.depth > DEPTH_MAX {
            return self.too_complex(reads);
        }
        if writes.nodes.iter().any(|node| self.same.are(self.docs, node, reads)) {
            return true;
        }
        let key = format!("{}>{:?}{}", writes.key(), reads.side, reads.at);
        if self.proven.contains(&key) {
            return true;
        }
        if let Some(place) = self.assumed.iter().position(|(assumed, _)| *assumed == key) {
            let further_down = self.assumed.get(place).is_some_and(|(_, depth)| *depth < self.depth);
            self.rests_on = self.rests_on.min(place);
            return further_down;
        }
        // A pair that failed is looked at again only to report it, and once.
        if self.refuted.contains(&format!("{}{key}", self.quiet == 0)) {
            return false;
        }
        let (place, outer) = (self.assumed.len(), self.rests_on);
        self.assumed.push((key.clone(), self.depth));
        self.rests_on = usize::MAX;
        let mut proved = true;
        for shape in flatten(self.docs, writes) {
            proved &= self.shape(&shape, reads);
            if !proved && self.quiet > 0 {
                break;
            }
        }
        self.assumed.pop();
        let own = self.rests_on >= place;
        self.rests_on = if own { outer } else { outer.min(self.rests_on) };
        if proved && own {
            self.proven.insert(key);
        } else if !proved {
            self.refuted.insert(format!("{}{key}", self.quiet == 0));
        }
        proved
    }

    /// Proves the same for a place below: a property or an item.
    pub(super) fn below(
        &mut self,
        frame: InstanceFrame<'a>,
        writes: &Conjunction<'a>,
        reads: &SchemaNode<'a>,
    ) -> bool {
        self.depth += 1;
        self.frames.push(frame);
        let proved = self.all(writes, reads);
        self.frames.pop();
        self.depth -= 1;
        proved
    }

    pub(super) fn too_complex(&mut self, reads: &SchemaNode<'a>) -> bool {
        let shape = ValueShape::new(TypeSet::ALL, None);
        self.fail(
            ProofFailure {
                rule: CompatRule::TooComplex,
                node: reads,
                at: &[],
                writes: None,
                tries: Vec::new(),
            },
            &shape,
        )
    }

    /// Proves that `reads` accepts every value of a shape.
    pub(super) fn shape(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        if self.is_empty(shape) {
            return true;
        }
        match shape.finite(self.docs) {
            Some(values) => self.values(shape, &values, reads),
            None => self.node(shape, reads, 0),
        }
    }

    /// Checks a list of values one by one.
    pub(super) fn values(
        &mut self,
        shape: &ValueShape<'a>,
        values: &[Value],
        reads: &SchemaNode<'a>,
    ) -> bool {
        let refused: Vec<Value> =
            values.iter().filter(|value| self.docs.accepts(reads, value) != Some(true)).cloned().collect();
        let Some(first) = refused.first() else { return true };
        let (rule, keyword) = example::blame(self.docs, reads, first);
        let writes = Some(if let [one] = values { one.clone() } else { Value::from(values.to_vec()) });
        let at: &[&str] = if keyword.is_empty() { &[] } else { &[&keyword] };
        self.fail(ProofFailure { rule, node: reads, at, writes, tries: refused }, shape)
    }

    /// Proves that every value of a shape fits the keywords of `reads`. The shape is neither empty nor a list
    /// of values.
    pub(super) fn node(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, hops: usize) -> bool {
        let Some(schema) = reads.object() else {
            return reads.schema == &Value::Bool(true)
                || self.fail(
                    ProofFailure {
                        rule: CompatRule::NothingAccepted,
                        node: reads,
                        at: &[],
                        writes: None,
                        tries: Vec::new(),
                    },
                    shape,
                );
        };
        if !self.step() || hops > DEPTH_MAX {
            return self.too_complex(reads);
        }
        if shape.parts.iter().any(|part| self.same.are(self.docs, part, reads)) {
            return true;
        }
        let mut proved = true;
        match self.docs.of(reads.side).reference(schema) {
            Some(Ok(target)) => proved &= self.node(shape, &target, hops + 1),
            Some(Err(_)) => {
                let at = &["$ref"];
                proved &= self.fail(
                    ProofFailure {
                        rule: CompatRule::ReferenceUnresolvable,
                        node: reads,
                        at,
                        writes: None,
                        tries: Vec::new(),
                    },
                    shape,
                );
            }
            None => {}
        }
        if schema.get("$ref").is_some_and(Value::is_string) && self.docs.of(reads.side).is_draft_7() {
            return proved;
        }
        let types = TypeSet::of_keyword(schema.get("type"));
        let mut rest = shape.clone();
        if !shape.types.within(types) {
            let refused = shape.only(TypeSet::ALL.without(types));
            // A type that the shape has no value of does not narrow it.
            if !self.is_empty(&refused) {
                let fail = ProofFailure {
                    rule: CompatRule::TypeNarrowed,
                    node: reads,
                    at: &["type"],
                    writes: Some(shape.types.names()),
                    tries: Vec::new(),
                };
                proved &= self.fail(fail, &refused);
            }
            rest = shape.only(types);
            if rest.types.is_empty() || (!proved && self.quiet > 0) {
                return proved;
            }
        }
        for check in [Self::listed, Self::numbers, Self::strings, Self::arrays, Self::objects, Self::unions] {
            if !proved && self.quiet > 0 {
                return false;
            }
            proved &= check(self, &rest, reads, hops);
        }
        proved
    }

    /// Checks `enum` and `const`, for a shape with more values than can be listed.
    pub(super) fn listed(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, _hops: usize) -> bool {
        let mut proved = true;
        for (keyword, rule) in [("enum", CompatRule::EnumValueRemoved), ("const", CompatRule::ConstChanged)] {
            if reads.get(keyword).is_some() {
                let fail =
                    ProofFailure { rule, node: reads, at: &[keyword], writes: None, tries: Vec::new() };
                proved &= self.fail(fail, shape);
            }
        }
        proved
    }
}

/// The frame of a property.
pub(super) fn through_name<'a>(shape: &ValueShape<'a>, name: &str, shown: &str) -> InstanceFrame<'a> {
    InstanceFrame {
        shape: shape.clone(),
        step: InstanceStep::Name(name.to_owned()),
        shown: join("", &[shown]).to_string(),
    }
}
