//! A publisher with a rate of its own, such as a connection.

use crate::bus::Bus;
use crate::error::BusError;
use crate::limits::{Bucket, Rate};
use crate::publish::{Publish, Published};

/// Publishes through a bus, no faster than its rate.
#[derive(Debug)]
pub struct Publisher {
    bus: Bus,
    bucket: Option<Bucket>,
}

impl Bus {
    /// A publisher of its own; `None` lets it be as fast as it can.
    pub fn publisher(&self, rate: Option<Rate>) -> Publisher {
        let now_ms = self.core.clock.monotonic_ms();
        Publisher { bus: self.clone(), bucket: rate.map(|rate| Bucket::new(rate, now_ms)) }
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
