//! `promethean bench bus`: publishing and groups over the embedded store, with the log's append rate beside
//! them.
//!
//! `measured_bus` is a bus on a fresh directory, `publish` and `members` are its users; each measurement has
//! a module.

mod delivery;
mod groups;
mod idle;
mod latency;
mod measured_bus;
mod members;
mod plan;
mod publish;
mod topics;

use anyhow::Result;
use clap::ValueEnum;
use promethean_model::Durability;

pub(crate) use self::idle::idle_child;
use self::measured_bus::BusCost;
pub(crate) use self::plan::BusArgs;
use self::plan::BusPlan;
use crate::load::Load;
use crate::output::JsonLine;
use crate::run::{self, BenchRun, Step, measurement};

/// Events per second that the log appends without a bus, once it was measured in this run.
type Baseline = Option<f64>;

/// One run of `bench bus`.
type BusRun = BenchRun<BusPlan, Baseline>;

/// The measurements of `bench bus`, in the order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BusMeasurement {
    Append,
    Publish,
    #[value(name = "publish_to_ack")]
    PublishToAck,
    Drain,
    Groups,
    Topics,
    Idle,
    Latency,
}

/// Runs `promethean bench bus`.
pub(crate) fn run(args: &BusArgs) -> Result<()> {
    run::run(&args.common, BusPlan::new(args), step_of)
}

fn step_of(measurement: BusMeasurement) -> Step<BusPlan, Baseline> {
    match measurement {
        BusMeasurement::Append => publish::run_baseline,
        BusMeasurement::Publish => publish::run,
        BusMeasurement::PublishToAck => delivery::run_to_ack,
        BusMeasurement::Drain => delivery::run_drain,
        BusMeasurement::Groups => groups::run,
        BusMeasurement::Topics => topics::run,
        BusMeasurement::Idle => idle::run,
        BusMeasurement::Latency => latency::run,
    }
}

impl BusRun {
    /// The load of publishers unless a measurement changes it.
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

    /// The append rate of the log; measured first if it is not known yet.
    fn baseline(&mut self) -> Result<f64> {
        match self.known {
            Some(rate) => Ok(rate),
            None => publish::measure_baseline(self),
        }
    }
}

/// The output line of a measurement, with what its events cost.
fn line(name: &'static str, load: Load, spent: &BusCost) -> JsonLine {
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
