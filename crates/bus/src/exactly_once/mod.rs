//! Consumers whose events count once, however often they are delivered.
//!
//! Delivery is at least once: an ack can be lost, a lease can run out while its handler works on. Two helpers make
//! something better of it:
//!
//! - [`Bus::subscribe_exactly_once`] marks an event after its handler and skips marked ones. A crash between handler and
//!   mark, or two handlers of one event at the same time, run the handler twice: its effects are somewhere else, and
//!   nothing commits them together with the mark.
//! - [`Bus::transform_exactly_once`] takes the handler's effects as a value and commits them with the mark, in one
//!   commit that is refused if the mark is there. So they happen once, whatever is lost.

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

/// How long an event is remembered as done where nothing else is asked for: 7 days.
pub const DEDUPE_TTL_MS_DEFAULT: u64 = 7 * 24 * 60 * 60 * 1000;

/// How events are remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactlyOnce {
    /// How long a mark lasts: longer than an event can be redelivered, redriven or sought back to. Default: 7 days.
    /// Minimum: 1 ms.
    pub ttl_ms: u64,
    /// Events handled at a time, as in [`ConsumerOptions`]. Default: 1.
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

    /// Consumes events, skipping those that `marks` knows. An event is marked after its handler returned `Ok`, and acked
    /// only then.
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

    /// Consumes events whose handler returns what is to be written. That and the mark of the event are one commit, so
    /// what is written is written once for each event, also where acks are lost or the process dies.
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
