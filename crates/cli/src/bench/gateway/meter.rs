//! What some work took, of client and server.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::GatewayBench;
use super::server::{Server, with_resident};
use crate::bench::measurement;
use crate::bench::timing::{now, processor_time};
use crate::output::Line;

/// Started with the work.
#[derive(Debug)]
pub(super) struct Meter {
    start: Instant,
    client: Duration,
    server: Duration,
}

/// Read when the work is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    pub(super) events: u64,
    pub(super) elapsed: Duration,
    client: Duration,
    server: Duration,
}

impl Meter {
    pub(super) fn start(server: &Server) -> Result<Meter> {
        Ok(Meter { server: server.processor()?, client: processor_time(), start: now() })
    }

    pub(super) fn stop(&self, server: &Server, events: u64) -> Result<Spent> {
        let elapsed = self.start.elapsed();
        let client = processor_time().saturating_sub(self.client);
        let server = server.processor()?.saturating_sub(self.server);
        Ok(Spent { events, elapsed, client, server })
    }
}

impl Spent {
    pub(super) fn events_per_s(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Processor time of the server while it ran, in percent of one core.
    pub(super) fn server_percent(&self) -> f64 {
        100.0 * self.server.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The line of a measurement, with the server's sync mode.
pub(super) async fn line(bench: &mut GatewayBench, name: &'static str, server: &Server) -> Result<Line> {
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

/// Adds what so many events took, and what the server's memory is now.
pub(super) fn with_spent(line: Line, spent: &Spent, server: &Server) -> Result<Line> {
    let events = spent.events.max(1) as f64;
    let line = line
        .with("events", spent.events)
        .figure("seconds", spent.elapsed.as_secs_f64())
        .figure("events_per_s", spent.events_per_s())
        .figure("server_us_per_event", spent.server.as_secs_f64() * 1e6 / events)
        .figure("client_us_per_event", spent.client.as_secs_f64() * 1e6 / events);
    with_resident(line, server)
}
