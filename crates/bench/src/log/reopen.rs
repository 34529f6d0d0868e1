//! `reopen`: opening a log whose process was killed while it published.

use anyhow::{Context, Result};
use promethean_log::{LogOptions, ReadLimit};

use super::LogRun;
use super::plan::REOPEN_EVENT_BYTES;
use crate::child::{self, ChildJob};
use crate::data_dir;
use crate::output::progress;
use crate::run::Goal;
use crate::run::measurement;
use crate::timing::timed;

const TARGET_S: f64 = 2.0;
const ONE: ReadLimit = ReadLimit { events: 1, bytes: 1 };

pub(crate) fn run(bench: &mut LogRun) -> Result<()> {
    let dir = bench.scratch.fresh("reopen")?;
    let events = (bench.plan.reopen_bytes / u64::from(REOPEN_EVENT_BYTES)).max(1);
    progress(&format!("reopen: {} MB", bench.plan.reopen_bytes / 1_000_000));
    let (event_bytes, keys) = (REOPEN_EVENT_BYTES as usize, bench.plan.keys);
    child::fill_and_kill(ChildJob { data: dir.path(), events, event_bytes, keys, topics: 1 })?;
    let (opened, took) = timed(|| -> Result<_> {
        let (log, report) = data_dir::open(dir.path(), LogOptions::default())?;
        let topic = log.topics().into_iter().next().context("the topic is missing")?;
        log.read(&topic, topic.end().saturating_sub(1), ONE)?;
        Ok((log, report, topic))
    });
    let (log, report, topic) = opened?;
    let (result, closed) = timed(|| log.close());
    result?;
    // The directory is unlocked when the last handle is dropped.
    drop(log);
    let (result, reopened) = timed(|| data_dir::open(dir.path(), LogOptions::default()));
    result?;
    measurement("reopen")
        .with("sync", "fsync")
        .with("after", "kill -9")
        .with("event_bytes", event_bytes)
        .with("events", topic.end())
        .figure("gb", topic.info().bytes as f64 / 1e9)
        .with("segments", topic.info().segments)
        .with("redone_events", report.events)
        .with("torn_bytes", report.torn_bytes)
        .figure("seconds_to_first_read", took.as_secs_f64())
        .figure("seconds_to_close", closed.as_secs_f64())
        .figure("seconds_to_open_after_close", reopened.as_secs_f64())
        .figure("ratio_to_target", took.as_secs_f64() / TARGET_S)
        .print()?;
    bench.goal(Goal::at_most("reopen after kill -9, seconds", TARGET_S, took.as_secs_f64()));
    Ok(())
}
