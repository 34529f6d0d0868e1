//! `publish` and `publish_batch`: a window of unconfirmed events over one socket and over eight, one or many
//! per frame.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tokio::task::JoinSet;

use super::meter::{Meter, line, with_cost};
use super::plan::{BATCH_EVENTS, OUTSTANDING, PAYLOADS};
use super::server_process::ServerProcess;
use super::{GatewayRun, block_on};
use crate::run::Goal;
use crate::timing::Epoch;
use crate::wire::events::{Template, payload};
use crate::wire::pump::{PublishWindow, pump};
use crate::wire::socket::ClientSocket;

const CONNECTIONS: [usize; 2] = [1, 8];
/// Events per second for each payload, over one connection and over eight.
const TARGETS: [[f64; 2]; 2] = [[350_000.0, 500_000.0], [200_000.0, 250_000.0]];
const TARGET_BATCH: f64 = 700_000.0;
/// One in this many events is published first, untimed.
const WARM_UP: u64 = 20;
const TOPIC: &str = "bench.publish";

pub(super) fn run(bench: &mut GatewayRun) -> Result<()> {
    for (bytes, targets) in PAYLOADS.into_iter().zip(TARGETS) {
        for (connections, target) in CONNECTIONS.into_iter().zip(targets) {
            let frame = Template::one(TOPIC, &payload(bytes));
            let rate = block_on(measure(bench, "publish", connections, bytes, &frame))?;
            let what = format!("publish {bytes} B, connections: {connections}, events/s");
            bench.goal(Goal::at_least(what, target, rate));
        }
    }
    Ok(())
}

pub(super) fn run_batch(bench: &mut GatewayRun) -> Result<()> {
    for bytes in PAYLOADS {
        let mut best: f64 = 0.0;
        for connections in CONNECTIONS {
            let frame = Template::batch(TOPIC, &payload(bytes), BATCH_EVENTS);
            best = best.max(block_on(measure(bench, "publish_batch", connections, bytes, &frame))?);
        }
        if Some(&bytes) == PAYLOADS.first() {
            let what =
                format!("publish {bytes} B in batches of {BATCH_EVENTS}, connections: 1 or 8, events/s");
            bench.goal(Goal::at_least(what, TARGET_BATCH, best));
        }
    }
    Ok(())
}

async fn measure(
    bench: &mut GatewayRun,
    name: &'static str,
    connections: usize,
    bytes: usize,
    frame: &Template,
) -> Result<f64> {
    // Large events take longer, so half of them are enough.
    let events = if bytes > 500 { bench.plan.events / 2 } else { bench.plan.events };
    let server = ServerProcess::start(bench, name).await?;
    let line = line(bench, name, &server).await?;
    let mut sockets = Vec::new();
    for _ in 0..connections {
        sockets.push(server.open().await?);
    }
    let (sockets, _) = publish(sockets, frame, events / WARM_UP, bench.plan.until()).await?;
    let meter = Meter::start(&server)?;
    let (sockets, confirmed) = publish(sockets, frame, events, bench.plan.until()).await?;
    let cost = meter.stop(&server, confirmed)?;
    drop(sockets);
    let line = line
        .with("payload_bytes", bytes)
        .with("connections", connections)
        .with("outstanding", OUTSTANDING)
        .with("events_per_frame", frame.events);
    with_cost(line, &cost, &server)?.print()?;
    Ok(cost.events_per_s())
}

/// Publishes `events` events over the sockets in even parts, or a few more to fill the last frames; returns
/// the sockets and how many events were confirmed in time.
pub(super) async fn publish(
    sockets: Vec<ClientSocket>,
    frame: &Template,
    events: u64,
    until: Instant,
) -> Result<(Vec<ClientSocket>, u64)> {
    let epoch = Epoch::start();
    let frames = events.div_ceil(frame.events).div_ceil(sockets.len() as u64);
    let window = PublishWindow { frames, outstanding: (OUTSTANDING / frame.events).max(1), until };
    let mut tasks = JoinSet::new();
    for mut socket in sockets {
        let frame = frame.clone();
        tasks.spawn(async move {
            let put = |out: &mut Vec<u8>, number| frame.put(out, epoch.stamp(), number);
            let confirmed = pump(&mut socket, window, put).await?;
            anyhow::Ok((socket, confirmed * frame.events))
        });
    }
    let (mut sockets, mut confirmed) = (Vec::new(), 0);
    while let Some(done) = tasks.join_next().await {
        let (socket, events) = done.context("a publisher panicked")??;
        sockets.push(socket);
        confirmed += events;
    }
    Ok((sockets, confirmed))
}

/// Publishes at least `events` events to a topic; returns how many.
pub(super) async fn fill(
    bench: &GatewayRun,
    server: &ServerProcess,
    topic: &str,
    bytes: usize,
    events: u64,
) -> Result<u64> {
    let frame = Template::batch(topic, &payload(bytes), BATCH_EVENTS);
    let sockets = vec![server.open().await?, server.open().await?];
    let (_, confirmed) = publish(sockets, &frame, events, bench.plan.until_loaded()).await?;
    ensure!(confirmed >= events, "only {confirmed} of {events} events were published in time");
    Ok(confirmed)
}
