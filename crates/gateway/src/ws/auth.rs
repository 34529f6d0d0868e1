//! Who the client is: by the token it shows, looked at again when tokens change.

use std::sync::Arc;
use std::task::{Context, Poll};

use promethean_model::wire::Corr;
use serde_json::value::RawValue;

use super::connection::{Connection, TOO_MANY, UNKNOWN};
use super::requests::Answer;
use super::subscribe::ClientSubscription;
use crate::audit::Record;
use crate::auth::{Access, AuthError, AuthSession, Secret};
use crate::refusal::Refusal;
use crate::usage::accounts::{Account, QuotaPermit};

impl Connection {
    pub(super) fn authenticate(&mut self, corr: Corr<'_>, token: Option<&str>) {
        self.publishing.hand_over();
        let (app, peer, corr) = (self.app.clone(), self.peer, corr.map(RawValue::to_owned));
        let token = token.map(Secret::from);
        self.first =
            Some(Box::pin(async move { Answer::Known(corr, app.session(peer, token).await.map(Box::new)) }));
    }

    /// Looks again who the client is, if tokens have changed.
    pub(super) fn poll_standing(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(session) = &self.session else { return false };
        if self.asking_again.is_none() {
            let due = session.is_stale() && self.app.clock.monotonic_ms() >= self.ask_after_ms;
            if !due || self.closing.is_some() {
                return false;
            }
            self.asking_again = Some(session.again());
        }
        let Some(asking) = &mut self.asking_again else { return false };
        let Poll::Ready(session) = asking.as_mut().poll(cx) else { return false };
        self.asking_again = None;
        match session {
            Ok(session) => self.known_still(session),
            Err(AuthError::Unavailable) => {
                self.ask_after_ms = self.app.clock.monotonic_ms() + self.app.options.auth_check_every_ms;
            }
            Err(_) => self.give_up(UNKNOWN, "the token is no longer valid"),
        }
        true
    }

    /// The client showed a token: it is known by that if the token may have one more connection.
    pub(super) fn admit(&mut self, session: AuthSession) -> Result<(), Refusal> {
        let account = self.app.account(&session.identity);
        if !self.counts_on(account.as_ref()) {
            let place = account.map(|account| account.connection()).transpose().inspect_err(|_| {
                self.app.metrics.over_quota("connections");
                if self.session.is_none() {
                    self.closing = Some((TOO_MANY, "the token has as many connections as it may"));
                }
            })?;
            self.count_on(place);
        }
        self.known(session);
        self.record("AUTH", "ok", None);
        Ok(())
    }

    /// The client is known as before, perhaps with other limits, which do not end what is there.
    fn known_still(&mut self, session: AuthSession) {
        let account = self.app.account(&session.identity);
        if !self.counts_on(account.as_ref()) {
            self.count_on(account.map(|account| account.old_connection()));
        }
        self.known(session);
    }

    /// The client is known from now on, or again. What it may no longer be subscribed to ends.
    pub(super) fn known(&mut self, session: AuthSession) {
        let identity = &session.identity;
        let now_ms = self.app.clock.wall_ms();
        let for_ms = identity.expires_ms.map(|at| u64::try_from(at.saturating_sub(now_ms)).unwrap_or(0));
        self.deadlines.known(self.app.clock.monotonic_ms(), for_ms);
        self.socket.allow(self.app.options.message_bytes_max);
        self.last_topic = None;
        let may = |sub: &ClientSubscription| {
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
        self.session = Some(session);
    }

    pub(super) fn account(&self) -> Option<&Arc<Account>> {
        self.place.as_ref().map(QuotaPermit::account)
    }

    fn counts_on(&self, account: Option<&Arc<Account>>) -> bool {
        self.account().map(Arc::as_ptr) == account.map(Arc::as_ptr)
    }

    /// From now on the connection and its subscriptions count there.
    fn count_on(&mut self, place: Option<QuotaPermit>) {
        self.subscriptions.move_to(place.as_ref().map(QuotaPermit::account));
        self.place = place;
    }

    pub(super) fn may(&self, access: &Access<'_>) -> bool {
        self.session.as_ref().is_some_and(|session| self.app.may(&session.identity, access))
    }

    /// Writes down what the client did, if that is wanted.
    pub(super) fn record(&self, what: &'static str, outcome: &'static str, on: Option<&str>) {
        let who = || self.session.as_ref().map(|session| Arc::clone(&session.identity.name));
        self.app.record(|| Record {
            who: who(),
            on: on.map(str::to_owned),
            ..Record::new(self.peer, what, outcome)
        });
    }
}
