//! `idle`: groups without work, in a process that does nothing else.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use promethean_bus::rows::StartPosition;
use promethean_model::TopicName;
use serde_json::Value;

use super::BusRun;
use super::measured_bus::MeasuredBus;
use super::members::subscribe_all;
use super::publish::{publish, topics};
use crate::child::{self, ChildJob, ChildTask, status_kib};
use crate::load::Load;
use crate::output::JsonLine;
use crate::run::Goal;
use crate::run::measurement;

const TARGET_BYTES: f64 = 4096.0;
/// Percent of one core.
const TARGET_PERCENT: f64 = 1.0;
const IN_FLIGHT: usize = 1_000;

pub(super) fn run(bench: &mut BusRun) -> Result<()> {
    let dir = bench.scratch.fresh("idle")?;
    let groups = bench.plan.idle_groups;
    // For this task, `events` is the number of seconds.
    let events = bench.plan.watch_seconds();
    let (event_bytes, keys) = (bench.plan.event_bytes, 1);
    let job = ChildJob { data: dir.path(), events, event_bytes, keys, topics: groups };
    let lines = child::lines_of(ChildTask::Idle, job)?;
    let said: Value = serde_json::from_str(lines.first().context("the child process printed nothing")?)?;
    let figure = |name: &str| said.get(name).and_then(Value::as_f64).with_context(|| name.to_owned());
    let (bytes, percent) = (figure("bytes_per_group")?, figure("processor_percent")?);
    measurement("idle")
        .with("sync", "fsync")
        .with("groups", groups)
        .figure("rss_mb", figure("rss_mb")?)
        .figure("bytes_per_group", bytes)
        .figure("seconds", figure("seconds")?)
        .figure("processor_percent", percent)
        .print()?;
    bench.goal(Goal::at_most("resident bytes per idle group", TARGET_BYTES, bytes));
    bench.goal(Goal::at_most("processor time of idle groups, % of a core", TARGET_PERCENT, percent));
    Ok(())
}

/// The work of the child process: joins `groups` groups, waits, and prints what that cost.
pub(crate) fn idle_child(data: &Path, groups: usize, seconds: u64) -> Result<()> {
    let local = MeasuredBus::open(data)?;
    let topic: TopicName = "bench.idle.0".parse()?;
    let load = Load::small(1);
    let topics = topics("idle", 1)?;
    // The first subscription starts threads and fills caches, which must not be counted for the groups.
    let join = async |from: usize, to: usize| {
        let names = (from..to).map(|number| Ok(format!("bench-{number}").parse()?));
        let names = names.collect::<Result<Vec<_>>>()?;
        let wanted = names.into_iter().map(|group| (topic.clone(), group));
        subscribe_all(local.bus(), wanted, IN_FLIGHT, StartPosition::Latest).await
    };
    let first = local.run(async {
        publish(local.bus(), &topics, load).await?;
        let first = join(0, 1).await?;
        local.store().checkpoint().await?;
        Ok(first)
    })?;
    let before = status_kib("VmRSS")?;
    let members = local.run(async {
        let members = join(1, groups + 1).await?;
        local.store().checkpoint().await?;
        Ok(members)
    })?;
    let after = status_kib("VmRSS")?;
    let ((), spent) = local.measure(0, async {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        for _ in 0..=seconds {
            second.tick().await;
        }
        Ok(())
    })?;
    let said = JsonLine::new()
        .figure("rss_mb", after as f64 * 1.024e-3)
        .figure("bytes_per_group", after.saturating_sub(before) as f64 * 1024.0 / groups as f64)
        .figure("seconds", spent.elapsed.as_secs_f64())
        .figure("processor_percent", 100.0 * spent.processor.as_secs_f64() / spent.elapsed.as_secs_f64())
        .print();
    drop((first, members));
    local.close();
    said
}
