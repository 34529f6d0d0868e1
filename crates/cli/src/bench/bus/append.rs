//! What the log does without a bus over it.

use anyhow::Result;

use super::server::Spent;
use super::{BusBench, line};
use crate::bench::append::publish_in;

pub(super) fn run(bench: &mut BusBench) -> Result<()> {
    bench.baseline()?;
    Ok(())
}

/// The same load as `bench log` has.
pub(super) fn measure(bench: &mut BusBench) -> Result<f64> {
    let load = bench.load();
    let dir = bench.scratch.fresh("append")?;
    let published = publish_in(dir.path(), load, 1)?;
    let (elapsed, processor, syncs) = (published.elapsed, published.processor, published.syncs);
    let spent = Spent { events: load.events, elapsed, processor, syncs };
    line("append", load, &spent).print()?;
    bench.known = Some(spent.events_per_s());
    Ok(spent.events_per_s())
}
