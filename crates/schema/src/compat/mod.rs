//! The check of whether a new schema fits an old one.
//!
//! ```
//! use promethean_schema::compat::{CompatDirection, Undeclared, Verdict, check};
//! use serde_json::json;
//!
//! let old = json!({ "properties": { "id": { "type": "integer" } }, "additionalProperties": false });
//! let new = json!({ "properties": { "id": { "type": "number" }, "note": {} }, "additionalProperties": false });
//! assert_eq!(check(&old, &new, CompatDirection::Backward, Undeclared::Any).verdict, Verdict::Compatible);
//!
//! let report = check(&old, &new, CompatDirection::Forward, Undeclared::Any);
//! assert_eq!(report.verdict, Verdict::Incompatible);
//! ```
//!
//! There are three verdicts. *Compatible* was proved. *Incompatible* comes with an instance that both
//! validators were asked about. Anything else is *undecidable*, with the place where the proof stopped.
//!
//! | module | holds |
//! | --- | --- |
//! | `document`, `scan`, `node` | one schema document, what a first look at it finds, and places in it |
//! | `unevaluated` | `unevaluatedProperties` and `unevaluatedItems` in plainer words |
//! | `types`, `number` | sets of JSON types; numbers compared by value |
//! | `equality` | whether two schemas say the same |
//! | `shape` | schemas without unions: one way in which an instance can be valid |
//! | `prover` | the proof, and what does not hold |
//! | `example` | instances that show it |
//! | `report` | the verdict, and its findings |

mod document;
mod equality;
mod example;
mod node;
mod number;
mod prover;
mod report;
mod scan;
mod shape;
mod types;
mod unevaluated;

use std::fmt;

use promethean_model::Compat;
pub use promethean_model::Undeclared;
use serde::Serialize;
use serde_json::Value;

pub use report::{CompatFinding, CompatReport, CompatRule, Verdict};

use document::SchemaDocument;
use node::DocumentSide;
use prover::Prover;
use shape::SchemaPair;
use unevaluated::PlainSchema;

/// The direction of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CompatDirection {
    /// Every instance of the old schema must be one of the new schema.
    Backward,
    /// Every instance of the new schema must be one of the old schema.
    Forward,
}

impl CompatDirection {
    /// The directions that a topic's rule asks for, and whether against every version or only the latest.
    #[must_use]
    pub const fn asked_by(compat: Compat) -> (&'static [Self], bool) {
        match compat {
            Compat::None => (&[], false),
            Compat::Backward => (&[Self::Backward], false),
            Compat::Forward => (&[Self::Forward], false),
            Compat::Full => (&[Self::Backward, Self::Forward], false),
            Compat::BackwardTransitive => (&[Self::Backward], true),
            Compat::ForwardTransitive => (&[Self::Forward], true),
            Compat::FullTransitive => (&[Self::Backward, Self::Forward], true),
        }
    }

    /// The names of the schema whose instances are looked at, and of the one that must accept them.
    fn sides(self) -> (&'static str, &'static str) {
        match self {
            Self::Backward => ("old", "new"),
            Self::Forward => ("new", "old"),
        }
    }
}

impl fmt::Display for CompatDirection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Backward => "backward",
            Self::Forward => "forward",
        })
    }
}

/// The bounds of a check.
#[derive(Debug, Clone, Copy)]
struct CheckLimits {
    /// Pairs of places that are compared, at most.
    steps_max: u64,
    /// Instances that are tried as examples, at most.
    tries_max: u64,
}

const LIMITS: CheckLimits = CheckLimits { steps_max: 100_000, tries_max: 4_000 };

/// Checks one direction.
#[must_use]
pub fn check(old: &Value, new: &Value, direction: CompatDirection, undeclared: Undeclared) -> CompatReport {
    check_within(old, new, direction, undeclared, LIMITS).0
}

