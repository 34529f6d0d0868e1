//! `promethean bench schema`: the cost of checking a payload against the schema of its topic, beside the same
//! publish without a schema and beside parsing alone.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use promethean_bus::publish::Publish;
use promethean_bus::schemas::RegisterOptions;
use promethean_bus::{Bus, BusOptions, Publisher};
use promethean_model::{Clock, SystemClock, TopicName};
use promethean_schema::SchemaText;
use promethean_store::memory::{MemoryOptions, MemoryStore};
use promethean_store::port::Store;
use serde_json::Value;

use crate::run::{self, Goal, measurement};
use crate::timing::{Samples, now, timed};

/// The flags of `bench schema`.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Events of each measurement
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(20..))]
    events: u64,
}

const SCHEMA: &str = include_str!("../../../examples/schemas/heartbeat.received/v1.json");
const PAYLOAD: &str = r#"{"pid":4242,"name":"worker-3","host":"node-17.example.com","cpu_pct":12.5,"mem_mb":512.25,"sid":"3f1c9d2e"}"#;
/// Rounds of a run. Each step is measured once per round, and the median is printed.
const ROUNDS: u64 = 20;
const BATCH_EVENTS: u64 = 100;
/// Goal for the cost of validation, in microseconds per event.
const VALIDATION_US_MAX: f64 = 3.0;

pub(crate) fn run(args: &SchemaArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.context("start a runtime")?.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock), MemoryOptions::default()));
        let bus = Bus::open(Arc::clone(&store), clock, BusOptions::default()).await?;
        let done = measure(&bus, (args.events / ROUNDS).max(1)).await;
        bus.close().await;
        store.close().await;
        done
    })
}

/// The samples of each step.
#[derive(Default)]
struct Costs {
    parse: Samples,
    validate: Samples,
    /// First without a schema, then with one; `publish` too.
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
        let start = now();
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

/// Runs everything that happens to an event before it is committed.
fn prepare(publisher: &Publisher, topic: &TopicName, events: u64) {
    for _ in 0..events {
        black_box(publisher.check(Publish::new(topic.clone(), black_box(PAYLOAD))));
    }
}

async fn publish(publisher: &Publisher, topic: &TopicName, events: u64) -> Result<Duration> {
    let start = now();
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
    run::summary(&goals, false).print()
}
