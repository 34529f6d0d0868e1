//! A bus in this process whose work is measured.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use promethean_bus::Bus;
use promethean_store::embedded::EmbeddedStore;
use tokio::runtime::{Builder, Runtime};

use crate::local_bus::LocalBus;
use crate::timing::{now, processor_time};

/// A bus on a directory of its own, with the runtime it works on.
pub(super) struct MeasuredBus {
    local: LocalBus,
    runtime: Runtime,
}

/// What some work cost the bus and its users together.
#[derive(Debug, Clone, Copy)]
pub(super) struct BusCost {
    pub(super) events: u64,
    pub(super) elapsed: Duration,
    pub(super) processor: Duration,
    pub(super) syncs: u64,
}

impl BusCost {
    pub(super) fn events_per_s(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64()
    }

    pub(super) fn processor_us_per_event(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / self.events.max(1) as f64
    }
}

impl MeasuredBus {
    pub(super) fn open(dir: &Path) -> Result<MeasuredBus> {
        let runtime = Builder::new_multi_thread().enable_time().build().context("start a runtime")?;
        let local = runtime.block_on(LocalBus::open(dir))?;
        Ok(MeasuredBus { local, runtime })
    }

    pub(super) fn bus(&self) -> &Bus {
        &self.local.bus
    }

    pub(super) fn store(&self) -> &EmbeddedStore {
        &self.local.store
    }

    /// Runs work that is not measured.
    pub(super) fn run<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(work)
    }

    /// Runs work that publishes or delivers `events` events, and measures what it costs.
    pub(super) fn measure<T>(
        &self,
        events: u64,
        work: impl Future<Output = Result<T>>,
    ) -> Result<(T, BusCost)> {
        let (syncs, processor, start) = (self.syncs(), processor_time(), now());
        let done = self.runtime.block_on(work)?;
        let elapsed = start.elapsed();
        let processor = processor_time().saturating_sub(processor);
        Ok((done, BusCost { events, elapsed, processor, syncs: self.syncs() - syncs }))
    }

    pub(super) fn close(self) {
        self.runtime.block_on(self.local.close());
    }

    fn syncs(&self) -> u64 {
        self.store().log_health().map_or(0, |health| health.syncs)
    }
}
