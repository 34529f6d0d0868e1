//! `replay`: reading a whole topic through `/export`.

use anyhow::{Result, ensure};

use super::meter::{Meter, line, with_cost};
use super::plan::PAYLOADS;
use super::publish::fill;
use super::server_process::ServerProcess;
use super::{GatewayRun, block_on};
use crate::run::Goal;
use crate::wire::http;

const TARGET_EVENTS_PER_S: f64 = 800_000.0;

pub(super) fn run(bench: &mut GatewayRun) -> Result<()> {
    let [_, bytes] = PAYLOADS;
    let rate = block_on(measure(bench, bytes))?;
    bench.goal(Goal::at_least(format!("replay {bytes} B, events/s"), TARGET_EVENTS_PER_S, rate));
    Ok(())
}

async fn measure(bench: &mut GatewayRun, bytes: usize) -> Result<f64> {
    let server = ServerProcess::start(bench, "replay").await?;
    let events = fill(bench, &server, "bench.replay", bytes, bench.plan.backlog()).await?;
    let line = line(bench, "replay", &server).await?;
    let meter = Meter::start(&server)?;
    let (lines, body) = http::lines(&server.address, "/export?topic=bench.replay&ndjson=1").await?;
    let cost = meter.stop(&server, events)?;
    ensure!(lines == events, "{lines} events came of {events}");
    let mb_per_s = body as f64 / 1e6 / cost.elapsed.as_secs_f64().max(1e-9);
    let line = line.with("payload_bytes", bytes);
    with_cost(line, &cost, &server)?.figure("mb_per_s", mb_per_s).print()?;
    Ok(cost.events_per_s())
}
