//! Subscriptions that pull: they are given events only for a `FETCH`.

use std::time::Duration;

use axum::http::StatusCode;
use promethean_bus::{Lease, Over, SubscriptionItem};
use promethean_model::wire::Corr;
use promethean_model::wire::client::Target;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::connection::{Connection, Kept};
use super::subscriptions::Subscribed;
use crate::refusal::Refusal;

/// Events of a `FETCH` that does not say.
const MAX_DEFAULT: usize = 100;
/// How long a `FETCH` waits for its first event.
const WAIT_MS_DEFAULT: u64 = 1_000;
const WAIT_MS_MAX: u64 = 60_000;

/// A `FETCH` that is not answered yet.
pub(super) struct Fetch {
    corr: Kept,
    /// What has come for it.
    leases: Vec<Lease>,
    /// Told when the first event has come.
    came: Option<oneshot::Sender<()>>,
}

impl Fetch {
    /// Leases that are over are not worth being delivered.
    pub(super) fn forget(&mut self, over: &Over) {
        self.leases.retain(|lease| !over.contains_lease(lease));
    }

    /// Takes what came for it.
    pub(super) fn put(&mut self, leases: Vec<Lease>) {
        self.leases.extend(leases);
        if let Some(came) = self.came.take() {
            // It may have stopped waiting.
            let _ = came.send(());
        }
    }
}

impl Connection {
    /// Lets a subscription be given events, until one has come or it has waited for long enough.
    pub(super) fn fetch(
        &mut self,
        corr: Corr<'_>,
        target: &Target<'_>,
        max: Option<usize>,
        wait_ms: Option<u64>,
    ) -> Result<(), Refusal> {
        let (number, sub) = self.find(target)?;
        let Some(in_flight_max) = sub.pulls.then_some(sub.max_in_flight) else {
            let message =
                "this subscription is given events as they come; SUBSCRIBE with `pull: true` to FETCH";
            return Err(Refusal::bad_request(message));
        };
        if sub.fetch.is_some() {
            let message = "a FETCH of this subscription is under way; wait for its EVENTS";
            return Err(Refusal::new(StatusCode::CONFLICT, "conflict", message));
        }
        let room = in_flight_max.saturating_sub(sub.held());
        let max = max.unwrap_or(MAX_DEFAULT).min(room);
        if max == 0 {
            let message = "no event can be given; ask for at least one, and ack some of those in flight";
            return Err(Refusal::bad_request(message));
        }
        let (came, has_come) = oneshot::channel();
        sub.fetch = Some(Fetch { corr: corr.map(RawValue::to_owned), leases: Vec::new(), came: Some(came) });
        sub.subscription.grant(max);
        let subscription = std::sync::Arc::clone(&sub.subscription);
        let wait = Duration::from_millis(wait_ms.unwrap_or(WAIT_MS_DEFAULT).min(WAIT_MS_MAX));
        self.fetching.push(Box::pin(async move {
            // Whether one came or not, what has come is what there is.
            let _ = tokio::time::timeout(wait, has_come).await;
            subscription.ungrant().await;
            number
        }));
        Ok(())
    }

    /// Answers a `FETCH` for which everything has come.
    pub(super) fn fetched(&mut self, number: u64) {
        while let Some(sub) = self.subscriptions.get_mut(number)
            && let Some(Ok(given)) = sub.subscription.try_take(usize::MAX)
        {
            self.given(number, given);
        }
        let Some(sub) = self.subscriptions.get_mut(number) else { return };
        let Some(Fetch { corr, leases, .. }) = sub.fetch.take() else { return };
        sub.deliver_together(&leases, corr.as_deref(), &mut self.out);
        self.queue(number, leases);
    }

    /// Answers a `FETCH` of a subscription that is gone.
    pub(super) fn unfetched(&mut self, sub: &mut Subscribed, code: &'static str) {
        if let Some(Fetch { corr, .. }) = sub.fetch.take() {
            let message = "the subscription ended before there was an event; SUBSCRIBE again";
            self.refuse(corr.as_deref(), &Refusal::new(StatusCode::CONFLICT, code, message));
        }
    }

    fn given(&mut self, number: u64, given: SubscriptionItem) {
        let came = self.subscriptions.given(number, Ok(given));
        self.came(came);
    }
}
