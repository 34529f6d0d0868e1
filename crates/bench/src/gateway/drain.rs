//! `drain`: a group consumes a backlog over one socket.

use anyhow::Result;

use super::meter::{Meter, line, with_cost};
use super::plan::{IN_FLIGHT, PAYLOADS};
use super::publish::fill;
use super::server_process::ServerProcess;
use super::subscriber::{AckManner, Subscriber};
use super::{GatewayRun, block_on};
use crate::run::Goal;

const TOPIC: &str = "bench.drain";
/// Events per second for each payload, acked one by one.
const TARGETS: [f64; 2] = [320_000.0, 240_000.0];
const TARGET_BATCHED: f64 = 700_000.0;

pub(super) fn run(bench: &mut GatewayRun) -> Result<()> {
    for (bytes, target) in PAYLOADS.into_iter().zip(TARGETS) {
        let [each, batched] = block_on(measure(bench, bytes))?;
        let what = format!("drain {bytes} B, acked one by one, events/s");
        bench.goal(Goal::at_least(what, target, each));
        if Some(&bytes) == PAYLOADS.first() {
            let what = format!("drain {bytes} B in batches, events/s");
            bench.goal(Goal::at_least(what, TARGET_BATCHED, batched));
        }
    }
    Ok(())
}

/// Events per second with one ack per event, and with one ack per batch.
async fn measure(bench: &mut GatewayRun, bytes: usize) -> Result<[f64; 2]> {
    let server = ServerProcess::start(bench, "drain").await?;
    let events = fill(bench, &server, TOPIC, bytes, bench.plan.backlog()).await?;
    let mut rates = [0.0; 2];
    for (acks, rate) in [AckManner::Each, AckManner::Batched].into_iter().zip(&mut rates) {
        let line = line(bench, "drain", &server).await?;
        let group = format!("bench-{}", acks.name());
        let mut subscriber = Subscriber::join(&server, TOPIC, &group, acks, bytes).await?;
        let meter = Meter::start(&server)?;
        subscriber.drain(events).await?;
        let cost = meter.stop(&server, events)?;
        let line = line.with("payload_bytes", bytes).with("acks", acks.name()).with("in_flight", IN_FLIGHT);
        with_cost(line, &cost, &server)?.print()?;
        *rate = cost.events_per_s();
    }
    Ok(rates)
}
