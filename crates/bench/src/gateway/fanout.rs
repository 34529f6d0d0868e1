//! Events at a steady rate: to one subscriber (`latency`), and to many that are groups of their own
//! (`fanout`).

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::meter::{Meter, line, with_cost};
use super::plan::PAYLOADS;
use super::server_process::ServerProcess;
use super::subscriber::{AckManner, Subscriber};
use super::{GatewayRun, block_on};
use crate::output::JsonLine;
use crate::run::Goal;
use crate::timing::{Epoch, Samples};
use crate::wire::events::{Template, payload};
use crate::wire::pump::{PublishPace, paced};
use crate::wire::socket::ClientSocket;

/// Goals of `fanout` for the 99th percentile, in microseconds.
const FANOUT_P99_US: [(AckManner, f64); 2] = [(AckManner::None, 3_000.0), (AckManner::Each, 7_000.0)];
/// Goals of `latency`, in microseconds.
const LATENCY_P50_US: f64 = 300.0;
const LATENCY_P99_US: f64 = 900.0;
const TOPIC: &str = "bench.fanout";
/// How late the last events may arrive.
const LATE: Duration = Duration::from_secs(60);

/// The subscribers of a measurement, and the rate of events.
#[derive(Debug, Clone, Copy)]
struct Fanout {
    name: &'static str,
    subscribers: usize,
    /// Events per second.
    rate: u64,
    acks: AckManner,
    payload_bytes: usize,
}

pub(super) fn run(bench: &mut GatewayRun) -> Result<()> {
    let [payload_bytes, _] = PAYLOADS;
    let (subscribers, rate) = (bench.plan.subscribers, bench.plan.fanout_rate);
    for (acks, target) in FANOUT_P99_US {
        let (_, p99) = measure(bench, Fanout { name: "fanout", subscribers, rate, acks, payload_bytes })?;
        let acked = if acks == AckManner::None { "unacked" } else { "acked" };
        let what = format!("{rate}/s to {subscribers} subscribers, {acked}, p99 us");
        bench.goal(Goal::at_most(what, target, p99));
    }
    Ok(())
}

/// Measures one subscriber alone.
pub(super) fn run_latency(bench: &mut GatewayRun) -> Result<()> {
    let [payload_bytes, _] = PAYLOADS;
    let rate = bench.plan.rate;
    let one = Fanout { name: "latency", subscribers: 1, rate, acks: AckManner::Each, payload_bytes };
    let (p50, p99) = measure(bench, one)?;
    bench.goal(Goal::at_most(format!("publish to delivered at {rate}/s, p50 us"), LATENCY_P50_US, p50));
    bench.goal(Goal::at_most(format!("publish to delivered at {rate}/s, p99 us"), LATENCY_P99_US, p99));
    Ok(())
}

/// The median and the 99th percentile, in microseconds.
fn measure(bench: &mut GatewayRun, fanout: Fanout) -> Result<(f64, f64)> {
    let (go, wait) = oneshot::channel();
    let pace = PublishPace { per_s: fanout.rate, events: bench.plan.paced_events(fanout.rate) };
    let epoch = Epoch::start();
    thread::scope(|scope| {
        // The publisher has its own thread, so that busy subscribers do not delay it.
        let publishing = scope.spawn(move || block_on(publish(wait, fanout.payload_bytes, pace, epoch)));
        let received = block_on(subscribe(bench, fanout, go, pace, epoch));
        let late = publishing.join().map_err(|_| anyhow!("the publisher panicked"))?;
        // If both failed, the error of the subscribers is the cause.
        let (mut samples, line, server) = received?;
        let (p50, p99) = (samples.p50_us(), samples.p99_us());
        line.figure("p50_us", p50)
            .figure("p99_us", p99)
            .figure("max_us", samples.max_us())
            .with("publisher_late_max_us", late?)
            .print()?;
        drop(server);
        Ok((p50, p99))
    })
}

async fn publish(
    wait: oneshot::Receiver<String>,
    bytes: usize,
    pace: PublishPace,
    epoch: Epoch,
) -> Result<u64> {
    let address = wait.await.context("the subscribers failed")?;
    let mut socket = ClientSocket::open(&address, None).await?;
    let frame = Template::one(TOPIC, &payload(bytes));
    paced(&mut socket, pace, epoch, |out, stamp, number| frame.put(out, stamp, number)).await
}

async fn subscribe(
    bench: &mut GatewayRun,
    fanout: Fanout,
    go: oneshot::Sender<String>,
    pace: PublishPace,
    epoch: Epoch,
) -> Result<(Samples, JsonLine, ServerProcess)> {
    let server = ServerProcess::start(bench, fanout.name).await?;
    let line = line(bench, fanout.name, &server).await?;
    server.sync(TOPIC).await?;
    let mut tasks = JoinSet::new();
    let mut subscribers = Vec::new();
    for number in 0..fanout.subscribers {
        let group = format!("bench-{number}");
        let mut subscriber =
            Subscriber::join(&server, TOPIC, &group, fanout.acks, fanout.payload_bytes).await?;
        subscriber.listen().await?;
        subscribers.push(subscriber);
    }
    let meter = Meter::start(&server)?;
    for mut subscriber in subscribers {
        tasks.spawn(async move { subscriber.receive(epoch, pace.events).await });
    }
    go.send(server.address.clone()).map_err(|_| anyhow!("the publisher is gone"))?;
    let mut samples = Samples::default();
    let all = async {
        while let Some(done) = tasks.join_next().await {
            samples.append(done.context("a subscriber panicked")??);
        }
        anyhow::Ok(())
    };
    let limit = LATE + Duration::from_secs(pace.events / pace.per_s.max(1));
    tokio::time::timeout(limit, all).await.context("not all events arrived in time")??;
    let cost = meter.stop(&server, samples.len() as u64)?;
    let line = line
        .with("payload_bytes", fanout.payload_bytes)
        .with("subscribers", fanout.subscribers)
        .with("acks", fanout.acks.name())
        .with("published_per_s", fanout.rate);
    let line = with_cost(line, &cost, &server)?;
    // The server is returned, so that it lives until the publisher has its last confirmations.
    Ok((samples, line, server))
}
