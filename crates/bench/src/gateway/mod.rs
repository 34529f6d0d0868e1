//! `promethean bench gateway`: a server in a process of its own on this machine, and a client in this one.
//!
//! `server_process` is that process, `meter` measures what work costs both; each measurement has a module.

mod client;
mod drain;
mod fanout;
mod idle;
mod memory;
mod meter;
mod plan;
mod publish;
mod replay;
mod restart;
mod server_process;
mod single;
mod subscriber;

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

pub(crate) use self::plan::GatewayArgs;
use self::plan::GatewayPlan;
use crate::run::{self, BenchRun, Step};
use crate::wire;

/// The durability that the server's replies name, once one was asked for.
type ServerSync = Option<String>;

/// One run of `bench gateway`.
type GatewayRun = BenchRun<GatewayPlan, ServerSync>;

/// The measurements of `bench gateway`, in the order they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GatewayMeasurement {
    Publish,
    #[value(name = "publish_batch")]
    PublishBatch,
    Single,
    Drain,
    Latency,
    Fanout,
    Replay,
    Idle,
    Memory,
    Restart,
    Client,
}

/// Runs `promethean bench gateway`.
pub(crate) fn run(args: &GatewayArgs) -> Result<()> {
    run::run(&args.common, GatewayPlan::new(args), step_of)
}

fn step_of(measurement: GatewayMeasurement) -> Step<GatewayPlan, ServerSync> {
    match measurement {
        GatewayMeasurement::Publish => publish::run,
        GatewayMeasurement::PublishBatch => publish::run_batch,
        GatewayMeasurement::Single => single::run,
        GatewayMeasurement::Drain => drain::run,
        GatewayMeasurement::Latency => fanout::run_latency,
        GatewayMeasurement::Fanout => fanout::run,
        GatewayMeasurement::Replay => replay::run,
        GatewayMeasurement::Idle => idle::run,
        GatewayMeasurement::Memory => memory::run,
        GatewayMeasurement::Restart => restart::run,
        GatewayMeasurement::Client => client::run,
    }
}

/// Longer than any measurement takes unless the server hangs.
const STEP_LIMIT: Duration = Duration::from_secs(150);

/// Runs a client's work on this thread, and fails if the server does not answer for long.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    wire::block_on(async {
        tokio::time::timeout(STEP_LIMIT, work).await.context("the measurement took too long")?
    })
}
