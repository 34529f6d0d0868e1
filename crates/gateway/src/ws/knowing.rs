//! Who the client is: by the token it shows, looked at again when tokens change.

use std::sync::Arc;
use std::task::{Context, Poll};

use promethean_model::wire::Corr;
use serde_json::value::RawValue;

use super::connection::{Connection, TOO_MANY, UNKNOWN};
use super::requests::Answer;
use super::subscriptions::Subscribed;
use crate::audit::Record;
use crate::auth::{Access, AuthError, Secret, Standing};
use crate::refusal::Refusal;
use crate::usage::accounts::{Account, Place};

impl Connection {
    pub(super) fn authenticate(&mut self, corr: Corr<'_>, token: Option<&str>) {
        self.publishing.hand_over();
        let (app, peer, corr) = (self.app.clone(), self.peer, corr.map(RawValue::to_owned));
        let token = token.map(Secret::from);
        self.first =
            Some(Box::pin(async move { Answer::Known(corr, app.standing(peer, token).await.map(Box::new)) }));
    }

    /// Looks again who the client is, if tokens have changed.
    pub(super) fn poll_standing(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(standing) = &self.standing else { return false };
        if self.asking_again.is_none() {
            let due = standing.is_stale() && self.app.clock.monotonic_ms() >= self.ask_after_ms;
            if !due || self.closing.is_some() {
                return false;
            }
            self.asking_again = Some(standing.again());
        }
        let Some(asking) = &mut self.asking_again else { return false };
        let Poll::Ready(standing) = asking.as_mut().poll(cx) else { return false };
        self.asking_again = None;
        match standing {
            Ok(standing) => self.known_still(standing),
            Err(AuthError::Unavailable) => {
                self.ask_after_ms = self.app.clock.monotonic_ms() + self.app.options.auth_check_every_ms;
            }
            Err(_) => self.give_up(UNKNOWN, "the token is no longer valid"),
        }
        true
    }

    /// The client showed a token: it is known by that if the token may have one more connection.
    pub(super) fn admit(&mut self, standing: Standing) -> Result<(), Refusal> {
        let account = self.app.account(&standing.identity);
        if !self.counts_on(account.as_ref()) {
            let place = account.map(|account| account.connection()).transpose().inspect_err(|_| {
                self.app.metrics.over_quota("connections");
                if self.standing.is_none() {
                    self.closing = Some((TOO_MANY, "the token has as many connections as it may"));
                }
            })?;
            self.count_on(place);
        }
        self.known(standing);
        self.record("AUTH", "ok", None);
        Ok(())
    }

    /// The client is known as before, perhaps with other limits, which do not end what is there.
    fn known_still(&mut self, standing: Standing) {
        let account = self.app.account(&standing.identity);
        if !self.counts_on(account.as_ref()) {
            self.count_on(account.map(|account| account.old_connection()));
        }
        self.known(standing);
    }

    /// The client is known from now on, or again. What it may no longer be subscribed to ends.
    pub(super) fn known(&mut self, standing: Standing) {
        let identity = &standing.identity;
        let now_ms = self.app.clock.wall_ms();
        let for_ms = identity.expires_ms.map(|at| u64::try_from(at.saturating_sub(now_ms)).unwrap_or(0));
        self.timing.known(self.app.clock.monotonic_ms(), for_ms);
        self.socket.allow(self.app.options.message_bytes_max);
        self.last_topic = None;
        let may = |sub: &Subscribed| {
            let subscription = &sub.subscription;
            identity.may(&Access::Subscribe(subscription.subject(), Some(subscription.group())))
        };
        for mut removed in self.subscriptions.remove_unless(may) {
            removed.subscription.unsubscribe();
            self.unfetched(&mut removed, "forbidden");
            self.refuse(None, &Refusal::forbidden_on("subscribe", removed.subscription.subject()));
        }
        // Whoever is being asked for is not who it is now.
        self.asking_again = None;
        self.standing = Some(standing);
    }

    pub(super) fn account(&self) -> Option<&Arc<Account>> {
        self.place.as_ref().map(Place::account)
    }

    fn counts_on(&self, account: Option<&Arc<Account>>) -> bool {
        self.account().map(Arc::as_ptr) == account.map(Arc::as_ptr)
    }

    /// From now on the connection and its subscriptions count there.
    fn count_on(&mut self, place: Option<Place>) {
        self.subscriptions.move_to(place.as_ref().map(Place::account));
        self.place = place;
    }

    pub(super) fn may(&self, access: &Access<'_>) -> bool {
        self.standing.as_ref().is_some_and(|standing| self.app.may(&standing.identity, access))
    }

    /// Writes down what the client did, if that is wanted.
    pub(super) fn record(&self, what: &'static str, outcome: &'static str, on: Option<&str>) {
        let who = || self.standing.as_ref().map(|standing| Arc::clone(&standing.identity.name));
        self.app.record(|| Record {
            who: who(),
            on: on.map(str::to_owned),
            ..Record::new(self.peer, what, outcome)
        });
    }
}
