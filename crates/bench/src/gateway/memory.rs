//! `memory`: memory of the server before and after many events.

use anyhow::{Result, ensure};

use super::idle::rest;
use super::meter::{Meter, line, with_cost};
use super::plan::PAYLOADS;
use super::publish::publish;
use super::server_process::ServerProcess;
use super::{GatewayRun, block_on};
use crate::run::Goal;
use crate::wire::events::{Template, payload};

const TARGET_IDLE_MB: f64 = 20.0;
const TARGET_LOADED_MB: f64 = 80.0;
const CONNECTIONS: usize = 8;

pub(super) fn run(bench: &mut GatewayRun) -> Result<()> {
    let [_, bytes] = PAYLOADS;
    let (idle, loaded) = block_on(measure(bench, bytes))?;
    bench.goal(Goal::at_most("resident when idle, MB", TARGET_IDLE_MB, idle));
    let what = format!("resident after {} events of {bytes} B, MB", bench.plan.events);
    bench.goal(Goal::at_most(what, TARGET_LOADED_MB, loaded));
    Ok(())
}

/// Megabytes before and after the events.
async fn measure(bench: &mut GatewayRun, bytes: usize) -> Result<(f64, f64)> {
    let server = ServerProcess::start(bench, "memory").await?;
    rest(bench).await;
    let idle = server.resident()? / 1e6;
    let mut sockets = Vec::new();
    for _ in 0..CONNECTIONS {
        sockets.push(server.open().await?);
    }
    let line_of_sync = line(bench, "memory", &server).await?;
    line_of_sync.clone().with("events", 0).figure("server_rss_mb", idle).print()?;
    let frame = Template::one("bench.memory", &payload(bytes));
    let meter = Meter::start(&server)?;
    let (_, events) = publish(sockets, &frame, bench.plan.events, bench.plan.until_loaded()).await?;
    let cost = meter.stop(&server, events)?;
    ensure!(events >= bench.plan.events, "only {events} events were published in time");
    let line = line_of_sync.with("payload_bytes", bytes).with("connections", CONNECTIONS);
    let line = with_cost(line, &cost, &server)?
        .figure("server_peak_mb", server.status("VmHWM")? / 1e6)
        .figure("server_anon_mb", server.status("RssAnon")? / 1e6);
    rest(bench).await;
    let rested = server.resident()? / 1e6;
    line.figure("server_rss_at_rest_mb", rested).print()?;
    Ok((idle, rested))
}
