//! `groups`: one topic, delivered to many groups.

use anyhow::Result;
use promethean_bus::rows::StartPosition;
use promethean_model::{GroupName, TopicName};

use super::measured_bus::MeasuredBus;
use super::members::{consume_all, ensure_finished, subscribe_all};
use super::publish::{publish, topics};
use super::{BusRun, line};
use crate::load::Load;
use crate::run::Goal;

const TARGET_RATIO: f64 = 2.0;
/// Few publishers, so that groups get events in many small pieces, as they do in practice.
const PUBLISHERS: usize = 4;
/// Least number of events, for any number of groups.
const EVENTS_MIN: u64 = 500;

pub(super) fn run(bench: &mut BusRun) -> Result<()> {
    let mut one_group = None;
    for groups in bench.plan.groups.clone() {
        let cost = measure(bench, groups, one_group)?;
        match one_group {
            Some(one) => {
                let what = format!("processor time per delivery, {groups} groups to 1");
                bench.goal(Goal::at_most(what, TARGET_RATIO, cost / one));
            }
            None if groups == 1 => one_group = Some(cost),
            None => {}
        }
    }
    Ok(())
}

/// Processor time per delivery, in microseconds.
fn measure(bench: &BusRun, groups: usize, one_group: Option<f64>) -> Result<f64> {
    let events = (bench.plan.events / groups as u64).max(EVENTS_MIN);
    let load = Load { publishers: PUBLISHERS, events, ..bench.load() };
    let dir = bench.scratch.fresh("groups")?;
    let local = MeasuredBus::open(dir.path())?;
    let topics = topics("shared", 1)?;
    let topic: TopicName = "bench.shared.0".parse()?;
    let names = (0..groups).map(|number| Ok(format!("bench-{number}").parse()?));
    let names = names.collect::<Result<Vec<GroupName>>>()?;
    let wanted = names.iter().map(|group| (topic.clone(), group.clone()));
    let members =
        local.run(subscribe_all(local.bus(), wanted, bench.plan.in_flight, StartPosition::Earliest))?;
    let (members, spent) = local.measure(events * groups as u64, async {
        let (published, members) =
            tokio::join!(publish(local.bus(), &topics, load), consume_all(members, events));
        published?;
        members
    })?;
    local.run(async {
        for group in &names {
            ensure_finished(local.store(), group, &topic).await?;
        }
        Ok(())
    })?;
    drop(members);
    let cost = spent.processor_us_per_event();
    let line = line("groups", load, &spent).with("groups", groups).with("published", events);
    match one_group {
        Some(one) => line.figure("ratio_to_one_group", cost / one).print()?,
        None => line.print()?,
    }
    local.close();
    Ok(cost)
}
