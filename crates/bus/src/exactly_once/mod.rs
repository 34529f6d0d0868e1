//! Consumers that process each event once, however often it is delivered.
//!
//! Delivery is at least once: an ack can be lost, and a lease can expire while its handler still works. Two
//! helpers give stronger promises:
//!
//! - [`Bus::subscribe_exactly_once`] marks an event after its handler, and skips marked events. The handler
//!   can still run twice for one event: after a crash between handler and mark, or if two handlers get the
//!   event at the same time. Its effects are outside the bus, and nothing commits them with the mark.
//! - [`Bus::transform_exactly_once`] takes the handler's effects as a value and commits them with the mark,
//!   in one commit that is refused if the mark exists. So they happen once, even after a crash or a lost ack.

mod dedupe;
mod effects;

use std::future::Future;
use std::sync::Arc;

pub use self::dedupe::{DedupeStore, StoreDedupe};
pub use self::effects::{Effects, produced_id};
use crate::bus::Bus;
use crate::consumer::{Consumer, ConsumerOptions, Nack};
use crate::error::BusError;
use crate::subscription::Lease;
use crate::subscription::Subscribe;

/// How long a handled event stays marked by default: 7 days.
pub const DEDUPE_TTL_MS_DEFAULT: u64 = 7 * 24 * 60 * 60 * 1000;

/// Options of an exactly-once consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactlyOnce {
    /// How long a mark lasts. It must be longer than the time in which an event can be redelivered, redriven
    /// or reached by a seek. Default: 7 days. Minimum: 1 ms.
    pub ttl_ms: u64,
    /// How many events are handled at a time, as in [`ConsumerOptions`]. Default: 1.
    pub concurrency: usize,
}

impl Default for ExactlyOnce {
    fn default() -> Self {
        Self { ttl_ms: DEDUPE_TTL_MS_DEFAULT, concurrency: 1 }
    }
}

impl ExactlyOnce {
    fn consumer(&self) -> Result<ConsumerOptions, BusError> {
        if self.ttl_ms == 0 {
            let fix = "give at least 1, or leave it out for 7 days";
            return Err(BusError::BadOption { option: "ttlMs", given: "0".to_owned(), fix });
        }
        Ok(ConsumerOptions { concurrency: self.concurrency, manual_ack: false })
    }
}

impl Bus {
    /// The dedupe marks of the bus's own store.
    pub fn dedupe(&self) -> StoreDedupe {
        StoreDedupe::new(Arc::clone(&self.groups))
    }

    /// Consumes events, and skips events that are marked in `marks`. An event is marked after its handler
    /// returned `Ok`, and acked after that.
    pub async fn subscribe_exactly_once<H, F, E>(
        &self,
        request: Subscribe,
        options: ExactlyOnce,
        marks: Arc<dyn DedupeStore>,
        handler: H,
    ) -> Result<Consumer, BusError>
    where
        H: Fn(Lease) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Nack> + Send + 'static,
    {
        let consumer = options.consumer()?;
        let handler = Arc::new(handler);
        let once = move |lease: Lease| {
            let (marks, handler) = (Arc::clone(&marks), Arc::clone(&handler));
            let ttl_ms = options.ttl_ms;
            async move {
                let (topic, group, id) = (lease.event.topic.clone(), lease.group().clone(), lease.event.id);
                if marks.seen(&topic, &group, id).await? {
                    return Ok(());
                }
                handler(lease).await.map_err(Into::into)?;
                Ok::<(), Nack>(marks.mark(&topic, &group, id, ttl_ms).await?)
            }
        };
        self.consume(request, consumer, once).await
    }

    /// Consumes events with a handler that returns its effects as a value. The effects and the mark of the
    /// event are written in one commit, so they are written once for each event, even if acks are lost or the
    /// process dies.
    pub async fn transform_exactly_once<H, F, E>(
        &self,
        request: Subscribe,
        options: ExactlyOnce,
        handler: H,
    ) -> Result<Consumer, BusError>
    where
        H: Fn(Lease) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Effects, E>> + Send + 'static,
        E: Into<Nack> + Send + 'static,
    {
        let consumer = options.consumer()?;
        let (groups, handler) = (Arc::clone(&self.groups), Arc::new(handler));
        let once = move |lease: Lease| {
            let (groups, handler) = (Arc::clone(&groups), Arc::clone(&handler));
            let ttl_ms = options.ttl_ms;
            async move {
                let marks = StoreDedupe::new(Arc::clone(&groups));
                if marks.seen(&lease.event.topic, lease.group(), lease.event.id).await? {
                    return Ok(());
                }
                let effects = handler(lease.clone()).await.map_err(Into::into)?;
                effects
                    .commit(&groups, &lease, ttl_ms)
                    .await
                    .map_err(|error| Nack { delay_ms: error.retry_after_ms(), reason: error.to_string() })
            }
        };
        self.consume(request, consumer, once).await
    }
}
