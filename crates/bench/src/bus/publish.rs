//! Publishers of a bus, and their rate without consumers beside that of the log alone.

use std::sync::Arc;

use anyhow::{Context, Result};
use promethean_bus::Bus;
use promethean_bus::publish::Publish;
use promethean_model::TopicName;
use tokio::task::JoinSet;

use super::measured_bus::{BusCost, MeasuredBus};
use super::{BusRun, line};
use crate::load::{Load, key};
use crate::log::append::publish_in;

pub(super) fn run_baseline(bench: &mut BusRun) -> Result<()> {
    bench.baseline()?;
    Ok(())
}

/// Measures the append rate of the log without a bus, with the load of `bench log`.
pub(super) fn measure_baseline(bench: &mut BusRun) -> Result<f64> {
    let load = bench.load();
    let dir = bench.scratch.fresh("append")?;
    let published = publish_in(dir.path(), load, 1)?;
    let (elapsed, processor, syncs) = (published.elapsed, published.processor, published.syncs);
    let spent = BusCost { events: load.events, elapsed, processor, syncs };
    line("append", load, &spent).print()?;
    bench.known = Some(spent.events_per_s());
    Ok(spent.events_per_s())
}

pub(super) fn run(bench: &mut BusRun) -> Result<()> {
    let baseline = bench.baseline()?;
    for one_call in [true, false] {
        let load = Load { one_call, ..bench.load() };
        let dir = bench.scratch.fresh("publish")?;
        let local = MeasuredBus::open(dir.path())?;
        let topics = topics("publish", 1)?;
        local.run(async {
            publish(local.bus(), &topics, Load { events: load.events / 10, ..load }).await?;
            Ok(local.store().checkpoint().await?)
        })?;
        let ((), spent) = local.measure(load.events, publish(local.bus(), &topics, load))?;
        line("publish", load, &spent).figure("ratio_to_append", spent.events_per_s() / baseline).print()?;
        local.close();
    }
    Ok(())
}

/// The topics `bench.NAME.0` and up.
pub(super) fn topics(name: &str, count: usize) -> Result<Arc<[TopicName]>> {
    (0..count).map(|number| Ok(format!("bench.{name}.{number}").parse()?)).collect()
}

/// Publishes the load and waits until it is acknowledged. Without `one_call`, a publisher becomes as many
/// callers as it may have events outstanding, and each waits for one event.
pub(super) async fn publish(bus: &Bus, topics: &Arc<[TopicName]>, load: Load) -> Result<()> {
    let (publishers, per_call) = match load.one_call {
        true => (load.publishers, load.outstanding),
        false => (load.publishers * load.outstanding, 1),
    };
    let load = Load { publishers, outstanding: per_call, ..load };
    let mut tasks = JoinSet::new();
    for publisher in 0..publishers {
        tasks.spawn(run_publisher(bus.clone(), Arc::clone(topics), load, publisher));
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a publisher panicked")??;
    }
    Ok(())
}

async fn run_publisher(bus: Bus, topics: Arc<[TopicName]>, load: Load, publisher: usize) -> Result<()> {
    let payload = load.payload();
    let (mut left, mut number) = (load.share_of(publisher), publisher as u64);
    let mut make = || {
        let topic = topics.get((number % topics.len() as u64) as usize).context("no topics")?;
        let key = String::from_utf8(key(number % load.keys).to_vec())?;
        number += load.publishers as u64;
        anyhow::Ok(Publish::new(topic.clone(), payload.as_str()).key(key))
    };
    while left > 0 {
        let count = left.min(load.outstanding as u64);
        left -= count;
        if load.one_call {
            let events = (0..count).map(|_| make()).collect::<Result<Vec<_>>>()?;
            for published in bus.publish_each(events).await {
                published?;
            }
        } else {
            bus.publish(make()?).await?;
        }
    }
    Ok(())
}
