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

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result};

use self::plan::GatewayPlan;
use super::run::{self, Run, Step};
use super::wire;
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

/// Longer than anything takes that goes well.
const STEP_LIMIT: Duration = Duration::from_secs(150);

/// Runs a client's work on this thread; a server that does not answer is no reason to wait for ever.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    wire::block_on(async { tokio::time::timeout(STEP_LIMIT, work).await.context("it took too long")? })
}

/// Runs what the arguments ask for.
pub(crate) fn run(args: &GatewayArgs) -> Result<()> {
    run::run(&args.common, GatewayPlan::new(args), &STEPS)
}
