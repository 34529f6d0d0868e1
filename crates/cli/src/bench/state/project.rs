//! How fast a projector is that writes two documents for each event, in Rust and as jq.

use std::time::Duration;

use anyhow::{Result, anyhow};
use promethean_jq::Program;
use promethean_model::{CollectionName, Event, Offset, TopicName};
use promethean_projections::{Change, CollectionDeclared, Declared, Logic, Projector};
use promethean_store::port::PageLimit;
use serde_json::Value;

use super::{Bench, Ground, measurement};
use crate::bench::summary::Goal;
use crate::bench::timing::now;

const PROCESSES: u64 = 1_000;
const HOSTS: u64 = 20;
const RUST_MIN: f64 = 50_000.0;
const JQ_MIN: f64 = 15_000.0;

const PROGRAM: &str = r#"
    {upsert: {collection: "processes", key: .payload.processId, set: .payload}},
    {upsert: {collection: "host_stats", key: .payload.host, inc: {seen: 1}, set: {last_ts: .ts}}}
"#;

pub(super) async fn run(bench: &mut Bench) -> Result<()> {
    for (name, events, goal) in [("rust", bench.events, RUST_MIN), ("jq", bench.events / 2, JQ_MIN)] {
        let ground = Ground::new(bench, "project").await?;
        let topic: TopicName = "process.state".parse()?;
        ground.fill(&topic, events, state).await?;
        let read = read_rate(&ground, &topic).await?;
        let logic = match name {
            "rust" => rust()?,
            _ => Logic::Jq(Program::compile(PROGRAM).map_err(|error| anyhow!("{error}"))?),
        };
        let rate = projected(&ground, logic, events).await?;
        measurement("project")
            .with("logic", name)
            .with("events", events)
            .with("upserts_per_event", 2)
            .figure("events_per_s", rate)
            .figure("read_events_per_s", read)
            .figure("part_of_read", rate / read)
            .print()?;
        bench.goals.push(Goal::at_least(format!("projected events/s, {name}"), goal, rate));
        ground.close().await;
    }
    Ok(())
}

fn state(n: u64) -> (String, String) {
    let (pid, host) = (n % PROCESSES, n % HOSTS);
    let key = format!("host-{host}:worker:{pid}");
    let payload = format!(
        r#"{{"processId":"{key}","name":"worker","host":"host-{host}","pid":{pid},"cpu_pct":{}.5,"mem_mb":{},"last_seen_ts":{},"status":"alive"}}"#,
        n % 100,
        n % 4096,
        1_800_000_000_000 + n
    );
    (key, payload)
}

fn rust() -> Result<Logic> {
    let (processes, hosts): (CollectionName, CollectionName) = ("processes".parse()?, "host_stats".parse()?);
    Ok(Logic::rust(move |event: &Event| {
        let Ok(Value::Object(fields)) = serde_json::from_str(event.payload.get()) else {
            return Err("no object".to_owned());
        };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let host = Change::upsert(hosts.clone(), text("host")).inc("seen", 1).set("last_ts", event.ts);
        let mut process = Change::upsert(processes.clone(), text("processId"));
        if let Change::Upsert(upsert) = &mut process {
            upsert.set = fields;
        }
        Ok(vec![process, host])
    }))
}

async fn read_rate(ground: &Ground, topic: &TopicName) -> Result<f64> {
    let (start, mut next, mut events) = (now(), Offset::ZERO, 0);
    loop {
        let page = ground.store.read(topic, next, PageLimit { events: 200, bytes: 1 << 20 }).await?;
        if page.next == next {
            return Ok(events as f64 / start.elapsed().as_secs_f64());
        }
        next = page.next;
        events += page.events.len();
    }
}

async fn projected(ground: &Ground, logic: Logic, events: u64) -> Result<f64> {
    let collections: [CollectionName; 2] = ["processes".parse()?, "host_stats".parse()?];
    let projector = Projector::new("processes.txn".parse()?, "process.state".parse()?, logic);
    let declared = Declared {
        collections: collections.iter().cloned().map(CollectionDeclared::new).collect(),
        projectors: vec![projector.writes(collections)],
        ..Declared::default()
    };
    let start = now();
    let projections = ground.open(declared).await?;
    let name = "processes.txn".parse()?;
    while projections.projector(&name)?.position < events {
        let _ = tokio::time::timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
    }
    let rate = events as f64 / start.elapsed().as_secs_f64();
    projections.close().await;
    Ok(rate)
}
