//! `promethean bench log`: the event log without anything over it. Each measurement has a module.

pub(crate) mod append;
mod checkpoint;
mod lookup;
mod memory;
mod plan;
mod publishers;
pub(crate) mod raw;
mod read;
mod reopen;
mod single;

use anyhow::Result;
use clap::ValueEnum;
use promethean_model::Durability;

pub(crate) use self::plan::LogArgs;
use self::plan::LogPlan;
pub(crate) use self::publishers::publish;
use crate::load::Load;
use crate::run::{self, BenchRun, Step};

/// One run of `bench log`.
type LogRun = BenchRun<LogPlan>;

/// The measurements of `bench log`, in the order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogMeasurement {
    Raw,
    Append,
    Single,
    Read,
    Lookup,
    Reopen,
    Memory,
    Checkpoint,
}

/// Runs `promethean bench log`.
pub(crate) fn run(args: &LogArgs) -> Result<()> {
    run::run(&args.common, LogPlan::new(args), step_of)
}

fn step_of(measurement: LogMeasurement) -> Step<LogPlan> {
    match measurement {
        LogMeasurement::Raw => raw::run,
        LogMeasurement::Append => append::run,
        LogMeasurement::Single => single::run,
        LogMeasurement::Read => read::run,
        LogMeasurement::Lookup => lookup::run,
        LogMeasurement::Reopen => reopen::run,
        LogMeasurement::Memory => memory::run,
        LogMeasurement::Checkpoint => checkpoint::run,
    }
}

impl LogRun {
    /// The load of publishers unless a measurement changes it.
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
