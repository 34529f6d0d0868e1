//! Reporting what does not hold, with an instance that shows it.

use serde_json::Value;

use super::proof::Prover;
use crate::compat::CompatDirection;
use crate::compat::example;
use crate::compat::node::{Conjunction, SchemaNode, join};
use crate::compat::report::{CompatFinding, CompatRule, Verdict, fix};
use crate::compat::shape::ValueShape;

/// Findings that are listed, at most.
const FINDINGS_MAX: usize = 64;

/// A check that failed at a keyword of the schema that reads.
pub(super) struct ProofFailure<'n, 'a> {
    pub(super) rule: CompatRule,
    pub(super) node: &'n SchemaNode<'a>,
    /// The keyword, and a name under it.
    pub(super) at: &'n [&'n str],
    /// The value of the keyword in the schema that writes.
    pub(super) writes: Option<Value>,
    /// Values that may show it.
    pub(super) tries: Vec<Value>,
}

impl<'a> Prover<'_, 'a> {
    /// Records a failed check as a finding, with an instance that shows it if one is found. Always returns
    /// false.
    pub(super) fn fail(&mut self, fail: ProofFailure<'_, 'a>, shape: &ValueShape<'a>) -> bool {
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
            CompatDirection::Backward => (fail.writes, reads),
            CompatDirection::Forward => (reads, fail.writes),
        };
        let name = subject.as_deref().or(fail.at.last().copied());
        let name = name.map_or_else(|| "it".to_owned(), |name| format!("`{name}`"));
        let fix = fix(fail.rule, self.direction, self.docs.undeclared, &name);
        self.reported.insert(key, self.findings.len());
        self.findings.push(CompatFinding {
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

    /// Finds an instance of the whole document that shows it.
    fn example(&mut self, shape: &ValueShape<'a>, tries: Vec<Value>) -> Option<Value> {
        let sampled = example::of_shape(self.docs, shape);
        for one in tries.into_iter().chain(sampled) {
            if self.tries >= self.limits.tries_max {
                return None;
            }
            for whole in example::embed(self.docs, &self.frames, one) {
                self.tries += 1;
                if example::shows(self.docs, &whole) {
                    return Some(whole);
                }
            }
        }
        None
    }

    /// Tries instances of all kinds, if no finding has an example yet.
    pub(super) fn look_for_any_example(&mut self) {
        if self.findings.is_empty() || self.findings.iter().any(|finding| finding.example.is_some()) {
            return;
        }
        let all = Conjunction::of(vec![self.docs.writes.root()]);
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
