//! `compact`: time and memory to write the latest state of many keys.

use std::time::Duration;

use anyhow::{Context, Result};
use promethean_model::TopicName;
use promethean_projections::CompactorOptions;
use promethean_projections::compactor::Compactor;

use super::StateRun;
use super::filled_bus::FilledBus;
use crate::run::Goal;
use crate::run::measurement;
use crate::timing::now;

/// Goal for the memory that compaction adds, in bytes.
const MEMORY_MAX: f64 = 128.0 * 1024.0 * 1024.0;

pub(super) async fn run(run: &mut StateRun) -> Result<()> {
    let bus = FilledBus::open(run, "compact").await?;
    let topic: TopicName = "process.state".parse()?;
    let keys = run.plan.events;
    bus.fill(&topic, keys, |n| (format!("key-{n}"), format!(r#"{{"n":{n},"status":"alive"}}"#))).await?;
    let options = CompactorOptions { every: Duration::from_secs(3600), ..CompactorOptions::new(topic) };
    let mut compactor =
        Compactor::open(&bus.local.bus, bus.local.store.clone(), bus.local.clock.clone(), options).await?;
    let before = resident()?;
    let start = now();
    let round = compactor.run_round().await?;
    let took = start.elapsed();
    let first = resident()?.saturating_sub(before);
    measurement("compact")
        .with("keys", keys)
        .with("published", round.published)
        .figure("s", took.as_secs_f64())
        .figure("keys_per_s", keys as f64 / took.as_secs_f64())
        .with("resident_bytes_added", first)
        .print()?;
    run.goal(Goal::at_most("bytes added by compacting", MEMORY_MAX, first as f64));
    drop(compactor);
    bus.close().await;
    Ok(())
}

fn resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").context("read how much memory is used")?;
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).context("statm")?;
    Ok(pages * rustix::param::page_size() as u64)
}
