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
use promethean_bus::schemas::RegisterOptions;
use promethean_schema::SchemaText;
use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;

use super::serve::{LogFormat, Server, start_log};
use crate::config;
use crate::output::print_line;

/// The same as `promethean serve --config examples/processes.toml`.
const EXAMPLE: &str = include_str!("../../../../examples/processes.toml");
/// The schemas of the example, which are files there and not beside the binary.
const SCHEMAS: [(&str, &str); 2] = [
    ("heartbeat.received", include_str!("../../../../examples/schemas/heartbeat.received/v1.json")),
    ("process.state", include_str!("../../../../examples/schemas/process.state/v1.json")),
];
/// How often the sample service reports.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// The flags of `promethean dev`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  promethean dev\n  promethean dev --listen localhost:9000")]
pub(crate) struct DevArgs {
    /// Listen on this address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090", value_parser = config::parse_listen)]
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
    let example = EXAMPLE.replace("schemas = \"schemas\"", "");
    let mut config = config::parse(&example, Path::new(""))?;
    config.store = Some("memory".to_owned());
    config.listen = vec![args.listen];
    let server = Server::start(&config).await?;
    register_schemas(server.bus()).await?;
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

async fn register_schemas(bus: &Bus) -> Result<()> {
    for (topic, text) in SCHEMAS {
        let (name, text) = (topic.parse()?, SchemaText::parse(text)?);
        let registered = bus.register_schema(&name, text, RegisterOptions::default()).await;
        registered.with_context(|| format!("register the schema of `{topic}`"))?;
    }
    Ok(())
}

fn guide(address: &SocketAddr) -> String {
    format!(
        "promethean dev listens on {address}; everything is in memory and gone when it stops

Open the dashboard in a browser: http://{address}/

A service `stt` on host `local` reports every second. Look at it from another terminal:

  curl http://{address}/snap/local:stt:1234                  its state, with an ETag
  curl 'http://{address}/list?status=alive'                  all services that are alive
  curl http://{address}/collections/host_stats/snap/local    a count of events, each counted once
  curl -N http://{address}/stream/process.state              new events, as they come
  curl http://{address}/projectors                           the projectors that keep this state
  curl http://{address}/schemas/heartbeat.received/latest    the schema that its reports must fit

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
