//! `travel`: the cost of reading the state of a key at a given time, as the topic grows.

use anyhow::Result;
use promethean_model::TopicName;
use promethean_projections::Declared;

use super::StateRun;
use super::filled_bus::FilledBus;
use crate::run::Goal;
use crate::run::measurement;
use crate::timing::{Samples, now};

/// Events of the key that is read.
const KEY_EVENTS: u64 = 100;
const ASKED: usize = 2_000;
/// Goal for the median, in microseconds.
const STATE_AT_US_MAX: f64 = 1_000.0;
/// Goal for the median in the largest topic, as a multiple of that in the smallest.
const GROWTH_MAX: f64 = 2.0;

pub(super) async fn run(run: &mut StateRun) -> Result<()> {
    let mut costs = Vec::new();
    for events in [run.plan.events / 100, run.plan.events / 10, run.plan.events] {
        let bus = FilledBus::open(run, "travel").await?;
        let topic: TopicName = "process.state".parse()?;
        let every = (events / KEY_EVENTS).max(1);
        let event = |n: u64| {
            let key = if n.is_multiple_of(every) { "watched".to_owned() } else { format!("k{}", n % 10_000) };
            (key, format!(r#"{{"n":{n},"status":"alive","host":"host-{}"}}"#, n % 20))
        };
        bus.fill(&topic, events, event).await?;
        let projections = bus.projections(Declared::default()).await?;
        let (first, last) = times(&bus, &topic, events).await?;
        let mut samples = Samples::default();
        for n in 0..ASKED + ASKED / 10 {
            let at = first + (last - first) * (n as i64 % 97) / 97;
            let start = now();
            projections.state_at(&topic, "watched", at).await?;
            // The first tenth only warms up.
            if n >= ASKED / 10 {
                samples.push(start.elapsed());
            }
        }
        let (p50, p99) = (samples.p50_us(), samples.p99_us());
        measurement("travel")
            .with("topic_events", events)
            .with("key_events", events.div_ceil(every))
            .figure("p50_us", p50)
            .figure("p99_us", p99)
            .print()?;
        costs.push(p50);
        projections.close().await;
        bus.close().await;
    }
    if let (Some(first), Some(last)) = (costs.first(), costs.last()) {
        run.goal(Goal::at_most("state_at us, p50", STATE_AT_US_MAX, *last));
        run.goal(Goal::at_most("state_at, largest topic to smallest", GROWTH_MAX, last / first));
    }
    Ok(())
}

/// The times of the first and the last event of a topic.
async fn times(bus: &FilledBus, topic: &TopicName, events: u64) -> Result<(i64, i64)> {
    let at = async |offset: u64| -> Result<i64> {
        let event = bus.local.bus.event_at(topic, offset.into()).await?;
        Ok(event.map_or(0, |event| event.ts))
    };
    Ok((at(0).await?, at(events - 1).await?))
}
