//! One run of a benchmark: its steps one after the other, then the summary.

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::scratch::Scratch;
use super::summary::{self, Goal};
use crate::args::CommonArgs;
use crate::output::progress;

/// What the steps of one run share.
#[derive(Debug)]
pub(crate) struct Run<P, K = ()> {
    pub(crate) plan: P,
    pub(crate) scratch: Scratch,
    /// What a step found out that later ones need.
    pub(crate) known: K,
    goals: Vec<Goal>,
}

impl<P, K> Run<P, K> {
    pub(crate) fn goal(&mut self, goal: Goal) {
        self.goals.push(goal);
    }
}

/// A measurement and what does it.
pub(crate) type Step<M, P, K = ()> = (M, fn(&mut Run<P, K>) -> Result<()>);

/// Runs the steps that the arguments ask for.
pub(crate) fn run<M, P, K>(args: &CommonArgs<M>, plan: P, steps: &[Step<M, P, K>]) -> Result<()>
where
    M: ValueEnum + PartialEq + Send + Sync + 'static,
    K: Default,
{
    let scratch = Scratch::new(args.data.as_deref())?;
    let mut run = Run { plan, scratch, known: K::default(), goals: Vec::new() };
    for (measurement, step) in steps {
        if args.only.is_empty() || args.only.contains(measurement) {
            let value = measurement.to_possible_value().context("a measurement without a name")?;
            let name = value.get_name();
            progress(name);
            step(&mut run).with_context(|| format!("measure `{name}`"))?;
        }
    }
    progress("");
    summary::line(&run.goals, args.quick).print()
}
