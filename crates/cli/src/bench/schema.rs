//! `bench schema`: what it costs to hold a payload against its topic's schema, beside what the same publish costs without
//! one and beside parsing alone, in one run.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use promethean_bus::publish::Publish;
use promethean_bus::schemas::RegisterOptions;
use promethean_bus::{Bus, BusOptions, Publisher};
use promethean_model::{Clock, SystemClock, TopicName};
use promethean_schema::SchemaText;
use promethean_store::memory::{MemoryStore, Options};
use promethean_store::port::Store;
use serde_json::Value;

use super::measurement;
use super::summary::{self, Goal};
use super::timing::{Samples, timed};
use crate::args::SchemaBenchArgs;

const SCHEMA: &str = include_str!("../../../../examples/schemas/heartbeat.received/v1.json");
const PAYLOAD: &str = r#"{"pid":4242,"name":"worker-3","host":"node-17.example.com","cpu_pct":12.5,"mem_mb":512.25,"sid":"3f1c9d2e"}"#;
/// Parts of a run. Everything is measured once in each, and the median counts.
const ROUNDS: u64 = 20;
const BATCH_EVENTS: u64 = 100;
/// What validation may cost, in microseconds per event.
const VALIDATION_US_MAX: f64 = 3.0;

pub(super) fn run(args: &SchemaBenchArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.context("start a runtime")?.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock), Options::default()));
        let bus = Bus::open(Arc::clone(&store), clock, BusOptions::default()).await?;
        let done = measure(&bus, (args.events / ROUNDS).max(1)).await;
        bus.close().await;
        store.close().await;
        done
    })
}

/// What is measured, by name.
#[derive(Default)]
struct Costs {
    parse: Samples,
    validate: Samples,
    /// Each without a schema and with one.
    prepare: [Samples; 2],
    publish: [Samples; 2],
}

async fn measure(bus: &Bus, events: u64) -> Result<()> {
    let topics: [TopicName; 2] = ["bench.plain".parse()?, "bench.schema".parse()?];
    let [_, with_schema] = &topics;
    bus.register_schema(with_schema, SchemaText::parse(SCHEMA)?, RegisterOptions::default()).await?;
    let publisher = bus.publisher(None);
    let mut costs = Costs::default();
    for _ in 0..ROUNDS {
        let (parsed, took) = timed(|| parse(events));
        parsed?;
        costs.parse.push(took);
        let start = super::timing::now();
        for _ in 0..events {
            black_box(bus.validate(with_schema, black_box(PAYLOAD), None).await?);
        }
        costs.validate.push(start.elapsed());
        for (topic, samples) in topics.iter().zip(&mut costs.prepare) {
            samples.push(timed(|| prepare(&publisher, topic, events)).1);
        }
        for (topic, samples) in topics.iter().zip(&mut costs.publish) {
            samples.push(publish(&publisher, topic, events).await?);
        }
    }
    report(costs, events)
}

fn parse(events: u64) -> Result<()> {
    for _ in 0..events {
        black_box(serde_json::from_str::<Value>(black_box(PAYLOAD))?);
    }
    Ok(())
}

/// All that is done with an event before it is committed.
fn prepare(publisher: &Publisher, topic: &TopicName, events: u64) {
    for _ in 0..events {
        black_box(publisher.check(Publish::new(topic.clone(), black_box(PAYLOAD))));
    }
}

async fn publish(publisher: &Publisher, topic: &TopicName, events: u64) -> Result<Duration> {
    let start = super::timing::now();
    let mut left = events;
    while left > 0 {
        let count = left.min(BATCH_EVENTS);
        let batch = (0..count).map(|_| Publish::new(topic.clone(), PAYLOAD)).collect();
        publisher.commit_batch(batch).await?;
        left -= count;
    }
    Ok(start.elapsed())
}

fn report(costs: Costs, events: u64) -> Result<()> {
    let us = |mut samples: Samples| samples.p50_us() / events as f64;
    let line = |step: &'static str| {
        measurement("schema").with("step", step).with("events", events * ROUNDS).with("bytes", PAYLOAD.len())
    };
    let parse = us(costs.parse);
    line("parse").figure("us", parse).print()?;
    let validate = us(costs.validate);
    line("validate").figure("us", validate).figure("times_parse", validate / parse).print()?;
    let mut added = Vec::new();
    for (step, [without, with]) in [("prepare", costs.prepare), ("publish", costs.publish)] {
        let (without, with) = (us(without), us(with));
        let line = line(step).figure("us_without", without).figure("us_with", with);
        line.figure("us_added", with - without).print()?;
        added.push((step, with - without));
    }
    let goals: Vec<Goal> = added
        .into_iter()
        .map(|(step, us)| Goal::at_most(format!("schema us per event, {step}"), VALIDATION_US_MAX, us))
        .collect();
    summary::line(&goals, false).print()
}
