//! AUTH: who the client is, by the token it showed. The token is checked again when tokens change.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use promethean_bus::publish::Publish;
use promethean_delivery::Subject;
use promethean_model::TopicName;
use tungstenite::protocol::frame::coding::CloseCode;

use super::connection::{PendingOp, PendingOutcome, TOO_MANY, UNKNOWN};
use super::subscribe::Subscriptions;
use crate::app::App;
use crate::audit::AuditRecord;
use crate::auth::{Access, AuthError, AuthRecheck, AuthSession, IdentityKind, Secret};
use crate::metrics::UsageLimit;
use crate::refusal::Refusal;
use crate::usage::accounts::{Account, QuotaPermit};

/// Invalid tokens after which the connection is closed.
const FAILURES_MAX: u32 = 3;

/// The identity behind a connection, and what its token may do and use.
pub(super) struct ClientAuth {
    pub(super) app: App,
    peer: IpAddr,
    /// `None` until the client has shown a valid token.
    session: Option<AuthSession>,
    /// Looks the token up again because tokens have changed. Until this ends, nothing is read or delivered.
    recheck: Option<AuthRecheck>,
    /// The next recheck does not start before this time, because the last one could not check the token.
    recheck_after_ms: u64,
    /// Invalid tokens that the client has shown.
    failures: u32,
    /// Counts this connection for the account of the token; `None` if the token has no quota.
    permit: Option<QuotaPermit>,
}

impl ClientAuth {
    /// A client that has not shown a token yet.
    pub(super) fn new(app: App, peer: IpAddr, permit: Option<QuotaPermit>) -> Self {
        Self { app, peer, session: None, recheck: None, recheck_after_ms: 0, failures: 0, permit }
    }

    pub(super) fn is_known(&self) -> bool {
        self.session.is_some()
    }

    pub(super) fn is_rechecking(&self) -> bool {
        self.recheck.is_some()
    }

    pub(super) fn cancel_recheck(&mut self) {
        self.recheck = None;
    }

    /// Looks up the token of an AUTH frame.
    pub(super) fn authenticate(&self, token: Option<&str>) -> PendingOp {
        let (app, peer, token) = (self.app.clone(), self.peer, token.map(Secret::from));
        Box::pin(async move {
            let session = app.session(peer, token).await;
            PendingOutcome::Authenticated(session.map(Box::new))
        })
    }

    /// Counts a token that was refused; says how to close the connection if there were too many.
    pub(super) fn refused(&mut self, error: &AuthError) -> Option<(CloseCode, &'static str)> {
        // A token that could not be checked is not a guess.
        self.failures += u32::from(matches!(error, AuthError::BadToken(_) | AuthError::Missing));
        if matches!(error, AuthError::TooMany { .. }) && !self.is_known() {
            return Some((TOO_MANY, "too many tokens that are not valid came from this address"));
        }
        (self.failures >= FAILURES_MAX).then_some((UNKNOWN, "too many tokens that are not valid"))
    }

    /// Looks the token up again if tokens have changed. A recheck starts only if `may_start`.
    pub(super) fn poll_recheck(
        &mut self,
        cx: &mut Context<'_>,
        may_start: bool,
    ) -> Poll<Result<AuthSession, AuthError>> {
        let Some(session) = &self.session else { return Poll::Pending };
        if self.recheck.is_none() {
            let is_due = session.is_stale() && self.app.clock.monotonic_ms() >= self.recheck_after_ms;
            if !is_due || !may_start {
                return Poll::Pending;
            }
            self.recheck = Some(session.recheck());
        }
        let Some(recheck) = &mut self.recheck else { return Poll::Pending };
        let result = std::task::ready!(recheck.as_mut().poll(cx));
        self.recheck = None;
        if let Err(AuthError::Unavailable) = result {
            self.recheck_after_ms = self.app.clock.monotonic_ms() + self.app.options.auth_check_every_ms;
        }
        Poll::Ready(result)
    }

