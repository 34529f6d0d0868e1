//! `promethean bench state`: projectors, documents over HTTP, time travel and compaction, over the embedded
//! store.
//!
//! `project` compares with the rate at which the topic can be read, `snap` whole answers with those of
//! unchanged documents, `travel` topics of growing size; `compact` measures the memory it takes.

mod compact;
mod filled_bus;
mod project;
mod snap;
mod travel;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::run::{self, BenchRun, CommonArgs, Step};

/// The flags of `bench state`.
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs<StateMeasurement>,
    /// Events of the largest measurements [default: 1000000, quick: 50000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(10_000..))]
    events: Option<u64>,
}

/// The measurements of `bench state`, in the order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateMeasurement {
    /// Projectors in Rust and as jq, beside reading the topic
    Project,
    /// Documents over HTTP, whole and unchanged
    Snap,
    /// The state of a key at a given time, in topics of growing size
    Travel,
    /// Snapshots of many keys
    Compact,
}

/// How much `bench state` measures.
#[derive(Debug)]
struct StatePlan {
    events: u64,
    quick: bool,
}

/// One run of `bench state`.
type StateRun = BenchRun<StatePlan>;

/// Runs `promethean bench state`.
pub(crate) fn run(args: &StateArgs) -> Result<()> {
    let quick = args.common.quick;
    let events = args.events.unwrap_or(if quick { 50_000 } else { 1_000_000 });
    run::run(&args.common, StatePlan { events, quick }, step_of)
}

fn step_of(measurement: StateMeasurement) -> Step<StatePlan> {
    match measurement {
        StateMeasurement::Project => |run| block_on(project::run(run)),
        StateMeasurement::Snap => |run| block_on(snap::run(run)),
        StateMeasurement::Travel => |run| block_on(travel::run(run)),
        StateMeasurement::Compact => |run| block_on(compact::run(run)),
    }
}

fn block_on(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("start a runtime")?.block_on(work)
}