/// Checks one direction, and returns also how many steps it took.
fn check_within(
    old: &Value,
    new: &Value,
    direction: CompatDirection,
    undeclared: Undeclared,
    limits: CheckLimits,
) -> (CompatReport, u64) {
    let (writes, reads) = match direction {
        CompatDirection::Backward => (old, new),
        CompatDirection::Forward => (new, old),
    };
    let (writes, plain) = (PlainSchema::of(writes), PlainSchema::of(reads));
    let docs = SchemaDocument::new(&writes.root, DocumentSide::Writes)
        .and_then(|writes| Ok((writes, SchemaDocument::new(&plain.root, DocumentSide::Reads)?)));
    let (writes, reads) = match docs {
        Ok(docs) => docs,
        Err(error) => {
            let fix = format!("One of the two schemas is refused: {error}.");
            let finding = CompatFinding {
                verdict: Verdict::Undecidable,
                direction,
                rule: CompatRule::InvalidSchema,
                path: String::new(),
                instance_path: String::new(),
                old: None,
                new: None,
                fix,
                example: None,
            };
            return (CompatReport::of(vec![finding]), 0);
        }
    };
    let docs = SchemaPair { writes, reads, undeclared };
    let (mut findings, steps) = Prover::new(&docs, direction, limits).run();
    for finding in &mut findings {
        finding.path = plain.given(std::mem::take(&mut finding.path));
    }
    (CompatReport::of(findings), steps)
}

#[cfg(test)]
mod tests {
    //! Large, deep, wide and recursive schemas take a bounded number of steps, and no deep recursion.

    use serde_json::{Value, json};

    use super::*;

    /// The verdict, and the steps it took.
    fn run(old: &Value, new: &Value) -> (Verdict, u64) {
        let (report, steps) = check_within(old, new, CompatDirection::Backward, Undeclared::Any, LIMITS);
        assert!(steps <= LIMITS.steps_max + 20_000, "{steps}");
        (report.verdict, steps)
    }

    fn nested(depth: usize, leaf: &Value) -> Value {
        (0..depth).fold(
            leaf.clone(),
            |inner, _| json!({ "type": "object", "properties": { "a": inner }, "required": ["a"] }),
        )
    }

    #[test]
    fn deep_schemas() {
        let (verdict, steps) =
            run(&nested(60, &json!({ "type": "integer" })), &nested(60, &json!({ "type": "number" })));
        assert_eq!(verdict, Verdict::Compatible);
        assert!(steps < 2_000, "{steps}");
        let (verdict, _) =
            run(&nested(60, &json!({ "type": "number" })), &nested(60, &json!({ "type": "integer" })));
        assert_ne!(verdict, Verdict::Compatible);
    }

    #[test]
    fn large_schemas() {
        let properties = |kind: &str| -> Value {
            let map: serde_json::Map<String, Value> = (0..3_000)
                .map(|n| (format!("property_{n}"), json!({ "type": kind, "description": "x".repeat(20) })))
                .collect();
            json!({ "type": "object", "properties": map, "additionalProperties": false })
        };
        let (verdict, steps) = run(&properties("integer"), &properties("number"));
        assert_eq!(verdict, Verdict::Compatible);
        assert!(steps < 20_000, "{steps}");
    }

    #[test]
    fn wide_unions() {
        let union = |keyword: &str, count: u32| {
            let member = |n| json!({ "type": "object", "properties": { "kind": { "const": n } }, "required": ["kind"] });
            json!({ keyword: (0..count).map(member).collect::<Vec<_>>() })
        };
        assert_eq!(run(&union("oneOf", 40), &union("oneOf", 40)).0, Verdict::Compatible);
        assert_eq!(run(&union("oneOf", 20), &union("anyOf", 21)).0, Verdict::Compatible);
        // Past the limit on ways a union is left out, which is never a proof.
        assert_ne!(run(&union("oneOf", 300), &union("anyOf", 301)).0, Verdict::Incompatible);
        assert_ne!(run(&union("anyOf", 301), &union("anyOf", 300)).0, Verdict::Compatible);
    }