    /// Counts the connection and its subscriptions for the account of this session, if its quota has room for
    /// one more connection.
    pub(super) fn count_new(
        &mut self,
        session: &AuthSession,
        subscriptions: &mut Subscriptions,
    ) -> Result<(), Refusal> {
        let account = self.app.account(&session.identity);
        if !self.counts_for(account.as_ref()) {
            let permit = account.map(|account| account.connection()).transpose();
            let permit = permit.inspect_err(|_| self.app.metrics.over_quota(UsageLimit::Connections))?;
            self.count_for(permit, subscriptions);
        }
        Ok(())
    }

    /// Counts the connection and its subscriptions for the account of this session, even beyond its quota: a
    /// smaller quota does not end a connection that is open.
    pub(super) fn count_open(&mut self, session: &AuthSession, subscriptions: &mut Subscriptions) {
        let account = self.app.account(&session.identity);
        if !self.counts_for(account.as_ref()) {
            self.count_for(account.map(|account| account.open_connection()), subscriptions);
        }
    }

    fn counts_for(&self, account: Option<&Arc<Account>>) -> bool {
        self.account().map(Arc::as_ptr) == account.map(Arc::as_ptr)
    }

    fn count_for(&mut self, permit: Option<QuotaPermit>, subscriptions: &mut Subscriptions) {
        subscriptions.count_for(permit.as_ref().map(QuotaPermit::account));
        self.permit = permit;
    }

    /// The client is the identity of this session from now on. A recheck of the session before is dropped.
    pub(super) fn set_session(&mut self, session: AuthSession) {
        self.recheck = None;
        self.session = Some(session);
    }

    /// The name of the token; `None` on a server without tokens.
    pub(super) fn name(&self) -> Option<&str> {
        let identity = self.session.as_ref().map(|session| &session.identity)?;
        (identity.kind != IdentityKind::Open).then_some(&*identity.name)
    }

    /// The account of the token, if it has a quota.
    pub(super) fn account(&self) -> Option<&Arc<Account>> {
        self.permit.as_ref().map(QuotaPermit::account)
    }

    /// Whether the client may do this.
    pub(super) fn may(&self, access: &Access<'_>) -> bool {
        self.session.as_ref().is_some_and(|session| self.app.may(&session.identity, access))
    }

    /// Why the client may not publish to a topic.
    pub(super) fn forbidden_to_publish(&self, topic: TopicName) -> Refusal {
        let granted = |session: &AuthSession| session.identity.may(&Access::Publish(&topic));
        match self.session.as_ref().is_some_and(granted) {
            true => Refusal::audit_topic(&topic),
            false => Refusal::forbidden_on("publish", &Subject::Topic(topic)),
        }
    }

    /// Why the client may not manage a topic or the topics of a pattern.
    pub(super) fn forbidden_to_manage(&self, subject: &Subject) -> Refusal {
        let granted = |session: &AuthSession| session.identity.may(&Access::Manage(subject));
        match subject {
            Subject::Topic(topic) if self.session.as_ref().is_some_and(granted) => {
                Refusal::audit_topic(topic)
            }
            Subject::Topic(_) | Subject::Pattern(_) => Refusal::forbidden_on("manage", subject),
        }
    }

    /// Takes these events, sent in so many bytes, from the quota of the token.
    pub(super) fn pay_for(&self, events: &[Publish<'_>], bytes: usize) -> Result<(), Refusal> {
        let Some(account) = self.account() else { return Ok(()) };
        let is_admin = self.may(&Access::Admin);
        self.app.pay_for(account, is_admin, events.iter().map(Publish::topic), (events.len(), bytes))
    }

    /// Writes to the audit topic what the client did, if there is one.
    pub(super) fn record(&self, what: &'static str, outcome: &'static str, on: Option<&str>) {
        self.app.record(|| AuditRecord { on: on.map(str::to_owned), ..self.audit_record(what, outcome) });
    }

    /// An audit record of this client.
    pub(super) fn audit_record(&self, what: &'static str, outcome: &'static str) -> AuditRecord {
        let identity = self.session.as_ref().map(|session| &session.identity);
        AuditRecord::new(self.peer, what, outcome).by(identity)
    }
}
