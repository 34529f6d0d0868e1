//! Whether a new schema fits an old one: structurally, and with an instance to show when it does not.
//!
//! ```
//! use promethean_schema::compat::{Direction, Undeclared, Verdict, check};
//! use serde_json::json;
//!
//! let old = json!({ "properties": { "id": { "type": "integer" } }, "additionalProperties": false });
//! let new = json!({ "properties": { "id": { "type": "number" }, "note": {} }, "additionalProperties": false });
//! assert_eq!(check(&old, &new, Direction::Backward, Undeclared::Any).verdict, Verdict::Compatible);
//!
//! let report = check(&old, &new, Direction::Forward, Undeclared::Any);
//! assert_eq!(report.verdict, Verdict::Incompatible);
//! ```
//!
//! It answers three ways. *Compatible* was proved. *Incompatible* comes with an instance that both validators were
//! asked about. What is neither is *undecidable*, with the place that the proof stopped at.

mod doc;
mod example;
mod node;
mod number;
mod prove;
mod report;
mod same;
mod shape;
#[cfg(test)]
mod tests;
mod types;
mod walk;

use std::fmt;

use promethean_model::Compat;
pub use promethean_model::Undeclared;
use serde::Serialize;
use serde_json::Value;

pub use report::{Finding, Report, Rule, Verdict};

use doc::Doc;
use node::Side;
use prove::Prover;
use shape::Docs;

/// Which way a check goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Every instance of the old schema is one of the new.
    Backward,
    /// Every instance of the new schema is one of the old.
    Forward,
}

impl Direction {
    /// Which ways a topic's rule asks for, and whether against every version.
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

    /// The schema whose instances are looked at, and the one that must accept them.
    fn sides(self) -> (&'static str, &'static str) {
        match self {
            Self::Backward => ("old", "new"),
            Self::Forward => ("new", "old"),
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Backward => "backward",
            Self::Forward => "forward",
        })
    }
}

/// How much a check may do.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Pairs of places that are compared.
    steps_max: u64,
    /// Instances that are tried as examples.
    tries_max: u64,
}

const LIMITS: Limits = Limits { steps_max: 100_000, tries_max: 4_000 };

/// Checks one direction.
#[must_use]
pub fn check(old: &Value, new: &Value, direction: Direction, undeclared: Undeclared) -> Report {
    check_within(old, new, direction, undeclared, LIMITS).0
}

/// Checks one direction, and tells how many steps it took.
fn check_within(
    old: &Value,
    new: &Value,
    direction: Direction,
    undeclared: Undeclared,
    limits: Limits,
) -> (Report, u64) {
    let (writes, reads) = match direction {
        Direction::Backward => (old, new),
        Direction::Forward => (new, old),
    };
    let docs = Doc::new(writes, Side::Writes).and_then(|writes| Ok((writes, Doc::new(reads, Side::Reads)?)));
    let (writes, reads) = match docs {
        Ok(docs) => docs,
        Err(error) => {
            let fix = format!("One of the two schemas is refused: {error}.");
            let finding = Finding {
                verdict: Verdict::Undecidable,
                direction,
                rule: Rule::InvalidSchema,
                path: String::new(),
                instance_path: String::new(),
                old: None,
                new: None,
                fix,
                example: None,
            };
            return (Report::of(vec![finding]), 0);
        }
    };
    let docs = Docs { writes, reads, undeclared };
    let (findings, steps) = Prover::new(&docs, direction, limits).run();
    (Report::of(findings), steps)
}
