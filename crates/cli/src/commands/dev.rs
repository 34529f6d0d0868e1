//! `promethean dev`: a server in memory with the example configuration and a sample service that reports to
//! it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use promethean_bus::Bus;
use promethean_bus::publish::Publish;
use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;

use super::serve::{LogFormat, Server, start_log};
use crate::config;
use crate::output::print_line;

/// The same as `promethean serve --config examples/processes.toml`.
const EXAMPLE: &str = include_str!("../../../../examples/processes.toml");
/// How often the sample service reports.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// The flags of `promethean dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Listen on this address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// Log messages of this level and above to standard error
    #[arg(long, value_name = "LEVEL", env = "PROMETHEAN_LOG", default_value = "warn")]
    log_level: tracing::Level,
}

pub(crate) fn run(args: &DevArgs) -> Result<ExitCode> {
    start_log(args.log_level, LogFormat::Text);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("start a runtime")?.block_on(dev(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn dev(args: &DevArgs) -> Result<()> {
    let mut interrupted = signal(SignalKind::interrupt()).context("listen for signals")?;
    let mut terminated = signal(SignalKind::terminate()).context("listen for signals")?;
    // The schemas of the example are files, which are not beside the binary.
    let example = EXAMPLE.replace("schemas = \"schemas\"", "");
    let mut config = config::parse(&example, Path::new(""))?;
    config.store = Some("memory".to_owned());
    config.listen = vec![args.listen];
    let server = Server::start(&config).await?;
    for address in server.addresses() {
        print_line(&guide(address))?;
    }
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        () = beat(server.bus()) => {}
    }
    server.stop().await;
    Ok(())
}

fn guide(address: &SocketAddr) -> String {
    format!(
        "promethean dev listens on {address}; everything is in memory and gone when it stops

A service `stt` on host `local` reports every second. Look at it from another terminal:

  curl http://{address}/snap/local:stt:1234                  its state, with an ETag
  curl 'http://{address}/list?status=alive'                  all services that are alive
  curl http://{address}/collections/host_stats/snap/local    a count of events, each counted once
  curl -N http://{address}/stream/process.state              new events, as they come
  curl http://{address}/projectors                           the projectors that keep this state

Publish a heartbeat of your own service; after 15 s without one it becomes stale:

  curl http://{address}/publish/heartbeat.received -d '{{\"pid\":7,\"name\":\"mine\",\"host\":\"local\",\"cpu_pct\":1,\"mem_mb\":2}}'
"
    )
}

/// Publishes a heartbeat of the sample service every second.
async fn beat(bus: &Bus) {
    let mut every = tokio::time::interval(BEAT_EVERY);
    let Ok(topic) = "heartbeat.received".parse::<promethean_model::TopicName>() else { return };
    for beat in 0_u64.. {
        every.tick().await;
        let payload = format!(
            r#"{{"pid":1234,"name":"stt","host":"local","cpu_pct":{},"mem_mb":{}}}"#,
            3 + beat % 7,
            120 + beat % 11
        );
        if let Err(error) = bus.publish(Publish::new(topic.clone(), payload)).await {
            warn!(%error, "the sample service could not report");
        }
    }
}