    #[test]
    fn products_of_unions() {
        let factor = |n: u32| json!({ "anyOf": [{ "required": [format!("a{n}")] }, { "required": [format!("b{n}")] }, { "type": "string" }] });
        let product = |count: u32| json!({ "allOf": (0..count).map(factor).collect::<Vec<_>>() });
        run(&product(40), &product(39));
        run(&product(40), &json!({ "type": "object" }));
        // In place, each definition asks three times for the next.
        let mut defs = serde_json::Map::new();
        for n in 0..30 {
            let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
            defs.insert(
                format!("d{n}"),
                json!({ "anyOf": [next, { "not": next }, { "allOf": [next, { "minLength": n }] }] }),
            );
        }
        defs.insert("d30".into(), json!({ "type": "string" }));
        let steep = json!({ "$defs": defs, "$ref": "#/$defs/d0" });
        run(&json!({ "type": "string", "minLength": 2 }), &steep);
    }

    #[test]
    fn references_that_share() {
        // Each definition asks twice for the next: unfolded, it is two to the fortieth.
        let chain = |leaf: &str| {
            let mut defs = serde_json::Map::new();
            for n in 0..40 {
                let next = format!("#/$defs/d{}", n + 1);
                let both = json!({ "l": { "$ref": next }, "r": { "$ref": next } });
                defs.insert(
                    format!("d{n}"),
                    json!({ "type": "object", "properties": both, "additionalProperties": false }),
                );
            }
            defs.insert("d40".into(), json!({ "type": leaf }));
            json!({ "$defs": defs, "$ref": "#/$defs/d0" })
        };
        let (verdict, steps) = run(&chain("integer"), &chain("number"));
        assert_eq!(verdict, Verdict::Compatible);
        assert!(steps < 20_000, "{steps}");
        assert_ne!(run(&chain("number"), &chain("integer")).0, Verdict::Compatible);
    }

    #[test]
    fn long_chains_of_references() {
        let chain = |leaf: &str| {
            let mut defs = serde_json::Map::new();
            for n in 0..400 {
                defs.insert(format!("d{n}"), json!({ "$ref": format!("#/$defs/d{}", n + 1) }));
            }
            defs.insert("d400".into(), json!({ "type": leaf }));
            json!({ "$defs": defs, "$ref": "#/$defs/d0" })
        };
        run(&chain("integer"), &chain("number"));
    }

    #[test]
    fn recursion_of_all_kinds() {
        let own = json!({ "$ref": "#" });
        assert_eq!(run(&own, &json!({ "$ref": "#", "title": "t" })).0, Verdict::Compatible);
        assert_ne!(run(&own, &json!({ "type": "string" })).0, Verdict::Compatible);
        let in_place = json!({ "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/b" }, { "type": "string" }] }, "b": { "not": { "$ref": "#/$defs/a" } } }, "$ref": "#/$defs/a" });
        assert_ne!(run(&in_place, &json!({ "type": "string" })).0, Verdict::Compatible);
        let expression = |leaf: &str| {
            let two = json!({ "type": "object", "properties": { "l": { "$ref": "#" }, "r": { "$ref": "#" } }, "required": ["l", "r"], "additionalProperties": false });
            json!({ "anyOf": [{ "type": leaf }, two, { "type": "array", "items": { "$ref": "#" } }, { "type": "object", "additionalProperties": { "$ref": "#" } }] })
        };
        let (verdict, steps) = run(&expression("integer"), &expression("number"));
        assert_eq!(verdict, Verdict::Compatible);
        assert!(steps < 5_000, "{steps}");
        assert_ne!(run(&expression("number"), &expression("integer")).0, Verdict::Compatible);
        // It accepts no finite instance; the check need not find that out, but must end.
        let endless = json!({ "type": "object", "properties": { "a": { "$ref": "#" } }, "required": ["a"] });
        run(&endless, &json!({ "type": "string" }));
    }

    #[test]
    fn steps_have_an_end() {
        let limits = CheckLimits { steps_max: 10, tries_max: 10 };
        let old = nested(30, &json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }] }));
        let new = nested(30, &json!({ "anyOf": [{ "type": "number" }, { "type": "string" }] }));
        let (report, _) = check_within(&old, &new, CompatDirection::Backward, Undeclared::Any, limits);
        assert_eq!(report.verdict, Verdict::Undecidable);
        assert_eq!(report.findings[0].rule, CompatRule::TooComplex);
    }
}
