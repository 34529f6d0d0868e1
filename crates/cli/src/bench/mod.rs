//! `promethean bench`: one JSON line per measurement, each in a module of its own. This folder is `bench log`; `bus` is
//! `bench bus`, `gateway` is `bench gateway`, `schema` is `bench schema`, `state` is `bench state`, `seed` is `bench publish` and `bench
//! subscribe`.
//!
//! `run` goes through the measurements, `plan` says how much, `load` makes events, `publish` publishes them, `timing`
//! holds the stopwatch, `wire` is the client of a server.

mod append;
mod bus;
mod checkpoint;
mod child;
mod gateway;
mod load;
mod lookup;
mod memory;
mod plan;
mod publish;
mod raw;
mod read;
mod reopen;
mod run;
mod schema;
mod scratch;
mod seed;
mod single;
mod state;
mod summary;
mod timing;
mod wire;

use anyhow::Result;
use promethean_model::Durability;

use self::load::Load;
use self::plan::Plan;
use self::run::{Run, Step};
use crate::args::{BenchArgs, BenchCommand, Measurement};
use crate::output::Line;

/// One run of `bench log`.
type Bench = Run<Plan>;

impl Run<Plan> {
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

const STEPS: [Step<Measurement, Plan>; 8] = [
    (Measurement::Raw, raw::run),
    (Measurement::Append, append::run),
    (Measurement::Single, single::run),
    (Measurement::Read, read::run),
    (Measurement::Lookup, lookup::run),
    (Measurement::Reopen, reopen::run),
    (Measurement::Memory, memory::run),
    (Measurement::Checkpoint, checkpoint::run),
];

/// Runs what the arguments ask for.
pub(crate) fn run(command: &BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Log(args) => run_log(args),
        BenchCommand::Bus(args) => bus::run(args),
        BenchCommand::Gateway(args) => gateway::run(args),
        BenchCommand::Schema(args) => schema::run(args),
        BenchCommand::State(args) => state::run(args),
        BenchCommand::Publish(args) => seed::publish(args),
        BenchCommand::Subscribe(args) => seed::subscribe(args),
        BenchCommand::Child(args) => child::run(args),
    }
}

fn run_log(args: &BenchArgs) -> Result<()> {
    run::run(&args.common, Plan::new(args), &STEPS)
}

/// A line of this measurement.
fn measurement(name: &'static str) -> Line {
    Line::new().with("bench", name)
}
