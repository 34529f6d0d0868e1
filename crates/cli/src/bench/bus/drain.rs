//! A group works off what was published before.

use anyhow::Result;
use promethean_model::{GroupName, TopicName};

use super::consume::{consume, ensure_finished, subscribe};
use super::publish::{publish, topics};
use super::server::Server;
use super::{BusBench, line};

pub(super) fn run(bench: &mut BusBench) -> Result<()> {
    let baseline = bench.baseline()?;
    let (load, in_flight) = (bench.load(), bench.plan.in_flight);
    let dir = bench.scratch.fresh("drain")?;
    let server = Server::open(dir.path())?;
    let topics = topics("drained", 1)?;
    let (topic, group): (TopicName, GroupName) = ("bench.drained.0".parse()?, "bench".parse()?);
    let member = server.run(async {
        publish(&server.bus, &topics, load).await?;
        server.store.checkpoint().await?;
        subscribe(&server.bus, &topic, &group, in_flight).await
    })?;
    let (member, spent) = server.measure(load.events, consume(member, load.events))?;
    server.run(ensure_finished(&*server.store, &group, &topic))?;
    drop(member);
    line("drain", load, &spent)
        .with("in_flight", in_flight)
        .figure("ratio_to_append", spent.events_per_s() / baseline)
        .print()?;
    server.close();
    Ok(())
}
