//! `single`: one publisher that waits for every acknowledgement.

use anyhow::Result;
use promethean_log::LogOptions;
use promethean_model::Durability;

use super::{LogRun, raw};
use crate::data_dir;
use crate::load::{self, EventMaker, Load};
use crate::run::Goal;
use crate::run::measurement;
use crate::timing::Samples;

const TARGET_RATIO: f64 = 1.5;
/// About the bytes that the frame of one event writes.
const RAW_BYTES: usize = 256;

pub(crate) fn run(bench: &mut LogRun) -> Result<()> {
    let dir = bench.scratch.fresh("single")?;
    let count = bench.plan.operations();
    let load = Load { publishers: 1, outstanding: 1, ..bench.load() };
    // Measured before and after, because the speed of a disk changes.
    let mut raw_sync = raw::sync_latency(dir.path(), RAW_BYTES, count / 2)?;
    let (log, _) = data_dir::open(dir.path(), LogOptions::default())?;
    let topics = load::topics(&log, "single", 1, load)?;
    let mut maker = EventMaker::new(&topics, load, 0)?;
    let mut samples = Samples::take(count, |_| {
        log.append(maker.batch(1)?, Durability::Fsync)?;
        Ok(())
    })?;
    raw_sync.append(raw::sync_latency(dir.path(), RAW_BYTES, count / 2)?);
    let ratio = samples.p50_us() / raw_sync.p50_us();
    measurement("single")
        .with("sync", load.durability.as_str())
        .with("event_bytes", load.event_bytes)
        .with("events", count)
        .figure("p50_us", samples.p50_us())
        .figure("p99_us", samples.p99_us())
        .figure("raw_fdatasync_p50_us", raw_sync.p50_us())
        .figure("raw_fdatasync_p99_us", raw_sync.p99_us())
        .figure("ratio_to_raw", ratio)
        .print()?;
    bench.goal(Goal::at_most("single append p50 to one fdatasync", TARGET_RATIO, ratio));
    Ok(())
}
