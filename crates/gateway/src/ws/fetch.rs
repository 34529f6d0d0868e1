//! FETCH, for subscriptions that pull: they get events only when the client asks for some.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use promethean_bus::{Lease, Over};
use promethean_model::wire::Corr;
use promethean_model::wire::client::FrameTarget;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::connection::SavedCorr;
use super::output::Output;
use super::subscribe::Subscriptions;
use crate::refusal::Refusal;

/// Events of a FETCH that does not say how many.
const MAX_DEFAULT: usize = 100;
/// How long a FETCH waits for its first event.
const WAIT_MS_DEFAULT: u64 = 1_000;
const WAIT_MS_MAX: u64 = 60_000;

/// A FETCH that is not answered yet.
pub(super) struct Fetch {
    corr: SavedCorr,
    /// The deliveries that arrived for it.
    leases: Vec<Lease>,
    /// Tells the waiting future that the first event arrived.
    arrived: Option<oneshot::Sender<()>>,
}

impl Fetch {
    /// Drops leases that are over.
    pub(super) fn forget(&mut self, over: &Over) {
        self.leases.retain(|lease| !over.contains_lease(lease));
    }

    pub(super) fn put(&mut self, leases: Vec<Lease>) {
        self.leases.extend(leases);
        if let Some(arrived) = self.arrived.take() {
            // The receiver is gone if the FETCH has waited long enough.
            let _ = arrived.send(());
        }
    }

    /// The deliveries to answer the FETCH with.
    pub(super) fn finish(self) -> (SavedCorr, Vec<Lease>) {
        (self.corr, self.leases)
    }

    /// Answers the FETCH of a subscription that is gone.
    pub(super) fn refuse(self, code: &'static str, out: &mut Output) {
        let message = "the subscription ended before there was an event; SUBSCRIBE again";
        out.refuse(self.corr.as_deref(), &Refusal::new(StatusCode::CONFLICT, code, message));
    }
}

/// Every FETCH of a connection that waits for its events, at most one for each subscription.
#[derive(Default)]
pub(super) struct Fetches {
    /// Each yields the number of its subscription when the wait is over.
    waits: FuturesUnordered<Pin<Box<dyn Future<Output = u64> + Send>>>,
}

impl Fetches {
    /// Lets a subscription get events until one has arrived or the wait is over.
    pub(super) fn fetch(
        &mut self,
        subscriptions: &mut Subscriptions,
        corr: Corr<'_>,
        target: &FrameTarget<'_>,
        max: Option<usize>,
        wait_ms: Option<u64>,
    ) -> Result<(), Refusal> {
        let sub = subscriptions.find(target)?;
        if !sub.options.pulls {
            let message =
                "this subscription is given events as they come; SUBSCRIBE with `pull: true` to FETCH";
            return Err(Refusal::bad_request(message));
        }
        if sub.fetch.is_some() {
            let message = "a FETCH of this subscription is under way; wait for its EVENTS";
            return Err(Refusal::new(StatusCode::CONFLICT, "conflict", message));
        }
        let room = sub.options.max_in_flight.saturating_sub(sub.held());
        let max = max.unwrap_or(MAX_DEFAULT).min(room);
        if max == 0 {
            let message = "no event can be given; ask for at least one, and ack some of those in flight";
            return Err(Refusal::bad_request(message));
        }
        let (arrived, has_arrived) = oneshot::channel();
        let corr = corr.map(RawValue::to_owned);
        sub.fetch = Some(Fetch { corr, leases: Vec::new(), arrived: Some(arrived) });
        sub.subscription.grant(max);
        let (number, subscription) = (sub.number, Arc::clone(&sub.subscription));
        let wait = Duration::from_millis(wait_ms.unwrap_or(WAIT_MS_DEFAULT).min(WAIT_MS_MAX));
        self.waits.push(Box::pin(async move {
            // The FETCH is answered with whatever has arrived, also with nothing.
            let _ = tokio::time::timeout(wait, has_arrived).await;
            subscription.ungrant().await;
            number
        }));
        Ok(())
    }

    /// Answers every FETCH whose wait is over; whether there were any.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        subscriptions: &mut Subscriptions,
        out: &mut Output,
    ) -> bool {
        let mut any = false;
        while let Poll::Ready(Some(number)) = self.waits.poll_next_unpin(cx) {
            any = true;
            subscriptions.answer_fetch(number, out);
        }
        any
    }
}
