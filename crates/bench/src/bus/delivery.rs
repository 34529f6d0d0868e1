//! One group that takes all events of one topic: published meanwhile, and published before.

use anyhow::Result;
use promethean_model::{GroupName, TopicName};

use super::measured_bus::MeasuredBus;
use super::members::{consume, ensure_finished, subscribe};
use super::publish::{publish, topics};
use super::{BusRun, line};
use crate::load::Load;
use crate::run::Goal;

/// Least rate of publish to durable ack, as a part of the log's append rate.
const TO_ACK_RATIO_MIN: f64 = 0.5;

/// Measures from the first publish to the last durable ack.
pub(super) fn run_to_ack(bench: &mut BusRun) -> Result<()> {
    let baseline = bench.baseline()?;
    let (load, in_flight) = (bench.load(), bench.plan.in_flight);
    let dir = bench.scratch.fresh("to-ack")?;
    let local = MeasuredBus::open(dir.path())?;
    let topics = topics("acked", 1)?;
    let (topic, group): (TopicName, GroupName) = ("bench.acked.0".parse()?, "bench".parse()?);
    let round = async |member, load: Load| {
        let (published, member) =
            tokio::join!(publish(local.bus(), &topics, load), consume(member, load.events));
        published?;
        member
    };
    let member = local.run(async {
        let member = subscribe(local.bus(), &topic, &group, in_flight).await?;
        let member = round(member, Load { events: load.events / 10, ..load }).await?;
        local.store().checkpoint().await?;
        Ok(member)
    })?;
    let (member, spent) = local.measure(load.events, round(member, load))?;
    local.run(ensure_finished(local.store(), &group, &topic))?;
    drop(member);
    let ratio = spent.events_per_s() / baseline;
    line("publish_to_ack", load, &spent)
        .with("in_flight", in_flight)
        .figure("ratio_to_append", ratio)
        .print()?;
    bench.goal(Goal::at_least("publish to durable ack, to append", TO_ACK_RATIO_MIN, ratio));
    local.close();
    Ok(())
}

/// Measures how fast a group takes events that were published before.
pub(super) fn run_drain(bench: &mut BusRun) -> Result<()> {
    let baseline = bench.baseline()?;
    let (load, in_flight) = (bench.load(), bench.plan.in_flight);
    let dir = bench.scratch.fresh("drain")?;
    let local = MeasuredBus::open(dir.path())?;
    let topics = topics("drained", 1)?;
    let (topic, group): (TopicName, GroupName) = ("bench.drained.0".parse()?, "bench".parse()?);
    let member = local.run(async {
        publish(local.bus(), &topics, load).await?;
        local.store().checkpoint().await?;
        subscribe(local.bus(), &topic, &group, in_flight).await
    })?;
    let (member, spent) = local.measure(load.events, consume(member, load.events))?;
    local.run(ensure_finished(local.store(), &group, &topic))?;
    drop(member);
    line("drain", load, &spent)
        .with("in_flight", in_flight)
        .figure("ratio_to_append", spent.events_per_s() / baseline)
        .print()?;
    local.close();
    Ok(())
}
