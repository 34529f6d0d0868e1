//! `single`: one event at a time, each waited for until it is durable.

use anyhow::{Result, ensure};

use super::meter::{Meter, line, with_cost};
use super::plan::PAYLOADS;
use super::server_process::ServerProcess;
use super::{GatewayRun, block_on};
use crate::log::raw;
use crate::run::Goal;
use crate::timing::{Epoch, Samples, now};
use crate::wire::events::{Template, payload};
use crate::wire::pump::confirmations;
use crate::wire::socket::ClientSocket;

const TARGET_P50_US: f64 = 220.0;
const TARGET_P99_US: f64 = 450.0;
const RAW_SYNCS: usize = 200;
const WARM_UP: usize = 200;

pub(super) fn run(bench: &mut GatewayRun) -> Result<()> {
    let [bytes, _] = PAYLOADS;
    let mut samples = block_on(measure(bench, bytes))?;
    bench.goal(Goal::at_most("one outstanding, p50 us", TARGET_P50_US, samples.p50_us()));
    bench.goal(Goal::at_most("one outstanding, p99 us", TARGET_P99_US, samples.p99_us()));
    Ok(())
}

async fn measure(bench: &mut GatewayRun, bytes: usize) -> Result<Samples> {
    let count = bench.plan.singles();
    // A raw sync of that size for comparison, because it is most of the time.
    let mut raw_sync = raw::sync_latency(bench.scratch.fresh("raw")?.path(), 256, RAW_SYNCS)?;
    let server = ServerProcess::start(bench, "single").await?;
    let line = line(bench, "single", &server).await?;
    let frame = Template::one("bench.single", &payload(bytes));
    let mut socket = server.open().await?;
    one_by_one(&mut socket, &frame, WARM_UP.min(count)).await?;
    let meter = Meter::start(&server)?;
    let mut samples = one_by_one(&mut socket, &frame, count).await?;
    let cost = meter.stop(&server, samples.len() as u64)?;
    let line = line.with("payload_bytes", bytes).with("outstanding", 1);
    with_cost(line, &cost, &server)?
        .figure("p50_us", samples.p50_us())
        .figure("p99_us", samples.p99_us())
        .figure("max_us", samples.max_us())
        .figure("raw_fdatasync_p50_us", raw_sync.p50_us())
        .print()?;
    Ok(samples)
}

pub(super) async fn one_by_one(socket: &mut ClientSocket, frame: &Template, count: usize) -> Result<Samples> {
    let (epoch, mut samples) = (Epoch::start(), Samples::default());
    for number in 0..count {
        let start = now();
        frame.put(&mut socket.output, epoch.stamp(), number as u64);
        socket.flush().await?;
        let mut confirmed = 0;
        while confirmed == 0 {
            socket.fill().await?;
            confirmed = confirmations(socket)?;
        }
        ensure!(confirmed == 1, "{confirmed} replies to one publish");
        samples.push(start.elapsed());
    }
    Ok(samples)
}
