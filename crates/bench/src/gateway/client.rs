//! `client`: the work of `publish`, `single` and `drain` done by `promethean-client`, beside the same work done over
//! raw sockets, against one server.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use promethean_client::{Client, PendingPublish, StartFrom};
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::meter::{GatewayCost, Meter, line, with_cost};
use super::plan::{IN_FLIGHT, OUTSTANDING, PAYLOADS};
use super::publish::{fill, publish};
use super::server_process::ServerProcess;
use super::single::one_by_one;
use super::subscriber::{AckManner, Subscriber};
use super::{GatewayRun, block_on};
use crate::run::Goal;
use crate::timing::{Samples, now};
use crate::wire::events::{Template, payload};

const CONNECTIONS: [usize; 2] = [1, 8];
/// The least part of the figure of raw sockets.
const TARGET_RATIO: f64 = 0.8;
/// One in this many events is published first, untimed.
const WARM_UP: u64 = 20;
const TOPIC: &str = "bench.client";

pub(super) fn run(bench: &mut GatewayRun) -> Result<()> {
    let [bytes, _] = PAYLOADS;
    for connections in CONNECTIONS {
        let ratio = block_on(measure_publish(bench, connections, bytes))?;
        let what = format!("client: publish {bytes} B, connections: {connections}, part of raw sockets");
        bench.goal(Goal::at_least(what, TARGET_RATIO, ratio));
    }
    let ratio = block_on(measure_single(bench, bytes))?;
    bench.goal(Goal::at_least("client: one outstanding, part of raw sockets", TARGET_RATIO, ratio));
    let ratio = block_on(measure_drain(bench, bytes))?;
    let what = format!("client: drain {bytes} B with acks, part of raw sockets");
    bench.goal(Goal::at_least(what, TARGET_RATIO, ratio));
    Ok(())
}

fn connect(server: &ServerProcess) -> Result<Client> {
    let url = format!("http://{}", server.address);
    Ok(Client::builder(&url).max_outstanding(OUTSTANDING as usize).build()?)
}

fn raw_payload(bytes: usize) -> Result<Box<RawValue>> {
    RawValue::from_string(payload(bytes)).context("the payload is JSON")
}

async fn measure_publish(bench: &mut GatewayRun, connections: usize, bytes: usize) -> Result<f64> {
    let events = bench.plan.events;
    let server = ServerProcess::start(bench, "client").await?;
    let line = line(bench, "client", &server).await?;
    let mut sockets = Vec::new();
    for _ in 0..connections {
        sockets.push(server.open().await?);
    }
    let frame = Template::one("bench.raw", &payload(bytes));
    let (sockets, _) = publish(sockets, &frame, events / WARM_UP, bench.plan.until()).await?;
    let meter = Meter::start(&server)?;
    let (sockets, confirmed) = publish(sockets, &frame, events, bench.plan.until()).await?;
    let raw = meter.stop(&server, confirmed)?;
    drop(sockets);
    let mut clients = Vec::new();
    for _ in 0..connections {
        let client = connect(&server)?;
        client.connect().await?;
        clients.push(client);
    }
    publish_by(&clients, bytes, events / WARM_UP, bench.plan.until()).await?;
    let meter = Meter::start(&server)?;
    let confirmed = publish_by(&clients, bytes, events, bench.plan.until()).await?;
    let cost = meter.stop(&server, confirmed)?;
    for client in clients {
        client.close().await?;
    }
    let ratio = ratio(&cost, &raw);
    let line = line.with("work", "publish").with("payload_bytes", bytes).with("connections", connections);
    let line = with_cost(line.with("outstanding", OUTSTANDING), &cost, &server)?;
    line.figure("raw_events_per_s", raw.events_per_s()).figure("ratio", ratio).print()?;
    Ok(ratio)
}

/// Publishes `events` events by all clients in even parts; returns how many were confirmed in time.
async fn publish_by(clients: &[Client], bytes: usize, events: u64, until: Instant) -> Result<u64> {
    let each = events.div_ceil(clients.len() as u64);
    let mut tasks = JoinSet::new();
    for client in clients {
        let (client, payload) = (client.clone(), raw_payload(bytes)?);
        tasks.spawn(async move {
            let (mut pending, mut sent, mut confirmed) = (VecDeque::<PendingPublish>::new(), 0, 0);
            loop {
                while sent < each && pending.len() < OUTSTANDING as usize && now() < until {
                    pending.push_back(client.publish(TOPIC, &payload).send()?);
                    sent += 1;
                }
                let Some(next) = pending.pop_front() else { return anyhow::Ok(confirmed) };
                next.await?;
                confirmed += 1;
            }
        });
    }
    let mut confirmed = 0;
    while let Some(done) = tasks.join_next().await {
        confirmed += done.context("a publisher panicked")??;
    }
    Ok(confirmed)
}

