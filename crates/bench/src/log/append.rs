//! `append`: durable appends by many publishers, to one topic and to many.

use std::path::Path;

use anyhow::Result;
use promethean_log::LogOptions;
use promethean_model::Durability;

use super::publishers::{AppendCost, publish};
use super::{LogRun, raw};
use crate::data_dir;
use crate::load::{self, Load};
use crate::output::progress;
use crate::run::Goal;
use crate::run::measurement;
use crate::scratch::FreshDir;

const TARGET_EVENTS_PER_S: f64 = 700_000.0;
const BATCHED_EVENTS: usize = 16;

pub(crate) fn run(bench: &mut LogRun) -> Result<()> {
    // Removed at the end: file systems are slow to create files where many were just removed.
    let mut dirs = Vec::new();
    let base = Load { one_call: true, ..bench.load() };
    let mut one_topic = None;
    for topics in bench.plan.topics.clone() {
        let rate = measure(bench, &mut dirs, base, topics, one_topic)?;
        if topics == 1 {
            one_topic = Some(rate);
        }
        judge(bench, topics, rate, one_topic);
    }
    if one_topic.is_none() {
        return Ok(());
    }
    measure(bench, &mut dirs, Load { one_call: false, ..base }, 1, None)?;
    measure(bench, &mut dirs, Load { one_call: false, batch_events: BATCHED_EVENTS, ..base }, 1, None)?;
    measure(bench, &mut dirs, Load { durability: Durability::Os, ..base }, 1, None)?;
    measure(bench, &mut dirs, Load { given_ids: true, ..base }, 1, None)?;
    Ok(())
}

fn measure(
    bench: &LogRun,
    dirs: &mut Vec<FreshDir>,
    load: Load,
    topics: usize,
    one_topic: Option<f64>,
) -> Result<f64> {
    progress(&format!("append: {} events, {topics} topics", load.events));
    let dir = bench.scratch.fresh(&format!("append-{}", dirs.len()))?;
    let mut raw_sync = raw::sync_latency(dir.path(), 64 * 1024, 100)?;
    let mut published = publish_in(dir.path(), load, topics)?;
    dirs.push(dir);
    let rate = published.events_per_s();
    let line = measurement("append")
        .with("sync", load.durability.as_str())
        .with("topics", topics)
        .with("publishers", load.publishers)
        .with("outstanding", load.outstanding)
        .with("one_call", load.one_call)
        .with("batch_events", load.batch_events)
        .with("event_bytes", load.event_bytes)
        .with("keys", load.keys)
        .with("ids", if load.given_ids { "given" } else { "minted" })
        .with("events", load.events)
        .figure("seconds", published.elapsed.as_secs_f64())
        .figure("events_per_s", rate)
        .figure("mb_per_s", rate * load.event_bytes as f64 / 1e6)
        .with("syncs", published.syncs)
        .figure("events_per_sync", load.events as f64 / published.syncs.max(1) as f64)
        .figure("processor_us_per_event", published.processor.as_secs_f64() * 1e6 / load.events as f64)
        .figure("ack_p50_us", published.latency.p50_us())
        .figure("ack_p99_us", published.latency.p99_us())
        .figure("raw_fdatasync_p50_us", raw_sync.p50_us())
        .figure("ratio_to_target", rate / TARGET_EVENTS_PER_S);
    match one_topic {
        Some(one) => line.figure("ratio_to_one_topic", rate / one).print()?,
        None => line.print()?,
    }
    Ok(rate)
}

/// Publishes a tenth of the load untimed, which creates journal files and the first segment of each topic,
/// then the load.
pub(crate) fn publish_in(dir: &Path, load: Load, topics: usize) -> Result<AppendCost> {
    let (log, _) = data_dir::open(dir, LogOptions::default())?;
    let topics = load::topics(&log, "append", topics, load)?;
    publish(&log, &topics, Load { events: load.events / 10, ..load })?;
    log.checkpoint()?;
    publish(&log, &topics, load)
}

fn judge(bench: &mut LogRun, topics: usize, rate: f64, one_topic: Option<f64>) {
    if topics == 1 {
        bench.goal(Goal::at_least("append events/s, 1 topic", TARGET_EVENTS_PER_S, rate));
        return;
    }
    let Some(one) = one_topic else { return };
    let least = if topics <= 1_000 { 0.8 } else { 0.5 };
    bench.goal(Goal::at_least(format!("append, {topics} topics to 1"), least, rate / one));
}
