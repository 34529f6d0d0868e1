//! `memory`: resident memory of a process that holds only a log.

use anyhow::Result;
use serde_json::Value;

use super::LogRun;
use crate::child::{self, ChildJob};
use crate::output::progress;
use crate::run::Goal;
use crate::run::measurement;

const TARGET_MB: f64 = 200.0;
const MANY_TOPICS: usize = 10_000;

pub(crate) fn run(bench: &mut LogRun) -> Result<()> {
    let (events, keys) = (bench.plan.events, bench.plan.keys);
    let peak = measure(bench, events, keys, 1)?;
    bench.goal(Goal::at_most("resident MB, all events", TARGET_MB, peak));
    let many = MANY_TOPICS.min(events as usize);
    measure(bench, events / 10, keys, many)?;
    Ok(())
}

/// Measures one load; returns the peak in megabytes.
fn measure(bench: &LogRun, events: u64, keys: u64, topics: usize) -> Result<f64> {
    progress(&format!("memory: {events} events, {topics} topics"));
    let dir = bench.scratch.fresh("memory")?;
    let event_bytes = bench.plan.event_bytes;
    let (busy, rest) =
        child::load_and_report(ChildJob { data: dir.path(), events, event_bytes, keys, topics })?;
    let field = |from: &Value, name: &str| from.get(name).cloned().unwrap_or(Value::Null);
    let peak = rest.get("peak_mb").and_then(Value::as_f64).unwrap_or(f64::NAN);
    measurement("memory")
        .with("sync", "fsync")
        .with("events", events)
        .with("keys", keys.min(events))
        .with("topics", topics)
        .with("event_bytes", event_bytes)
        .with("rss_mb", field(&busy, "rss_mb"))
        .with("anon_mb", field(&busy, "anon_mb"))
        .with("rss_at_rest_mb", field(&rest, "rss_mb"))
        .with("anon_at_rest_mb", field(&rest, "anon_mb"))
        .with("peak_mb", field(&rest, "peak_mb"))
        .with("open_files", field(&busy, "open_files"))
        .figure("ratio_to_target", peak / TARGET_MB)
        .print()?;
    Ok(peak)
}
