//! A bus over an embedded store in a directory of its own.

use std::sync::Arc;

use anyhow::Result;
use promethean_bus::publish::Publish;
use promethean_bus::{Bus, BusOptions};
use promethean_model::{Clock, SystemClock, TopicName};
use promethean_projections::{Declared, Projections};
use promethean_store::embedded::{EmbeddedStore, Options};
use promethean_store::port::Store;

use super::Bench;
use crate::bench::scratch::FreshDir;

/// Events of one commit.
const BATCH: u64 = 1_000;

pub(super) struct Ground {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) bus: Bus,
    /// Removed after all else.
    _dir: FreshDir,
}

impl Ground {
    pub(super) async fn new(bench: &Bench, name: &str) -> Result<Self> {
        let dir = bench.scratch.fresh(name)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (store, _) = EmbeddedStore::open(dir.path(), Arc::clone(&clock), Options::default()).await?;
        let store: Arc<dyn Store> = Arc::new(store);
        let bus = Bus::open(Arc::clone(&store), Arc::clone(&clock), BusOptions::default()).await?;
        Ok(Self { store, clock, bus, _dir: dir })
    }

    /// Fills a topic; `event` gives the key and the payload of the n-th.
    pub(super) async fn fill(
        &self,
        topic: &TopicName,
        events: u64,
        event: impl Fn(u64) -> (String, String),
    ) -> Result<()> {
        let mut from = 0;
        while from < events {
            let to = events.min(from + BATCH);
            let batch = (from..to).map(|n| {
                let (key, payload) = event(n);
                Publish::new(topic.clone(), payload).key(key)
            });
            self.bus.publish_batch(batch.collect()).await?;
            from = to;
        }
        Ok(())
    }

    pub(super) async fn open(&self, declared: Declared) -> Result<Projections> {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        Ok(Projections::open(self.bus.clone(), store, clock, declared).await?)
    }

    pub(super) async fn close(self) {
        self.bus.close().await;
        self.store.close().await;
    }
}
