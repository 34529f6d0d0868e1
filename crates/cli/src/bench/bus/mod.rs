//! `promethean bench bus`: publishing and groups over the embedded store, with the log's append rate beside them.
//!
//! `server` is a bus on a fresh directory, `publish` and `consume` are its users; each measurement has a module.

mod append;
mod consume;
mod drain;
mod groups;
mod idle;
mod latency;
mod plan;
mod publish;
mod server;
mod to_ack;
mod topics;

use anyhow::Result;
use promethean_model::Durability;

pub(crate) use self::idle::idle_child;
use self::plan::BusPlan;
use self::server::Spent;
use super::load::Load;
use super::measurement;
use super::run::{self, Run, Step};
use crate::args::{BusArgs, BusMeasurement};
use crate::output::Line;

/// Events per second that the log took in this run.
type Baseline = Option<f64>;

/// One run of the benchmark.
type BusBench = Run<BusPlan, Baseline>;

impl Run<BusPlan, Baseline> {
    /// What publishers do unless a measurement says otherwise.
    fn load(&self) -> Load {
        Load {
            publishers: self.plan.publishers,
            outstanding: self.plan.outstanding,
            batch_events: 1,
            one_call: true,
            events: self.plan.events,
            event_bytes: self.plan.event_bytes,
            keys: (self.plan.events / 10).max(1),
            durability: Durability::Fsync,
            given_ids: false,
        }
    }

    /// The log's append rate, measured first if it has not been.
    fn baseline(&mut self) -> Result<f64> {
        match self.known {
            Some(rate) => Ok(rate),
            None => append::measure(self),
        }
    }
}

/// A line with what publishing or delivering so many events took.
fn line(name: &'static str, load: Load, spent: &Spent) -> Line {
    measurement(name)
        .with("sync", load.durability.as_str())
        .with("publishers", load.publishers)
        .with("outstanding", load.outstanding)
        .with("one_call", load.one_call)
        .with("event_bytes", load.event_bytes)
        .with("events", spent.events)
        .figure("seconds", spent.elapsed.as_secs_f64())
        .figure("events_per_s", spent.events_per_s())
        .with("syncs", spent.syncs)
        .figure("events_per_sync", spent.events as f64 / spent.syncs.max(1) as f64)
        .figure("processor_us_per_event", spent.processor_us_per_event())
}

const STEPS: [Step<BusMeasurement, BusPlan, Baseline>; 8] = [
    (BusMeasurement::Append, append::run),
    (BusMeasurement::Publish, publish::run),
    (BusMeasurement::PublishToAck, to_ack::run),
    (BusMeasurement::Drain, drain::run),
    (BusMeasurement::Groups, groups::run),
    (BusMeasurement::Topics, topics::run),
    (BusMeasurement::Idle, idle::run),
    (BusMeasurement::Latency, latency::run),
];

/// Runs what the arguments ask for.
pub(crate) fn run(args: &BusArgs) -> Result<()> {
    run::run(&args.common, BusPlan::new(args), &STEPS)
}
