//! What work costs the client and the server.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::GatewayRun;
use super::server_process::{ServerProcess, with_resident};
use crate::output::JsonLine;
use crate::run::measurement;
use crate::timing::{now, processor_time};

/// The readings at the start of the work.
#[derive(Debug)]
pub(super) struct Meter {
    start: Instant,
    client: Duration,
    server: Duration,
}

/// The cost of the work.
#[derive(Debug, Clone, Copy)]
pub(super) struct GatewayCost {
    pub(super) events: u64,
    pub(super) elapsed: Duration,
    client: Duration,
    server: Duration,
}

impl Meter {
    pub(super) fn start(server: &ServerProcess) -> Result<Meter> {
        Ok(Meter { server: server.processor()?, client: processor_time(), start: now() })
    }

    pub(super) fn stop(&self, server: &ServerProcess, events: u64) -> Result<GatewayCost> {
        let elapsed = self.start.elapsed();
        let client = processor_time().saturating_sub(self.client);
        let server = server.processor()?.saturating_sub(self.server);
        Ok(GatewayCost { events, elapsed, client, server })
    }
}

impl GatewayCost {
    pub(super) fn events_per_s(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Processor time of the server during the work, in percent of one core.
    pub(super) fn server_percent(&self) -> f64 {
        100.0 * self.server.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Starts the output line of a measurement, with the durability that the server names.
pub(super) async fn line(
    bench: &mut GatewayRun,
    name: &'static str,
    server: &ServerProcess,
) -> Result<JsonLine> {
    let sync = match &bench.known {
        Some(sync) => sync.clone(),
        None => {
            let sync = server.sync("bench.sync").await?;
            bench.known = Some(sync.clone());
            sync
        }
    };
    Ok(measurement(name).with("sync", sync))
}

/// Adds the cost of the events, and the memory of the server now.
pub(super) fn with_cost(line: JsonLine, cost: &GatewayCost, server: &ServerProcess) -> Result<JsonLine> {
    let events = cost.events.max(1) as f64;
    let line = line
        .with("events", cost.events)
        .figure("seconds", cost.elapsed.as_secs_f64())
        .figure("events_per_s", cost.events_per_s())
        .figure("server_us_per_event", cost.server.as_secs_f64() * 1e6 / events)
        .figure("client_us_per_event", cost.client.as_secs_f64() * 1e6 / events);
    with_resident(line, server)
}
