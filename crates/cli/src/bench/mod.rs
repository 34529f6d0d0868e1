//! `promethean bench log`: one JSON line per measurement, each in a module of its own. `bus` is `promethean bench bus`.
//!
//! `plan` says how much, `load` makes events, `publish` publishes them, `timing` holds the stopwatch.

mod append;
mod bus;
mod checkpoint;
mod child;
mod load;
mod lookup;
mod memory;
mod plan;
mod publish;
mod raw;
mod read;
mod reopen;
mod scratch;
mod single;
mod summary;
mod timing;

use anyhow::{Context, Result};
use promethean_model::Durability;

use self::load::Load;
use self::plan::Plan;
use self::scratch::Scratch;
use self::summary::Goal;
use crate::args::{BenchArgs, BusArgs, ChildArgs, Measurement};
use crate::output::{Line, progress};

/// One run of the benchmark.
#[derive(Debug)]
pub(crate) struct Bench {
    plan: Plan,
    scratch: Scratch,
    goals: Vec<Goal>,
}

impl Bench {
    fn goal(&mut self, goal: Goal) {
        self.goals.push(goal);
    }

    /// What publishers do unless a measurement says otherwise.
    fn load(&self) -> Load {
        Load {
            publishers: self.plan.publishers,
            outstanding: self.plan.outstanding,
            batch_events: 1,
            one_call: false,
            events: self.plan.rate_events(),
            event_bytes: self.plan.event_bytes,
            keys: self.plan.keys,
            durability: Durability::Fsync,
            given_ids: false,
        }
    }
}

type Step = fn(&mut Bench) -> Result<()>;

const STEPS: [(Measurement, &str, Step); 8] = [
    (Measurement::Raw, "raw", raw::run),
    (Measurement::Append, "append", append::run),
    (Measurement::Single, "single", single::run),
    (Measurement::Read, "read", read::run),
    (Measurement::Lookup, "lookup", lookup::run),
    (Measurement::Reopen, "reopen", reopen::run),
    (Measurement::Memory, "memory", memory::run),
    (Measurement::Checkpoint, "checkpoint", checkpoint::run),
];

/// Runs what the arguments ask for.
pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let scratch = Scratch::new(args.data.as_deref())?;
    let mut bench = Bench { plan: Plan::new(args), scratch, goals: Vec::new() };
    for (measurement, name, step) in STEPS {
        if bench.plan.includes(measurement) {
            progress(name);
            step(&mut bench).with_context(|| format!("measure `{name}`"))?;
        }
    }
    progress("");
    summary::line(&bench.goals, bench.plan.quick).print()
}

/// Runs what the arguments ask for, over the bus.
pub(crate) fn run_bus(args: &BusArgs) -> Result<()> {
    bus::run(args)
}

/// Runs one part of the benchmark in a process of its own.
pub(crate) fn run_child(args: &ChildArgs) -> Result<()> {
    child::run(args)
}

/// A line of this measurement.
fn measurement(name: &'static str) -> Line {
    Line::new().with("bench", name)
}
