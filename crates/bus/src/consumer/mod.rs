//! Consumers: they run a handler for every event of a subscription.

mod panics;
mod run;

use std::future::Future;
use std::sync::{Arc, Mutex};

use promethean_model::IgnorePoison;
use tokio::sync::oneshot;

use self::run::Runner;
use crate::bus::Bus;
use crate::error::BusError;
use crate::subscription::Lease;
use crate::subscription::Subscribe;

/// The most handlers that a consumer runs at a time.
const CONCURRENCY_MAX: usize = 10_000;

/// How a consumer runs its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerOptions {
    /// How many events are handled at a time. With more than one, events finish out of order, except events
    /// of one key in a group with the order `key`. Default: 1. Minimum: 1. Maximum: 10,000.
    pub concurrency: usize,
    /// Whether the handler acks events itself. If not, an event is acked when its handler returns `Ok`.
    /// Default: false.
    pub manual_ack: bool,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self { concurrency: 1, manual_ack: false }
    }
}

/// The error that a handler returns for an event that it could not handle. Every error converts to it, so `?`
/// works in handlers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nack {
    /// Why the handler failed, for [`Consumer::last_failure`] and for the dead letter, which keeps 1 KiB of it.
    pub reason: String,
    /// How long to wait before the event is delivered again; `None` means the server's backoff.
    pub delay_ms: Option<u64>,
}

impl Nack {
    /// A nack whose event is delivered again after the server's backoff.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), delay_ms: None }
    }

    /// Sets how long to wait before the event is delivered again.
    #[must_use]
    pub fn after_ms(mut self, delay_ms: u64) -> Self {
        self.delay_ms = Some(delay_ms);
        self
    }
}

impl<E: std::error::Error> From<E> for Nack {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// A running consumer. Dropping it stops it too, without waiting.
#[derive(Debug)]
pub struct Consumer {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<Result<(), BusError>>,
    last_failure: LastFailure,
}

/// The reason of the last failed event, shared between a consumer and its handle.
#[derive(Debug, Clone, Default)]
struct LastFailure(Arc<Mutex<Option<String>>>);

impl Bus {
    /// Becomes a member of a group and runs `handler` for every event that it receives: `Ok` acks the event,
    /// `Err` and a panic nack it. An event's lease begins when its handler starts. The `manual_ack` of the
    /// member's options is ignored; the one of `options` counts.
    pub async fn consume<H, F, E>(
        &self,
        mut request: Subscribe,
        options: ConsumerOptions,
        handler: H,
    ) -> Result<Consumer, BusError>
    where
        H: Fn(Lease) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Nack> + Send + 'static,
    {
        if !(1..=CONCURRENCY_MAX).contains(&options.concurrency) {
            return Err(BusError::BadOption {
                option: "concurrency",
                given: options.concurrency.to_string(),
                fix: "give a number from 1 to 10000",
            });
        }
        // An automatic ack would come before the handler runs, and the handler may fail.
        request.member.manual_ack = true;
        let subscription = self.subscribe(request).await?;
        let last_failure = LastFailure::default();
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let runner = Runner::new(subscription, handler, options, last_failure.clone());
        self.groups.base.consumers.spawn(async move {
            let result = runner.run(stopped).await;
            // A failed send means that no caller waits for the end.
            let _ = end.send(result);
        });
        Ok(Consumer { stop, ended, last_failure })
    }
}

impl Consumer {
    /// Waits until the running handlers finish, acks their events, gives all other events back without
    /// counting them as failed, and leaves the group. An error says why the consumer had already ended.
    pub async fn stop(self) -> Result<(), BusError> {
        // A failed send means that the consumer has ended already.
        let _ = self.stop.send(());
        self.ended.await.unwrap_or(Err(BusError::Closed))
    }

    /// Waits until the consumer ends by itself: because its topic or group is gone, the store failed, or the
    /// bus was closed. A closed bus is no error.
    pub async fn ended(&mut self) -> Result<(), BusError> {
        (&mut self.ended).await.unwrap_or(Err(BusError::Closed))
    }

    /// Why the last failed event failed.
    pub fn last_failure(&self) -> Option<String> {
        self.last_failure.0.lock().ignore_poison().clone()
    }
}

impl LastFailure {
    fn set(&self, reason: String) {
        *self.0.lock().ignore_poison() = Some(reason);
    }
}
