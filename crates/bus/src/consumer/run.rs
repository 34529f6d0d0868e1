//! The task of a consumer.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};

use super::panics::caught;
use super::{ConsumerOptions, LastFailure, Nack};
use crate::error::BusError;
use crate::groups::Settled;
use crate::subscription::{Lease, Subscription, SubscriptionItem};

type Acking = Pin<Box<dyn Future<Output = Result<Settled, BusError>> + Send>>;

pub(super) struct Runner<H> {
    subscription: Subscription,
    handler: Arc<H>,
    options: ConsumerOptions,
    last_failure: LastFailure,
    handlers: JoinSet<Option<Lease>>,
    /// Handled events that must be acked. Their number is bounded by the member's credit.
    handled: Vec<Lease>,
    /// The ack in flight. Events that are handled meanwhile are acked together when it is durable.
    acking: Option<Acking>,
}

impl<H, F, E> Runner<H>
where
    H: Fn(Lease) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<Nack> + Send + 'static,
{
    pub(super) fn new(
        subscription: Subscription,
        handler: H,
        options: ConsumerOptions,
        last_failure: LastFailure,
    ) -> Self {
        Self {
            subscription,
            handler: Arc::new(handler),
            options,
            last_failure,
            handlers: JoinSet::new(),
            handled: Vec::new(),
            acking: None,
        }
    }

    /// Runs until it is told to stop, the bus closes or the subscription ends.
    pub(super) async fn run(mut self, mut stopped: oneshot::Receiver<()>) -> Result<(), BusError> {
        let mut shutdown = self.subscription.membership.groups.base.shutdown.subscribe();
        let result = loop {
            self.ack();
            // Takes no more events than handlers can start now: events that wait in the inbox can still be
            // revoked.
            let free = self.options.concurrency - self.handlers.len().min(self.options.concurrency);
            tokio::select! {
                biased;
                // Also ready when the handle is dropped.
                _ = &mut stopped => break Ok(()),
                _ = shutdown.wait_for(|closing| *closing) => break Ok(()),
                Some(joined) = self.handlers.join_next() => self.finished(joined),
                settled = ready(&mut self.acking) => self.settled(settled),
                given = self.subscription.take(free), if free > 0 => match given {
                    Ok(SubscriptionItem::Leases(leases)) => leases.into_iter().for_each(|lease| self.start(lease)),
                    Ok(SubscriptionItem::Rebalance { .. } | SubscriptionItem::Over(_)) => {}
                    Err(why) => break Err(why),
                },
            }
        };
        while let Some(joined) = self.handlers.join_next().await {
            self.finished(joined);
        }
        self.ack();
        while self.acking.is_some() {
            let settled = ready(&mut self.acking).await;
            self.settled(settled);
            self.ack();
        }
        self.subscription.unsubscribe();
        result
    }

    fn start(&mut self, lease: Lease) {
        let (handler, last_failure) = (Arc::clone(&self.handler), self.last_failure.clone());
        let manual_ack = self.options.manual_ack;
        self.handlers.spawn(async move {
            // If the owner has ended, its leases are over.
            lease.begin().await.ok()?;
            let given = lease.clone();
            let handled = caught(async move { handler(given).await.map_err(Into::into) }).await;
            let nack: Nack = match handled {
                Ok(Ok(())) => return (!manual_ack).then_some(lease),
                Ok(Err(nack)) => nack,
                Err(panic) => Nack::new(panic),
            };
            // If the nack cannot be sent, the lease expires instead.
            let _ = lease.nack_because(nack.delay_ms, &nack.reason).await;
            last_failure.set(nack.reason);
            None
        });
    }

    fn finished(&mut self, joined: Result<Option<Lease>, JoinError>) {
        match joined {
            Ok(handled) => self.handled.extend(handled),
            // `caught` catches panics of the handler; only a drop after it can still panic. Then the lease
            // expires.
            Err(error) => self.last_failure.set(error.to_string()),
        }
    }

    /// Acks the handled events, unless an ack is in flight.
    fn ack(&mut self) {
        if self.acking.is_some() || self.handled.is_empty() {
            return;
        }
        let mut leases = std::mem::take(&mut self.handled);
        // Sorted by topic, so that the events of one topic are acked together.
        leases.sort_by(|a, b| a.event.topic.cmp(&b.event.topic));
        let membership = Arc::clone(&self.subscription.membership);
        self.acking = Some(Box::pin(async move { membership.ack(&leases).await }));
    }

    /// Records the error of an ack. Its events are delivered again; if the owner cannot continue, the
    /// subscription ends.
    fn settled(&mut self, settled: Result<Settled, BusError>) {
        if let Err(error) = settled {
            self.last_failure.set(error.to_string());
        }
    }
}

/// Waits for the future and then removes it. Without a future it waits forever.
async fn ready<T>(future: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    let output = match future {
        Some(future) => future.await,
        None => pending().await,
    };
    *future = None;
    output
}
