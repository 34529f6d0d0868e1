//! The handle that users hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use promethean_delivery::Input;
use promethean_model::{Clock, IdMint};
use promethean_store::port::{Health, Store};

use crate::admin;
use crate::core::{Core, Parts};
use crate::error::BusError;
use crate::follower;
use crate::group::Command;
use crate::letter_book::LetterBook;
use crate::metrics::{BusMetrics, Registry};
use crate::options::BusOptions;
use crate::publish::{Publish, Published};
use crate::publishing;
use crate::schema::Book;
use crate::settings::SettingsMirror;
use crate::subscribe::{self, Subscribe};
use crate::subscription::Subscription;

/// Publishing and consumer groups over a store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bus {
    pub(crate) core: Arc<Core>,
}

impl Bus {
    /// Opens a bus over a store, which stays the caller's to close.
    pub async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        options: BusOptions,
    ) -> Result<Self, BusError> {
        let settings = SettingsMirror::load(&*store).await?;
        let schemas = Book::load(&*store).await?;
        let mint = IdMint::new().map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
        let metrics = BusMetrics::new(&Registry::default(), options.series_max);
        let letters = LetterBook::load(&*store, &metrics).await?;
        let core =
            Arc::new(Core::new(Parts { store, clock, options, mint, metrics, settings, schemas, letters }));
        let rows = admin::stored_rows(&core, b"").await?;
        follower::hold_stored(&core, &rows).await?;
        core.store.holds_are_set();
        admin::finish_deletions(&core, &rows).await;
        Ok(Self { core })
    }

    /// Publishes one event.
    pub async fn publish(&self, event: Publish<'_>) -> Result<Published, BusError> {
        let published = publishing::publish_each(&self.core, vec![event]).await;
        published.into_iter().next().unwrap_or(Err(BusError::Closed))
    }

    /// Publishes events that do not depend on each other, in their order; one that is refused does not stop the rest.
    /// For publishers that have several at hand this is much cheaper than one after the other.
    pub async fn publish_each(&self, events: Vec<Publish<'_>>) -> Vec<Result<Published, BusError>> {
        publishing::publish_each(&self.core, events).await
    }

    /// Publishes events in one commit: all of them or none.
    pub async fn publish_batch(&self, events: Vec<Publish<'_>>) -> Result<Vec<Published>, BusError> {
        publishing::publish_batch(&self.core, events).await
    }

    /// Becomes a member of a group, which is created if need be.
    pub async fn subscribe(&self, request: Subscribe) -> Result<Subscription, BusError> {
        subscribe::subscribe(&self.core, request).await
    }

    /// What is counted.
    pub fn metrics(&self) -> &BusMetrics {
        &self.core.metrics
    }

    /// How the store is.
    pub fn health(&self) -> Health {
        self.core.store.health()
    }

    /// Looks at every deadline again. Timers wait by real time, so a clock that jumps, as after a suspend, is noticed
    /// late without.
    pub fn wake(&self) {
        for owner in self.core.owners.all() {
            // One that has ended has no deadlines.
            let _ = owner.mailbox.send_now(Command::Tell(Input::Tick));
        }
        self.core.coordinators.tick(self.core.now());
    }

    /// How many tasks work for this bus now: one for each group and topic with members, and one for each subscription
    /// to a pattern, one for all members with heartbeats, and one for each change that is being made.
    pub fn tasks(&self) -> usize {
        self.core.tasks.len()
    }

    /// Ends every subscription, commits what is acked, and waits for all tasks. Consumers finish the events they are
    /// at; what other members hold is released without counting as failed. The store stays open.
    pub async fn close(&self) {
        self.core.shutdown.send_replace(true);
        // While everything works still: what handlers publish and ack is to count.
        self.core.consumers.join().await;
        self.core.closed.store(true, Ordering::Release);
        self.core.owners.close();
        self.core.tasks.join().await;
        self.core.committer.join().await;
        self.core.consumers.join().await;
    }
}
