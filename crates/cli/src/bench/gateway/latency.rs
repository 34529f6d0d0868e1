//! How soon a subscriber has an event, at a steady rate.

use anyhow::Result;

use super::GatewayBench;
use super::deliver::Acks;
use super::fanout::{Fanout, measure};
use super::plan::PAYLOADS;
use crate::bench::summary::Goal;

const TARGET_P50_US: f64 = 300.0;
const TARGET_P99_US: f64 = 900.0;

pub(super) fn run(bench: &mut GatewayBench) -> Result<()> {
    let [payload_bytes, _] = PAYLOADS;
    let rate = bench.plan.rate;
    let one = Fanout { name: "latency", subscribers: 1, rate, acks: Acks::Each, payload_bytes };
    let (p50, p99) = measure(bench, one)?;
    bench.goal(Goal::at_most(format!("publish to delivered at {rate}/s, p50 us"), TARGET_P50_US, p50));
    bench.goal(Goal::at_most(format!("publish to delivered at {rate}/s, p99 us"), TARGET_P99_US, p99));
    Ok(())
}
