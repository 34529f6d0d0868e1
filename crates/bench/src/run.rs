//! One run of a bench: its measurements in turn, the goals they met, and the summary.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::output::{JsonLine, progress, rounded};
use crate::scratch::Scratch;

/// The flags of every bench that prints one line per measurement.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs<M: ValueEnum + Send + Sync + 'static> {
    /// Work in this directory and keep it; `bench log` leaves the log that `read` filled in it [default: a
    /// temporary directory inside the current one]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Take seconds instead of minutes by measuring less; figures are rough
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run only these measurements
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<M>,
}

/// What the measurements of one run share.
#[derive(Debug)]
pub(crate) struct BenchRun<P, K = ()> {
    /// How much is measured.
    pub(crate) plan: P,
    pub(crate) scratch: Scratch,
    /// A result of one measurement that later ones need.
    pub(crate) known: K,
    goals: Vec<Goal>,
}

impl<P, K> BenchRun<P, K> {
    /// Adds a goal to the summary.
    pub(crate) fn goal(&mut self, goal: Goal) {
        self.goals.push(goal);
    }
}

/// The code of one measurement.
pub(crate) type Step<P, K = ()> = fn(&mut BenchRun<P, K>) -> Result<()>;

/// Runs the measurements that the arguments ask for, in the order of the enum `M`, and prints the summary.
pub(crate) fn run<M, P, K>(args: &CommonArgs<M>, plan: P, step_of: fn(M) -> Step<P, K>) -> Result<()>
where
    M: ValueEnum + Copy + PartialEq + Send + Sync + 'static,
    K: Default,
{
    let scratch = Scratch::new(args.data.as_deref())?;
    let mut run = BenchRun { plan, scratch, known: K::default(), goals: Vec::new() };
    for measurement in M::value_variants() {
        if args.only.is_empty() || args.only.contains(measurement) {
            let value = measurement.to_possible_value().context("a measurement without a name")?;
            let name = value.get_name();
            progress(name);
            step_of(*measurement)(&mut run).with_context(|| format!("measure `{name}`"))?;
        }
    }
    progress("");
    summary(&run.goals, args.quick).print()
}

/// Starts the output line of a measurement.
pub(crate) fn measurement(name: &'static str) -> JsonLine {
    JsonLine::new().with("bench", name)
}

/// The last line of a run: which goals it met.
pub(crate) fn summary(goals: &[Goal], quick: bool) -> JsonLine {
    measurement("summary")
        .with("scale", if quick { "quick" } else { "full" })
        .with("met", goals.iter().filter(|goal| goal.is_met()).count())
        .with("of", goals.len())
        .with("targets", goals.iter().map(Goal::to_json).collect::<Vec<_>>())
}

/// One target and the figure that was measured.
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
