//! A publisher with a rate and an order of its own, such as a connection.

use std::sync::Arc;

use tokio::sync::Mutex as AsyncMutex;

use super::prepare::Prepared;
use super::{Publish, Published, commit_batch, commit_each, prepare_batch, prepare_rated};
use crate::error::{BusError, RateOwner};
use crate::limits::{Bucket, Rate};
use crate::schemas::Schemas;
use crate::topics::LastSettings;

/// Publishes through a bus, no faster than its rate.
#[derive(Debug)]
pub struct Publisher {
    schemas: Arc<Schemas>,
    bucket: Option<Bucket>,
    /// Held while events are handed to the store, so that commits that are under way at once keep their order.
    line: Arc<AsyncMutex<()>>,
}

/// An event that was checked and can be committed, or the reason why it cannot.
#[derive(Debug)]
pub struct Ready(Result<Prepared, BusError>);

impl Publisher {
    pub(crate) fn new(schemas: Arc<Schemas>, rate: Option<Rate>) -> Self {
        let now_ms = schemas.base.clock.monotonic_ms();
        Self { bucket: rate.map(|rate| Bucket::new(rate, now_ms)), schemas, line: Arc::default() }
    }

    /// Publishes one event.
    pub async fn publish(&self, event: Publish<'_>) -> Result<Published, BusError> {
        let published = self.publish_each(vec![event]).await;
        published.into_iter().next().unwrap_or(Err(BusError::Closed))
    }

    /// Publishes events that do not depend on each other, in their order. An event beyond the rate is refused; the others
    /// are published.
    pub async fn publish_each(&self, events: Vec<Publish<'_>>) -> Vec<Result<Published, BusError>> {
        let mut settings = LastSettings::new(&self.schemas.topics);
        let ready = events.into_iter().map(|event| self.prepare(event, &mut settings)).collect();
        commit_each(&self.schemas, ready, None).await
    }

    /// Publishes events in one commit: all of them or none.
    pub async fn publish_batch(&self, events: Vec<Publish<'_>>) -> Result<Vec<Published>, BusError> {
        let prepared = self.take(&events).and_then(|()| prepare_batch(&self.schemas, events));
        commit_batch(&self.schemas, prepared, None).await
    }

    /// Checks an event now, so that the bytes it was read from need not be kept until it is committed.
    pub fn check(&self, event: Publish<'_>) -> Ready {
        Ready(self.prepare(event, &mut LastSettings::new(&self.schemas.topics)))
    }

    /// Commits events that do not depend on each other. Several such calls may be under way: the log has their events in
    /// the order in which the futures were polled first.
    pub fn commit_each(
        &self,
        events: Vec<Ready>,
    ) -> impl Future<Output = Vec<Result<Published, BusError>>> + Send + use<> {
        let (schemas, line) = (Arc::clone(&self.schemas), Arc::clone(&self.line));
        async move {
            let turn = line.lock_owned().await;
            let events = events.into_iter().map(|Ready(event)| event).collect();
            commit_each(&schemas, events, Some(turn)).await
        }
    }

    /// Checks events now and commits them in one commit, all of them or none; in order with [`Publisher::commit_each`].
    pub fn commit_batch(
        &self,
        events: Vec<Publish<'_>>,
    ) -> impl Future<Output = Result<Vec<Published>, BusError>> + Send + use<> {
        let (schemas, line) = (Arc::clone(&self.schemas), Arc::clone(&self.line));
        let prepared = self.take(&events).and_then(|()| prepare_batch(&schemas, events));
        async move {
            let turn = line.lock_owned().await;
            commit_batch(&schemas, prepared, Some(turn)).await
        }
    }

    fn prepare(&self, event: Publish<'_>, settings: &mut LastSettings<'_>) -> Result<Prepared, BusError> {
        self.take(std::slice::from_ref(&event))?;
        prepare_rated(&self.schemas, event, settings)
    }

    /// Takes the tokens of the events from the publisher's own rate.
    fn take(&self, events: &[Publish<'_>]) -> Result<(), BusError> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        let base = &self.schemas.base;
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        bucket.take(count, base.clock.monotonic_ms()).map_err(|refused| {
            for event in events {
                base.metrics.topic(event.topic()).rate_limited.inc();
            }
            refused.of(RateOwner::Connection)
        })
    }
}
