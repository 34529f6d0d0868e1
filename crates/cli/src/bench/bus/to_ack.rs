//! From the first publish to the last durable ack.

use anyhow::Result;
use promethean_model::{GroupName, TopicName};

use super::consume::{consume, ensure_finished, subscribe};
use super::publish::{publish, topics};
use super::server::Server;
use super::{BusBench, line};
use crate::bench::load::Load;
use crate::bench::summary::Goal;

const TARGET_RATIO: f64 = 0.5;

pub(super) fn run(bench: &mut BusBench) -> Result<()> {
    let baseline = bench.baseline()?;
    let (load, in_flight) = (bench.load(), bench.plan.in_flight);
    let dir = bench.scratch.fresh("to-ack")?;
    let server = Server::open(dir.path())?;
    let topics = topics("acked", 1)?;
    let (topic, group): (TopicName, GroupName) = ("bench.acked.0".parse()?, "bench".parse()?);
    let round = async |member, load: Load| {
        let (published, member) =
            tokio::join!(publish(&server.bus, &topics, load), consume(member, load.events));
        published?;
        member
    };
    let member = server.run(async {
        let member = subscribe(&server.bus, &topic, &group, in_flight).await?;
        let member = round(member, Load { events: load.events / 10, ..load }).await?;
        server.store.checkpoint().await?;
        Ok(member)
    })?;
    let (member, spent) = server.measure(load.events, round(member, load))?;
    server.run(ensure_finished(&*server.store, &group, &topic))?;
    drop(member);
    let ratio = spent.events_per_s() / baseline;
    line("publish_to_ack", load, &spent)
        .with("in_flight", in_flight)
        .figure("ratio_to_append", ratio)
        .print()?;
    bench.goal(Goal::at_least("publish to durable ack, to append", TARGET_RATIO, ratio));
    server.close();
    Ok(())
}
