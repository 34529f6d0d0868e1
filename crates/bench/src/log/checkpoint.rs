//! `checkpoint`: its duration with one dirty topic and with many.

use anyhow::Result;
use promethean_log::LogOptions;

use super::LogRun;
use crate::data_dir;
use crate::load::{self, EventMaker, Load};
use crate::run::measurement;
use crate::timing::Samples;

const DIRTY_TOPICS: [usize; 2] = [1, 10_000];
const ROUNDS: usize = 3;
const BATCH_EVENTS: usize = 500;

pub(crate) fn run(bench: &mut LogRun) -> Result<()> {
    for topics in DIRTY_TOPICS {
        measure(bench, topics.min(bench.plan.events as usize))?;
    }
    Ok(())
}

/// Publishes the same number of events for every number of topics, so that only the topics differ.
fn measure(bench: &LogRun, topics: usize) -> Result<()> {
    let dir = bench.scratch.fresh("checkpoint")?;
    let (log, _) = data_dir::open(dir.path(), LogOptions::default())?;
    let load = Load { publishers: 1, ..bench.load() };
    let all = load::topics(&log, "checkpoint", topics, load)?;
    log.checkpoint()?;
    let mut maker = EventMaker::new(&all, load, 0)?;
    let most = DIRTY_TOPICS.iter().max().copied().unwrap_or(1);
    let events = most.min(bench.plan.events as usize);
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        let mut left = events;
        while left > 0 {
            let count = left.min(BATCH_EVENTS);
            log.append(maker.batch(count)?, load.durability)?;
            left -= count;
        }
        samples.append(Samples::take(1, |_| Ok(log.checkpoint()?))?);
    }
    measurement("checkpoint")
        .with("sync", "fsync")
        .with("dirty_topics", topics)
        .with("events", events)
        .with("event_bytes", load.event_bytes)
        .figure("p50_ms", samples.p50_us() / 1e3)
        .figure("max_ms", samples.percentile_us(100) / 1e3)
        .print()
}
