//! A publisher with a rate of its own, such as a connection.

use std::sync::Arc;

use tokio::sync::Mutex as AsyncMutex;

use crate::bus::Bus;
use crate::error::BusError;
use crate::limits::{Bucket, Rate};
use crate::publish::{Prepared, Publish, Published};
use crate::publishing::{self, LastSettings};

/// Publishes through a bus, no faster than its rate.
#[derive(Debug)]
pub struct Publisher {
    bus: Bus,
    bucket: Option<Bucket>,
    /// Who may hand events over, for those that have several commits under way.
    line: Arc<AsyncMutex<()>>,
}

/// An event that was checked and can be committed, or why it cannot.
#[derive(Debug)]
pub struct Ready(Result<Prepared, BusError>);

impl Bus {
    /// A publisher of its own; `None` lets it be as fast as it can.
    pub fn publisher(&self, rate: Option<Rate>) -> Publisher {
        let now_ms = self.core.clock.monotonic_ms();
        let bucket = rate.map(|rate| Bucket::new(rate, now_ms));
        Publisher { bus: self.clone(), bucket, line: Arc::default() }
    }
}

impl Publisher {
    /// Publishes one event.
    pub async fn publish(&self, event: Publish<'_>) -> Result<Published, BusError> {
        self.take(std::slice::from_ref(&event))?;
        self.bus.publish(event).await
    }

    /// Publishes events that do not depend on each other, in their order. Those beyond the rate are refused, the others
    /// are not.
    pub async fn publish_each(&self, events: Vec<Publish<'_>>) -> Vec<Result<Published, BusError>> {
        if self.bucket.is_none() {
            return self.bus.publish_each(events).await;
        }
        let mut refused = Vec::new();
        let mut accepted = Vec::with_capacity(events.len());
        let count = events.len();
        for (index, event) in events.into_iter().enumerate() {
            match self.take(std::slice::from_ref(&event)) {
                Ok(()) => accepted.push(event),
                Err(error) => refused.push((index, error)),
            }
        }
        let mut published = self.bus.publish_each(accepted).await.into_iter();
        let mut refused = refused.into_iter().peekable();
        (0..count)
            .map(|index| match refused.next_if(|(at, _)| *at == index) {
                Some((_, error)) => Err(error),
                None => published.next().unwrap_or(Err(BusError::Closed)),
            })
            .collect()
    }

    /// Publishes events in one commit: all of them or none.
    pub async fn publish_batch(&self, events: Vec<Publish<'_>>) -> Result<Vec<Published>, BusError> {
        self.take(&events)?;
        self.bus.publish_batch(events).await
    }

    /// Checks an event now, so that what it was read from need not be kept until it is committed.
    pub fn check(&self, event: Publish<'_>) -> Ready {
        let core = &self.bus.core;
        let taken = self.take(std::slice::from_ref(&event));
        Ready(taken.and_then(|()| publishing::prepare(core, event, &mut LastSettings::new(core), true)))
    }

    /// Commits events that do not depend on each other. Several such calls may be under way: their events are in the
    /// log in the order in which the futures were polled first.
    pub fn commit_each(
        &self,
        events: Vec<Ready>,
    ) -> impl Future<Output = Vec<Result<Published, BusError>>> + Send + use<> {
        let (core, line) = (Arc::clone(&self.bus.core), Arc::clone(&self.line));
        async move {
            let turn = line.lock_owned().await;
            let events = events.into_iter().map(|Ready(event)| event).collect();
            publishing::commit_each(&core, events, Some(turn)).await
        }
    }

    /// Commits events in one commit, all of them or none, checked now; in order with [`Publisher::commit_each`].
    pub fn commit_batch(
        &self,
        events: Vec<Publish<'_>>,
    ) -> impl Future<Output = Result<Vec<Published>, BusError>> + Send + use<> {
        let (core, line) = (Arc::clone(&self.bus.core), Arc::clone(&self.line));
        let prepared = self.take(&events).and_then(|()| publishing::prepare_batch(&core, events));
        async move {
            let turn = line.lock_owned().await;
            publishing::commit_batch(&core, prepared, Some(turn)).await
        }
    }

    fn take(&self, events: &[Publish<'_>]) -> Result<(), BusError> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        bucket.take(count, self.bus.core.clock.monotonic_ms()).map_err(|refused| {
            let error = BusError::from(refused);
            for event in events {
                self.bus.core.metrics.topic(event.topic()).rate_limited.inc();
            }
            self.bus.core.metrics.rejected(&error);
            error
        })
    }
}
