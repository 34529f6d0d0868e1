//! `project`: the rate of a projector that writes two documents for each event, in Rust and as jq.

use anyhow::{Result, anyhow};
use promethean_jq::Program;
use promethean_model::{CollectionName, Event, Offset, TopicName};
use promethean_projections::{Change, CollectionDeclared, Declared, Logic, Projector};
use promethean_store::port::{EventReads, PageLimit};
use serde_json::Value;

use super::StateRun;
use super::filled_bus::{self, FilledBus};
use crate::run::Goal;
use crate::run::measurement;
use crate::timing::now;

const PROCESSES: u64 = 1_000;
const HOSTS: u64 = 20;
const RUST_MIN: f64 = 50_000.0;
const JQ_MIN: f64 = 15_000.0;

const PROGRAM: &str = r#"
    {upsert: {collection: "processes", key: .payload.processId, set: .payload}},
    {upsert: {collection: "host_stats", key: .payload.host, inc: {seen: 1}, set: {last_ts: .ts}}}
"#;

pub(super) async fn run(run: &mut StateRun) -> Result<()> {
    for (name, events, goal) in [("rust", run.plan.events, RUST_MIN), ("jq", run.plan.events / 2, JQ_MIN)] {
        let bus = FilledBus::open(run, "project").await?;
        let topic: TopicName = "process.state".parse()?;
        bus.fill(&topic, events, state).await?;
        let read = read_rate(&bus, &topic).await?;
        let logic = match name {
            "rust" => rust()?,
            _ => Logic::Jq(Program::compile(PROGRAM).map_err(|error| anyhow!("{error}"))?),
        };
        let rate = projected(&bus, logic, events).await?;
        measurement("project")
            .with("logic", name)
            .with("events", events)
            .with("upserts_per_event", 2)
            .figure("events_per_s", rate)
            .figure("read_events_per_s", read)
            .figure("part_of_read", rate / read)
            .print()?;
        run.goal(Goal::at_least(format!("projected events/s, {name}"), goal, rate));
        bus.close().await;
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

async fn read_rate(bus: &FilledBus, topic: &TopicName) -> Result<f64> {
    let (start, mut next, mut events) = (now(), Offset::ZERO, 0);
    loop {
        let page = bus.local.store.read(topic, next, PageLimit { events: 200, bytes: 1 << 20 }).await?;
        if page.next == next {
            return Ok(events as f64 / start.elapsed().as_secs_f64());
        }
        next = page.next;
        events += page.events.len();
    }
}

async fn projected(bus: &FilledBus, logic: Logic, events: u64) -> Result<f64> {
    let collections: [CollectionName; 2] = ["processes".parse()?, "host_stats".parse()?];
    let projector = Projector::new("processes.txn".parse()?, "process.state".parse()?, logic);
    let declared = Declared {
        collections: collections.iter().cloned().map(CollectionDeclared::new).collect(),
        projectors: vec![projector.writes(collections)],
        ..Declared::default()
    };
    let start = now();
    let projections = bus.projections(declared).await?;
    let name = "processes.txn".parse()?;
    filled_bus::projected(&projections, &name, events).await?;
    let rate = events as f64 / start.elapsed().as_secs_f64();
    projections.close().await;
    Ok(rate)
}
