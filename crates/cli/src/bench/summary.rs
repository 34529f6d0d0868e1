//! The targets, and whether this run met them.

use serde_json::Value;

use crate::output::{Line, rounded};

/// One target and what was measured.
#[derive(Debug, Clone)]
pub(crate) struct Goal {
    what: String,
    wanted: f64,
    measured: f64,
    at_least: bool,
}

impl Goal {
    pub(crate) fn at_least(what: impl Into<String>, wanted: f64, measured: f64) -> Goal {
        Goal { what: what.into(), wanted, measured, at_least: true }
    }

    pub(crate) fn at_most(what: impl Into<String>, wanted: f64, measured: f64) -> Goal {
        Goal { what: what.into(), wanted, measured, at_least: false }
    }

    fn is_met(&self) -> bool {
        if self.at_least { self.measured >= self.wanted } else { self.measured <= self.wanted }
    }

    fn to_json(&self) -> Value {
        let sign = if self.at_least { ">=" } else { "<=" };
        let target = format!("{} {sign} {}", self.what, self.wanted);
        serde_json::json!({ "target": target, "measured": rounded(self.measured), "met": self.is_met() })
    }
}

/// The last line of a run.
pub(crate) fn line(goals: &[Goal], quick: bool) -> Line {
    Line::new()
        .with("bench", "summary")
        .with("scale", if quick { "quick" } else { "full" })
        .with("met", goals.iter().filter(|goal| goal.is_met()).count())
        .with("of", goals.len())
        .with("targets", goals.iter().map(Goal::to_json).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_point_either_way() {
        assert!(Goal::at_least("rate", 10.0, 11.0).is_met());
        assert!(!Goal::at_least("rate", 10.0, 9.0).is_met());
        assert!(Goal::at_most("time", 10.0, 9.0).is_met());
        assert!(!Goal::at_most("time", 10.0, 11.0).is_met());
    }
}
