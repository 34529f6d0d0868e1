//! Proves that everything one schema accepts is accepted by another.
//!
//! `writes` is split into shapes; each is checked against the keywords of `reads` one by one. A pair of places that is
//! under way already is taken to hold when it is met again further down in an instance: instances are finite, so
//! the proof is an induction over their size.

mod array;
mod empty;
mod object;
mod scalar;
mod union;

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::example::{self, Frame, Step};
use super::node::{All, Node, Side, join};
use super::report::{Finding, Rule, Verdict, fix};
use super::same::Same;
use super::shape::{Docs, Shape, flatten};
use super::types::Types;
use super::{Direction, Limits};

/// How deep places are compared below each other.
const DEPTH_MAX: usize = 96;
/// Findings that are listed, at most.
const FINDINGS_MAX: usize = 64;

/// A proof under way.
pub(super) struct Prover<'d, 'a> {
    docs: &'d Docs<'a>,
    direction: Direction,
    limits: Limits,
    steps: u64,
    /// Above zero nothing is reported: it is only tried.
    quiet: u32,
    depth: usize,
    empty_depth: usize,
    frames: Vec<Frame<'a>>,
    /// The property that the next finding is about, when its path does not say.
    subject: Option<String>,
    /// Pairs under way, and how far down in the instance each was begun.
    assumed: Vec<(String, usize)>,
    /// The outermost pair under way that the present proof rests on.
    rests_on: usize,
    proven: HashSet<String>,
    refuted: HashSet<String>,
    same: Same,
    findings: Vec<Finding>,
    reported: HashMap<(Rule, String, String), usize>,
    pub(super) tries: u64,
}

/// What went wrong at a keyword of the schema that reads.
struct Fail<'n, 'a> {
    rule: Rule,
    node: &'n Node<'a>,
    /// The keyword, and a name below it.
    at: &'n [&'n str],
    /// What the schema that writes says there.
    writes: Option<Value>,
    /// Instances that may show it.
    tries: Vec<Value>,
}

