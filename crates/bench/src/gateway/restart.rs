//! `restart`: time until a killed server is ready again.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::meter::line;
use super::plan::PAYLOADS;
use super::publish::fill;
use super::server_process::{ServerProcess, with_resident};
use super::{GatewayRun, block_on};
use crate::run::Goal;

const TARGET_MS: f64 = 100.0;
const TOPIC: &str = "bench.restart";

pub(super) fn run(bench: &mut GatewayRun) -> Result<()> {
    let [_, bytes] = PAYLOADS;
    let took = block_on(measure(bench, bytes))?;
    let what = format!("ready after kill -9 with {} events, ms", bench.plan.events);
    bench.goal(Goal::at_most(what, TARGET_MS, took));
    Ok(())
}

/// Milliseconds from the start of the process until `/ready` answers with 200.
async fn measure(bench: &mut GatewayRun, bytes: usize) -> Result<f64> {
    let mut server = ServerProcess::start(bench, "restart").await?;
    let line = line(bench, "restart", &server).await?;
    let events = fill(bench, &server, TOPIC, bytes, bench.plan.events).await?;
    let took = server.kill_and_restart().await?.as_secs_f64() * 1e3;
    // No confirmed event may be lost: the next event must get the offset after them.
    let publish = serde_json::json!({ "op": "PUBLISH", "topic": TOPIC, "payload": 0, "corr": 0 });
    let reply = server.open().await?.request(&publish.to_string()).await?;
    let offset = reply.get("offset").and_then(Value::as_u64).context("a reply without an offset")?;
    ensure!(offset == events, "{events} events were confirmed, and {offset} are there");
    let line = line.with("payload_bytes", bytes).with("events", events).figure("ready_ms", took);
    with_resident(line, &server)?.print()?;
    Ok(took)
}
