//! `topics`: many topics with a group each.

use anyhow::Result;
use promethean_bus::rows::StartPosition;
use promethean_model::GroupName;

use super::measured_bus::MeasuredBus;
use super::members::{consume_all, ensure_finished, subscribe_all};
use super::publish::{self, publish};
use super::{BusRun, line};
use crate::load::Load;
use crate::run::Goal;

const TARGET_RATIO: f64 = 2.0;

pub(super) fn run(bench: &mut BusRun) -> Result<()> {
    let mut one_topic = None;
    for topics in bench.plan.topics.clone() {
        let cost = measure(bench, topics, one_topic)?;
        match one_topic {
            Some(one) => {
                let what = format!("processor time per event, {topics} topics with a group each to 1");
                bench.goal(Goal::at_most(what, TARGET_RATIO, cost / one));
            }
            None if topics == 1 => one_topic = Some(cost),
            None => {}
        }
    }
    Ok(())
}

/// Processor time per event that is published, delivered and acked, in microseconds. Each topic has an event
/// before.
fn measure(bench: &BusRun, count: usize, one_topic: Option<f64>) -> Result<f64> {
    let load = bench.load();
    let each = (load.events / 2 / count as u64).max(1);
    let load = Load { events: each * count as u64, ..load };
    let dir = bench.scratch.fresh("topics")?;
    let local = MeasuredBus::open(dir.path())?;
    let topics = publish::topics("many", count)?;
    // Each group has its own name: creating a group reads all subjects of that name.
    let groups = (0..count).map(|number| Ok(format!("bench-{number}").parse()?));
    let groups = groups.collect::<Result<Vec<GroupName>>>()?;
    let wanted = || topics.iter().cloned().zip(groups.iter().cloned());
    let round = async |members, each: u64| {
        let load = Load { events: each * count as u64, ..load };
        let (published, members) =
            tokio::join!(publish(local.bus(), &topics, load), consume_all(members, each));
        published?;
        members
    };
    let members = local.run(async {
        let members =
            subscribe_all(local.bus(), wanted(), bench.plan.in_flight, StartPosition::Earliest).await?;
        let members = round(members, 1).await?;
        local.store().checkpoint().await?;
        Ok(members)
    })?;
    let (members, spent) = local.measure(load.events, round(members, each))?;
    local.run(async {
        for (topic, group) in wanted() {
            ensure_finished(local.store(), &group, &topic).await?;
        }
        Ok(())
    })?;
    drop(members);
    let cost = spent.processor_us_per_event();
    let line = line("topics", load, &spent).with("topics", count);
    match one_topic {
        Some(one) => line.figure("ratio_to_one_topic", cost / one).print()?,
        None => line.print()?,
    }
    local.close();
    Ok(cost)
}
