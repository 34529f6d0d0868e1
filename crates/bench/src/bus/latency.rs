//! `latency`: time from publish to delivery at a steady rate.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use promethean_bus::publish::Publish;
use promethean_bus::{Bus, Subscription, SubscriptionItem};
use promethean_model::{GroupName, IgnorePoison, TopicName};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::BusRun;
use super::measured_bus::MeasuredBus;
use super::members::subscribe;
use crate::load::Load;
use crate::run::Goal;
use crate::timing::{Samples, now};
use crate::{log::raw, run::measurement};

const TARGET_P50_US: f64 = 300.0;
const TARGET_P99_US: f64 = 900.0;
const TICKS_PER_S: u64 = 1_000;

/// The time each event was published; the key of an event is its index here.
type Sent = Arc<Mutex<Vec<Instant>>>;

pub(super) fn run(bench: &mut BusRun) -> Result<()> {
    let load = bench.load();
    let (rate, ticks) = (bench.plan.rate, bench.plan.watch_seconds() * TICKS_PER_S);
    let dir = bench.scratch.fresh("latency")?;
    let mut raw_sync = raw::sync_latency(dir.path(), 1024, 300)?;
    let local = MeasuredBus::open(dir.path())?;
    let (topic, group): (TopicName, GroupName) = ("bench.latency".parse()?, "bench".parse()?);
    let per_tick = (rate / TICKS_PER_S).max(1);
    let round = async |member, ticks: u64| {
        let sent = Sent::default();
        let (published, consumed) = tokio::join!(
            publish_at(local.bus(), &topic, load, &sent, per_tick, ticks),
            consume(member, &sent, per_tick * ticks)
        );
        published?;
        consumed
    };
    let member = local.run(async {
        let member = subscribe(local.bus(), &topic, &group, bench.plan.in_flight).await?;
        Ok(round(member, ticks / 10).await?.0)
    })?;
    let events = per_tick * ticks;
    let ((member, mut samples), spent) = local.measure(events, round(member, ticks))?;
    drop(member);
    let (p50, p99) = (samples.p50_us(), samples.p99_us());
    measurement("latency")
        .with("sync", load.durability.as_str())
        .with("event_bytes", load.event_bytes)
        .with("events", events)
        .figure("events_per_s", spent.events_per_s())
        .figure("p50_us", p50)
        .figure("p99_us", p99)
        .figure("processor_us_per_event", spent.processor_us_per_event())
        .figure("raw_fdatasync_p50_us", raw_sync.p50_us())
        .print()?;
    bench.goal(Goal::at_most(format!("publish to delivered at {rate}/s, p50 us"), TARGET_P50_US, p50));
    bench.goal(Goal::at_most(format!("publish to delivered at {rate}/s, p99 us"), TARGET_P99_US, p99));
    local.close();
    Ok(())
}

/// Publishes events every millisecond, each in a call of its own, without waiting for earlier ones.
async fn publish_at(
    bus: &Bus,
    topic: &TopicName,
    load: Load,
    sent: &Sent,
    per_tick: u64,
    ticks: u64,
) -> Result<()> {
    let payload: Arc<str> = load.payload().into();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / TICKS_PER_S as u32);
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    for _ in 0..ticks {
        clock.tick().await;
        for _ in 0..per_tick {
            let (bus, topic, payload, sent) =
                (bus.clone(), topic.clone(), Arc::clone(&payload), Arc::clone(sent));
            calls.spawn(async move {
                let number = {
                    let mut sent = sent.lock().ignore_poison();
                    sent.push(now());
                    sent.len() - 1
                };
                bus.publish(Publish::new(topic, &*payload).key(number.to_string())).await
            });
        }
        while let Some(done) = calls.try_join_next() {
            done.context("a publisher panicked")??;
        }
    }
    while let Some(done) = calls.join_next().await {
        done.context("a publisher panicked")??;
    }
    Ok(())
}

async fn consume(mut member: Subscription, sent: &Sent, events: u64) -> Result<(Subscription, Samples)> {
    let (mut left, mut samples) = (events, Samples::default());
    while left > 0 {
        let SubscriptionItem::Leases(leases) = member.next(usize::MAX).await? else { continue };
        let delivered = now();
        left = left.saturating_sub(leases.len() as u64);
        {
            let sent = sent.lock().ignore_poison();
            for lease in &leases {
                let number: usize = lease.event.key().context("no key")?.parse()?;
                samples.push(delivered - *sent.get(number).context("an unknown event")?);
            }
        }
        member.ack_soon(&leases).await?;
    }
    Ok((member, samples))
}
