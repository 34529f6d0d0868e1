//! A bus in this process, on an empty directory, whose topics are filled before a measurement.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use promethean_bus::publish::Publish;
use promethean_model::{GroupName, TopicName};
use promethean_projections::{Declared, Projections};

use super::StateRun;
use crate::local_bus::LocalBus;
use crate::scratch::FreshDir;

/// Events of one commit.
const BATCH: u64 = 1_000;
/// How often the position of a projector is read.
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub(super) struct FilledBus {
    pub(super) local: LocalBus,
    /// Dropped last: the directory is removed when the store no longer uses it.
    _dir: FreshDir,
}

impl FilledBus {
    pub(super) async fn open(run: &StateRun, name: &str) -> Result<Self> {
        let dir = run.scratch.fresh(name)?;
        Ok(Self { local: LocalBus::open(dir.path()).await?, _dir: dir })
    }

    /// Publishes `events` events; `event` makes the key and the payload of the n-th.
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
            self.local.bus.publish_batch(batch.collect()).await?;
            from = to;
        }
        Ok(())
    }

    pub(super) async fn projections(&self, declared: Declared) -> Result<Projections> {
        let LocalBus { bus, store, clock } = &self.local;
        Ok(Projections::open(bus.clone(), Arc::clone(store) as _, Arc::clone(clock), declared).await?)
    }

    pub(super) async fn close(self) {
        self.local.close().await;
    }
}

/// Waits until a projector has taken `events` events.
pub(super) async fn projected(projections: &Projections, name: &GroupName, events: u64) -> Result<()> {
    let mut every = tokio::time::interval(LOOK_EVERY);
    while projections.projector(name)?.position < events {
        every.tick().await;
    }
    Ok(())
}