async fn measure_single(bench: &mut GatewayRun, bytes: usize) -> Result<f64> {
    let count = bench.plan.singles();
    let server = ServerProcess::start(bench, "client").await?;
    let line = line(bench, "client", &server).await?;
    let frame = Template::one("bench.raw", &payload(bytes));
    let mut socket = server.open().await?;
    one_by_one(&mut socket, &frame, count / 10).await?;
    let mut raw = one_by_one(&mut socket, &frame, count).await?;
    let (client, payload) = (connect(&server)?, raw_payload(bytes)?);
    for _ in 0..count / 10 {
        client.publish(TOPIC, &payload).await?;
    }
    let (meter, mut samples) = (Meter::start(&server)?, Samples::default());
    for _ in 0..count {
        let start = now();
        client.publish(TOPIC, &payload).await?;
        samples.push(start.elapsed());
    }
    let cost = meter.stop(&server, count as u64)?;
    client.close().await?;
    // The rate of one outstanding event is one by its time.
    let ratio = raw.p50_us() / samples.p50_us().max(1e-9);
    let line = line.with("work", "single").with("payload_bytes", bytes).with("outstanding", 1);
    with_cost(line, &cost, &server)?
        .figure("p50_us", samples.p50_us())
        .figure("p99_us", samples.p99_us())
        .figure("raw_p50_us", raw.p50_us())
        .figure("raw_p99_us", raw.p99_us())
        .figure("ratio", ratio)
        .print()?;
    Ok(ratio)
}

async fn measure_drain(bench: &mut GatewayRun, bytes: usize) -> Result<f64> {
    let server = ServerProcess::start(bench, "client").await?;
    let events = fill(bench, &server, TOPIC, bytes, bench.plan.backlog()).await?;
    let line = line(bench, "client", &server).await?;
    let mut raw = Vec::new();
    for acks in [AckManner::Each, AckManner::Batched] {
        let mut subscriber = Subscriber::join(&server, TOPIC, acks.name(), acks, bytes).await?;
        let meter = Meter::start(&server)?;
        subscriber.drain(events).await?;
        raw.push(meter.stop(&server, events)?);
    }
    let client = connect(&server)?;
    client.connect().await?;
    let meter = Meter::start(&server)?;
    drain_by(&client, events).await?;
    let cost = meter.stop(&server, events)?;
    client.close().await?;
    let [each, batched] = raw.as_slice() else { anyhow::bail!("two drains over raw sockets") };
    let ratio = ratio(&cost, each);
    let line = line.with("work", "drain").with("payload_bytes", bytes).with("in_flight", IN_FLIGHT);
    with_cost(line, &cost, &server)?
        .figure("raw_events_per_s", each.events_per_s())
        .figure("raw_batched_events_per_s", batched.events_per_s())
        .figure("ratio", ratio)
        .print()?;
    Ok(ratio)
}

/// Consumes a backlog, and waits until every ack is durable.
async fn drain_by(client: &Client, events: u64) -> Result<()> {
    let subscription = client.subscribe::<Box<RawValue>>(TOPIC, "client").from(StartFrom::Earliest);
    let mut leases = subscription.max_in_flight(IN_FLIGHT as usize).leases().await?;
    let mut acks = VecDeque::new();
    for _ in 0..events {
        let lease = leases.next().await.context("the subscription ended")??;
        acks.push_back(lease.ack());
        if acks.len() >= IN_FLIGHT as usize
            && let Some(ack) = acks.pop_front()
        {
            ack.await?;
        }
    }
    for ack in acks {
        ack.await?;
    }
    ensure!(leases.in_flight() == 0, "events are left");
    leases.close().await?;
    Ok(())
}

/// The part of the raw figure that the client reaches.
fn ratio(client: &GatewayCost, raw: &GatewayCost) -> f64 {
    client.events_per_s() / raw.events_per_s().max(1e-9)
}
