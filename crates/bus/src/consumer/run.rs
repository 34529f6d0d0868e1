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
    /// Handled, to be acked. Bounded by the member's credit.
    handled: Vec<Lease>,
    /// The ack that is out. Those handled meanwhile go out together when it is durable.
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
        let mut shutdown = self.subscription.link.groups.base.shutdown.subscribe();
        let result = loop {
            self.ack();
            // No more than can begin at once: what waits is better in the inbox, where it can be revoked.
            let free = self.options.concurrency - self.handlers.len().min(self.options.concurrency);
            tokio::select! {
                biased;
                // Dropping the handle stops as well.
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
            // An owner that has ended has taken the event back.
            lease.begin().await.ok()?;
            let given = lease.clone();
            let handled = caught(async move { handler(given).await.map_err(Into::into) }).await;
            let nack: Nack = match handled {
                Ok(Ok(())) => return (!manual_ack).then_some(lease),
                Ok(Err(nack)) => nack,
                Err(panic) => Nack::new(panic),
            };
            last_failure.set(nack.reason);
            // A nack that cannot be told is a lease that runs out.
            let _ = lease.nack(nack.delay_ms).await;
            None
        });
    }

    fn finished(&mut self, joined: Result<Option<Lease>, JoinError>) {
        match joined {
            Ok(handled) => self.handled.extend(handled),
            // Only dropping what a handler left behind can still panic: its lease runs out.
            Err(error) => self.last_failure.set(error.to_string()),
        }
    }

    /// Acks what is handled, unless an ack is out.
    fn ack(&mut self) {
        if self.acking.is_some() || self.handled.is_empty() {
            return;
        }
        let mut leases = std::mem::take(&mut self.handled);
        // Those of one topic are acked together.
        leases.sort_by(|a, b| a.event.topic.cmp(&b.event.topic));
        let link = Arc::clone(&self.subscription.link);
        self.acking = Some(Box::pin(async move { link.ack(&leases).await }));
    }

    /// An ack that failed leaves its events to be delivered again; if the group cannot go on, the subscription ends.
    fn settled(&mut self, settled: Result<Settled, BusError>) {
        if let Err(error) = settled {
            self.last_failure.set(error.to_string());
        }
    }
}

/// Waits for the future and forgets it; for ever if there is none.
async fn ready<T>(future: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    let output = match future {
        Some(future) => future.await,
        None => pending().await,
    };
    *future = None;
    output
}
