//! The checks of numbers and strings.

use serde_json::Value;

use super::findings::ProofFailure;
use super::proof::Prover;
use crate::compat::example;
use crate::compat::node::SchemaNode;
use crate::compat::number::{ExactNumber, RangeEnd, step_implies};
use crate::compat::report::CompatRule;
use crate::compat::shape::ValueShape;
use crate::compat::types::TypeSet;

impl<'a> Prover<'_, 'a> {
    pub(super) fn numbers(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, _hops: usize) -> bool {
        let shape = &shape.only(TypeSet::NUMBER);
        if shape.types.is_empty() {
            return true;
        }
        let mut proved = true;
        for keyword in ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"] {
            let Some(at) = reads.get(keyword).and_then(ExactNumber::of_value) else { continue };
            let asked = RangeEnd { at, exclusive: keyword.starts_with("exclusive") };
            let low = keyword.ends_with("inimum");
            let own = if low { shape.low() } else { shape.high() };
            let implied = own.is_some_and(|own| {
                if low {
                    own.low_implies(asked, shape.is_whole())
                } else {
                    own.high_implies(asked, shape.is_whole())
                }
            });
            if !implied {
                let writes = bound_said(shape, low);
                let tries = reads.get(keyword).map(example::around).unwrap_or_default();
                let fail = ProofFailure {
                    rule: CompatRule::BoundTightened,
                    node: reads,
                    at: &[keyword],
                    writes,
                    tries,
                };
                proved &= self.fail(fail, shape);
            }
        }
        if let Some(divisor) = reads.get("multipleOf").and_then(ExactNumber::of_value)
            && !shape.steps().into_iter().any(|step| step_implies(step, divisor))
        {
            let writes = shape.all("multipleOf").next().cloned();
            let tries = reads.get("multipleOf").map(example::around).unwrap_or_default();
            let fail = ProofFailure {
                rule: CompatRule::MultipleOfChanged,
                node: reads,
                at: &["multipleOf"],
                writes,
                tries,
            };
            proved &= self.fail(fail, shape);
        }
        proved
    }

    pub(super) fn strings(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>, _hops: usize) -> bool {
        let shape = &shape.only(TypeSet::STRING);
        if shape.types.is_empty() {
            return true;
        }
        let mut proved = true;
        let least = shape.at_least("minLength");
        let most = shape.at_most("maxLength");
        for (keyword, implied) in [
            ("minLength", reads.count("minLength").is_none_or(|asked| least >= asked)),
            (
                "maxLength",
                reads.count("maxLength").is_none_or(|asked| most.is_some_and(|most| most <= asked)),
            ),
        ] {
            if !implied {
                let tries = example::texts_of_length(
                    shape,
                    reads.count(keyword).unwrap_or(0),
                    keyword == "maxLength",
                );
                let writes = shape.all(keyword).next().cloned();
                let fail = ProofFailure {
                    rule: CompatRule::LengthTightened,
                    node: reads,
                    at: &[keyword],
                    writes,
                    tries,
                };
                proved &= self.fail(fail, shape);
            }
        }
        if let Some(pattern) = reads.get("pattern").and_then(Value::as_str)
            && !shape.says("pattern", pattern)
        {
            let writes = shape.all("pattern").next().cloned();
            let fail = ProofFailure {
                rule: CompatRule::PatternChanged,
                node: reads,
                at: &["pattern"],
                writes,
                tries: Vec::new(),
            };
            proved &= self.fail(fail, shape);
        }
        let doc = self.docs.of(reads.side);
        if let Some(format) = reads.get("format").and_then(Value::as_str)
            && doc.knows_format(format)
            && !shape.has_format(self.docs, format, doc.draft())
        {
            let writes = shape.all("format").next().cloned();
            let fail = ProofFailure {
                rule: CompatRule::FormatAdded,
                node: reads,
                at: &["format"],
                writes,
                tries: Vec::new(),
            };
            proved &= self.fail(fail, shape);
        }
        if doc.is_draft_7() {
            proved &= self.content(shape, reads);
        }
        proved
    }

    /// Checks the content keywords, which draft 7 asserts. The two work together, so both must be unchanged.
    fn content(&mut self, shape: &ValueShape<'a>, reads: &SchemaNode<'a>) -> bool {
        let keywords = ["contentEncoding", "contentMediaType"];
        let Some(first) = keywords.into_iter().find(|keyword| reads.get(keyword).is_some()) else {
            return true;
        };
        let same = |part: &SchemaNode<'a>| {
            self.docs.of(part.side).is_draft_7()
                && keywords.iter().all(|keyword| part.get(keyword) == reads.get(keyword))
        };
        if shape.parts.iter().any(same) {
            return true;
        }
        let writes = shape.all(first).next().cloned();
        self.fail(
            ProofFailure {
                rule: CompatRule::ContentChanged,
                node: reads,
                at: &[first],
                writes,
                tries: Vec::new(),
            },
            shape,
        )
    }
}

/// The bound that a shape has at its low or high end.
fn bound_said(shape: &ValueShape<'_>, low: bool) -> Option<Value> {
    let keywords = if low { ["minimum", "exclusiveMinimum"] } else { ["maximum", "exclusiveMaximum"] };
    keywords.into_iter().find_map(|keyword| shape.all(keyword).next().cloned())
}
