//! The handle that users hold. Each noun of it has a file: what is here only names and documents the operations.
//!
//! Subscribing, consuming, reading and deleting topics build on the handle: their operations are in `subscription`,
//! `consumer`, `exactly_once`, `read` and `topic_deletion`.

mod backups;
mod dead_letters;
mod groups;
mod schemas;
mod topics;

use std::sync::Arc;

use promethean_delivery::Input;
use promethean_jq::Pool;
use promethean_model::{Clock, IdMint, Limits};
use promethean_store::port::{Health, Store};

use crate::base::Base;
use crate::dead_letters::DeadLetters;
use crate::error::BusError;
use crate::groups::{Groups, OwnerMessage, finish_deletions, hold_stored, stored_rows};
use crate::limits::Rate;
use crate::metrics::{BusMetrics, Registry};
use crate::options::BusOptions;
use crate::publish::{Publish, Published, Publisher, publish_batch, publish_each};
use crate::schemas::Schemas;
use crate::topics::Topics;
use crate::{pulse, sweep};

/// Publishing and consumer groups over a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bus {
    pub(crate) groups: Arc<Groups>,
}

impl Bus {
    /// Opens a bus over a store, which stays the caller's to close.
    pub async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        options: BusOptions,
    ) -> Result<Self, BusError> {
        let mint = IdMint::new().map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
        let metrics = BusMetrics::new(&Registry::default(), options.series_max);
        let base = Arc::new(Base::new(store, clock, options, mint, metrics));
        let topics = Arc::new(Topics::load(Arc::clone(&base)).await?);
        let schemas = Arc::new(Schemas::load(topics).await?);
        let dead_letters = Arc::new(DeadLetters::load(schemas).await?);
        let groups = Arc::new(Groups::new(dead_letters));
        let rows = stored_rows(&groups, b"").await?;
        hold_stored(&groups, &rows).await?;
        base.store.holds_are_set();
        finish_deletions(&groups, &rows).await;
        sweep::start(&base);
        pulse::start(&base.pulse, &base.housekeeping, base.shutdown.subscribe());
        Ok(Self { groups })
    }

    /// Publishes one event.
    pub async fn publish(&self, event: Publish<'_>) -> Result<Published, BusError> {
        let published = publish_each(&self.groups.schemas, vec![event]).await;
        published.into_iter().next().unwrap_or(Err(BusError::Closed))
    }

    /// Publishes events that do not depend on each other, in their order. A refused event does not stop the others. This
    /// is much cheaper than publishing them one after the other.
    pub async fn publish_each(&self, events: Vec<Publish<'_>>) -> Vec<Result<Published, BusError>> {
        publish_each(&self.groups.schemas, events).await
    }

    /// Publishes events in one commit: all of them or none.
    pub async fn publish_batch(&self, events: Vec<Publish<'_>>) -> Result<Vec<Published>, BusError> {
        publish_batch(&self.groups.schemas, events).await
    }

    /// A publisher with a rate and an order of its own, such as a connection. `None` sets no rate.
    pub fn publisher(&self, rate: Option<Rate>) -> Publisher {
        Publisher::new(Arc::clone(&self.groups.schemas), rate)
    }

    /// The metrics of the bus.
    pub fn metrics(&self) -> &BusMetrics {
        &self.groups.base.metrics
    }

    /// Reads the lag of groups without members for the next page of metrics, of 1,000 groups at most.
    pub async fn measure_idle_groups(&self) -> Result<(), BusError> {
        self.groups.measure_idle().await
    }

    /// The page of all metrics.
    pub fn metrics_page(&self) -> String {
        self.groups.measure_followers();
        self.metrics().measure_store(&*self.groups.base.store);
        self.metrics().render()
    }

    /// The threads that jq programs of this bus run on. They end with the bus.
    pub fn jq_pool(&self) -> &Pool {
        &self.groups.schemas.jq_pool
    }

    /// The caps on what is published.
    pub fn limits(&self) -> &Limits {
        &self.groups.base.options.limits
    }

    /// The health of the store.
    pub fn health(&self) -> Health {
        self.groups.base.store.health()
    }

    /// Checks every deadline again. Timers wait by real time, so without this a clock that jumps, as after a suspend, is
    /// noticed late.
    pub fn wake(&self) {
        for owner in self.groups.owners.all() {
            // An owner that has ended has no deadlines.
            let _ = owner.mailbox.send_now(OwnerMessage::Tell(Input::Tick));
        }
        self.groups.coordinators.tick(self.groups.base.now());
    }

    /// How many tasks work for this bus now: one for each group and topic with members, one for each subscription to a
    /// pattern, one for all members with heartbeats, and one for each change that is being made.
    pub fn tasks(&self) -> usize {
        self.groups.base.tasks.len()
    }

    /// Ends every subscription, commits the acks, and waits for all tasks. Consumers finish their current events; the
    /// leases of other members are released and do not count as failed. The store stays open.
    pub async fn close(&self) {
        let base = &self.groups.base;
        base.shutdown.send_replace(true);
        // Before anything stops: what handlers publish and ack now still counts.
        base.consumers.join().await;
        base.close();
        self.groups.owners.close();
        base.tasks.join().await;
        self.groups.committer.join().await;
        base.consumers.join().await;
        base.housekeeping.join().await;
    }
}