impl<'d, 'a> Prover<'d, 'a> {
    pub(super) fn new(docs: &'d Docs<'a>, direction: Direction, limits: Limits) -> Self {
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
            same: Same::default(),
            findings: Vec::new(),
            reported: HashMap::new(),
            tries: 0,
        }
    }

    /// Compares the documents; without findings, it is proved.
    pub(super) fn run(mut self) -> (Vec<Finding>, u64) {
        let (writes, reads) = (self.docs.writes.root(), self.docs.reads.root());
        if self.same.are(self.docs, &writes, &reads) {
            return (Vec::new(), self.steps);
        }
        let odd = [Side::Reads, Side::Writes].map(|side| self.docs.of(side).odd().cloned());
        let odd = odd.into_iter().flatten().next();
        let shape = Shape::new(Types::ALL, None);
        if let Some((at, keyword)) = odd {
            let rule = if keyword == "$ref" { Rule::ReferenceUnresolvable } else { Rule::UnsupportedKeyword };
            let node = Node { at: at.into(), ..reads };
            self.fail(Fail { rule, node: &node, at: &[&keyword], writes: None, tries: Vec::new() }, &shape);
        } else if !self.all(&All::of(vec![writes]), &reads) && self.findings.is_empty() {
            self.fail(
                Fail { rule: Rule::TooComplex, node: &reads, at: &[], writes: None, tries: Vec::new() },
                &shape,
            );
        }
        self.look_for_any_example();
        (self.findings, self.steps)
    }

    fn step(&mut self) -> bool {
        self.steps += 1;
        self.steps <= self.limits.steps_max
    }

    fn quietly<T>(&mut self, doing: impl FnOnce(&mut Self) -> T) -> T {
        self.quiet += 1;
        let done = doing(self);
        self.quiet -= 1;
        done
    }

    /// Everything that all of these accept, `reads` accepts.
    fn all(&mut self, writes: &All<'a>, reads: &Node<'a>) -> bool {
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
        // What failed is looked at again only to report it, and once.
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

    /// The same, about a place below: through a property or an item.
    fn below(&mut self, frame: Frame<'a>, writes: &All<'a>, reads: &Node<'a>) -> bool {
        self.depth += 1;
        self.frames.push(frame);
        let proved = self.all(writes, reads);
        self.frames.pop();
        self.depth -= 1;
        proved
    }

    fn too_complex(&mut self, reads: &Node<'a>) -> bool {
        let shape = Shape::new(Types::ALL, None);
        self.fail(
            Fail { rule: Rule::TooComplex, node: reads, at: &[], writes: None, tries: Vec::new() },
            &shape,
        )
    }

    /// Everything of a shape, `reads` accepts.
    fn shape(&mut self, shape: &Shape<'a>, reads: &Node<'a>) -> bool {
        if self.is_empty(shape) {
            return true;
        }
        match shape.finite(self.docs) {
            Some(values) => self.values(shape, &values, reads),
            None => self.node(shape, reads, 0),
        }
    }

    /// Values are decided one by one.
    fn values(&mut self, shape: &Shape<'a>, values: &[Value], reads: &Node<'a>) -> bool {
        let refused: Vec<Value> =
            values.iter().filter(|value| self.docs.accepts(reads, value) != Some(true)).cloned().collect();
        let Some(first) = refused.first() else { return true };
        let (rule, keyword) = example::blame(self.docs, reads, first);
        let writes = Some(if let [one] = values { one.clone() } else { Value::from(values.to_vec()) });
        let at: &[&str] = if keyword.is_empty() { &[] } else { &[&keyword] };
        self.fail(Fail { rule, node: reads, at, writes, tries: refused }, shape)
    }

    /// Everything of a shape, which is neither empty nor a list of values, fits the keywords of `reads`.
    fn node(&mut self, shape: &Shape<'a>, reads: &Node<'a>, hops: usize) -> bool {
        let Some(schema) = reads.object() else {
            return reads.schema == &Value::Bool(true)
                || self.fail(
                    Fail {
                        rule: Rule::NothingAccepted,
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
                    Fail {
                        rule: Rule::ReferenceUnresolvable,
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
        let types = Types::of_keyword(schema.get("type"));
        let mut rest = shape.clone();
        if !shape.types.within(types) {
            let refused = shape.only(Types::ALL.without(types));
            // A type of which nothing can be is no narrowing.
            if !self.is_empty(&refused) {
                let fail = Fail {
                    rule: Rule::TypeNarrowed,
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

    /// `enum` and `const`, for a shape that has no end of values.
    fn listed(&mut self, shape: &Shape<'a>, reads: &Node<'a>, _hops: usize) -> bool {
        let mut proved = true;
        for (keyword, rule) in [("enum", Rule::EnumValueRemoved), ("const", Rule::ConstChanged)] {
            if reads.get(keyword).is_some() {
                let fail = Fail { rule, node: reads, at: &[keyword], writes: None, tries: Vec::new() };
                proved &= self.fail(fail, shape);
            }
        }
        proved
    }

    /// Notes that something does not hold, with an instance that shows it when one is found. Always false.
    fn fail(&mut self, fail: Fail<'_, 'a>, shape: &Shape<'a>) -> bool {
        let subject = self.subject.take();
        if self.quiet > 0 {
            return false;
        }
        let path = join(&fail.node.at, fail.at).to_string();
        let instance_path: String = self.frames.iter().map(|frame| frame.shown.as_str()).collect();
        let key = (fail.rule, format!("{path} {subject:?}"), instance_path.clone());
        let known = self.reported.get(&key).copied();
        let decided =
            known.and_then(|known| self.findings.get(known)).is_some_and(|one| one.example.is_some());
        if decided || (known.is_none() && self.findings.len() >= FINDINGS_MAX) {
            return false;
        }
        let example = self.example(shape, fail.tries);
        let verdict = if example.is_some() { Verdict::Incompatible } else { Verdict::Undecidable };
        if let Some(finding) = known.and_then(|known| self.findings.get_mut(known)) {
            finding.verdict = verdict;
            finding.example = example;
            return false;
        }
        let reads = fail.at.iter().try_fold(fail.node.schema, |schema, step| schema.get(step)).cloned();
        let (old, new) = match self.direction {
            Direction::Backward => (fail.writes, reads),
            Direction::Forward => (reads, fail.writes),
        };
        let name = subject.as_deref().or(fail.at.last().copied());
        let name = name.map_or_else(|| "it".to_owned(), |name| format!("`{name}`"));
        let fix = fix(fail.rule, self.direction, self.docs.undeclared, &name);
        self.reported.insert(key, self.findings.len());
        self.findings.push(Finding {
            verdict,
            direction: self.direction,
            rule: fail.rule,
            path,
            instance_path,
            old,
            new,
            fix,
            example,
        });
        false
    }

    /// An instance of the whole document that one accepts and the other refuses.
    fn example(&mut self, shape: &Shape<'a>, tries: Vec<Value>) -> Option<Value> {
        let sampled = example::of_shape(self.docs, shape);
        for one in tries.into_iter().chain(sampled) {
            if self.tries >= self.limits.tries_max {
                return None;
            }
            for whole in example::lift(self.docs, &self.frames, one) {
                self.tries += 1;
                if example::shows(self.docs, &whole) {
                    return Some(whole);
                }
            }
        }
        None
    }

    /// When nothing was shown so far, instances of all kinds are tried.
    fn look_for_any_example(&mut self) {
        if self.findings.is_empty() || self.findings.iter().any(|finding| finding.example.is_some()) {
            return;
        }
        let all = All::of(vec![self.docs.writes.root()]);
        let shown = example::of_all(self.docs, &all).into_iter().find(|one| example::shows(self.docs, one));
        let Some(shown) = shown else { return };
        let (rule, path) = example::blame_whole(self.docs, &shown);
        let known = self.findings.iter().position(|finding| finding.path == path || finding.rule == rule);
        let place = known.unwrap_or(0);
        if let Some(finding) = self.findings.get_mut(place) {
            finding.verdict = Verdict::Incompatible;
            finding.example = Some(shown);
        }
    }
}

/// A frame that goes through a property.
fn through_name<'a>(shape: &Shape<'a>, name: &str, shown: &str) -> Frame<'a> {
    Frame { shape: shape.clone(), step: Step::Name(name.to_owned()), shown: join("", &[shown]).to_string() }
}
