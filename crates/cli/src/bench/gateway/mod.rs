//! `promethean bench gateway`: a server in a process of its own on this machine, and a client in this one.
//!
//! `server` is that process, `meter` what work took of both; each measurement has a module.

mod deliver;
mod drain;
mod fanout;
mod idle;
mod latency;
mod memory;
mod meter;
mod plan;
mod publish;
mod replay;
mod restart;
mod server;
mod single;

use anyhow::Result;

use self::plan::GatewayPlan;
use super::run::{self, Run, Step};
use crate::args::{GatewayArgs, GatewayMeasurement};

/// How durable the server says that events are.
type Sync = Option<String>;

/// One run of the benchmark.
type GatewayBench = Run<GatewayPlan, Sync>;

const STEPS: [Step<GatewayMeasurement, GatewayPlan, Sync>; 10] = [
    (GatewayMeasurement::Publish, publish::run),
    (GatewayMeasurement::PublishBatch, publish::run_batch),
    (GatewayMeasurement::Single, single::run),
    (GatewayMeasurement::Drain, drain::run),
    (GatewayMeasurement::Latency, latency::run),
    (GatewayMeasurement::Fanout, fanout::run),
    (GatewayMeasurement::Replay, replay::run),
    (GatewayMeasurement::Idle, idle::run),
    (GatewayMeasurement::Memory, memory::run),
    (GatewayMeasurement::Restart, restart::run),
];

/// Runs what the arguments ask for.
pub(crate) fn run(args: &GatewayArgs) -> Result<()> {
    run::run(&args.common, GatewayPlan::new(args), &STEPS)
}
