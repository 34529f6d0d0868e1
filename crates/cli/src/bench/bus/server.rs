//! A bus over an embedded store on a directory of its own.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use promethean_bus::{Bus, BusOptions};
use promethean_model::SystemClock;
use promethean_store::embedded::{EmbeddedStore, Options};
use tokio::runtime::{Builder, Runtime};

use crate::bench::timing::{now, processor_time};

/// Everything a measurement needs of a bus.
pub(super) struct Server {
    pub(super) bus: Bus,
    pub(super) store: Arc<EmbeddedStore>,
    runtime: Runtime,
}

/// What some work took, of users and bus together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    pub(super) events: u64,
    pub(super) elapsed: Duration,
    pub(super) processor: Duration,
    pub(super) syncs: u64,
}

impl Spent {
    pub(super) fn events_per_s(&self) -> f64 {
        self.events as f64 / self.elapsed.as_secs_f64()
    }

    pub(super) fn processor_us_per_event(&self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / self.events.max(1) as f64
    }
}

impl Server {
    pub(super) fn open(dir: &Path) -> Result<Server> {
        let runtime = Builder::new_multi_thread().enable_time().build().context("start a runtime")?;
        let (store, bus) = runtime.block_on(async {
            let clock = Arc::new(SystemClock::new());
            let (store, _) = EmbeddedStore::open(dir, Arc::clone(&clock) as _, Options::default()).await?;
            let store = Arc::new(store);
            let bus = Bus::open(Arc::clone(&store) as _, clock, BusOptions::default()).await?;
            anyhow::Ok((store, bus))
        })?;
        Ok(Server { bus, store, runtime })
    }

    /// Runs something that is not measured.
    pub(super) fn run<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(work)
    }

    /// Runs something that publishes or delivers so many events.
    pub(super) fn measure<T>(
        &self,
        events: u64,
        work: impl Future<Output = Result<T>>,
    ) -> Result<(T, Spent)> {
        let (syncs, processor, start) = (self.syncs(), processor_time(), now());
        let done = self.runtime.block_on(work)?;
        let elapsed = start.elapsed();
        let processor = processor_time().saturating_sub(processor);
        Ok((done, Spent { events, elapsed, processor, syncs: self.syncs() - syncs }))
    }

    pub(super) fn close(self) {
        self.runtime.block_on(async {
            self.bus.close().await;
            promethean_store::port::Store::close(&*self.store).await;
        });
    }

    fn syncs(&self) -> u64 {
        self.store.log_health().map_or(0, |health| health.syncs)
    }
}
