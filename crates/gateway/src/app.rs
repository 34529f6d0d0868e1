//! What connections and requests share.

use std::net::IpAddr;
use std::sync::Arc;

use promethean_bus::Bus;
use promethean_model::{Clock, Offset, TopicName};
use promethean_projections::Projections;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::{Audit, Record};
use crate::auth::{Access, AuthError, AuthSession, Authenticator, Identity, Secret};
use crate::listen::origin::Origins;
use crate::metrics::{GatewayMetrics, UsageLimit};
use crate::options::GatewayOptions;
use crate::refusal::Refusal;
use crate::usage::accounts::{Account, Accounts};
use crate::usage::failures::Failures;

/// Shared by everything that serves. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) inner: Arc<Inner>,
}

/// The parts of an [`App`].
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) bus: Bus,
    /// What is derived from its events; `None` where nothing is.
    pub(crate) projections: Option<Projections>,
    pub(crate) auth: Arc<dyn Authenticator>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: GatewayOptions,
    /// Which pages browsers may connect for.
    pub(crate) origins: Origins,
    pub(crate) metrics: GatewayMetrics,
    /// Which addresses show tokens that are not valid.
    pub(crate) failures: Failures,
    /// What identities use.
    pub(crate) accounts: Accounts,
    /// Where it is written who did what, if anywhere.
    pub(crate) audit: Option<Audit>,
    /// Everything that was spawned; joined at shutdown.
    pub(crate) tasks: TaskTracker,
    /// Set when the gateway stops.
    pub(crate) stopping: CancellationToken,
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

/// A token with so many bytes is not guessed. Shorter ones may be words.
const UNGUESSABLE_BYTES: usize = 32;

impl App {
    /// Who has this token, seen from that address. From an address that guesses, tokens that can be guessed are not even
    /// looked at; others are, and those that were good before, so that nobody is kept out by a neighbour.
    pub(crate) async fn identify(&self, peer: IpAddr, token: Option<&str>) -> Result<Identity, AuthError> {
        let now_ms = self.clock.monotonic_ms();
        let short = token.filter(|token| token.len() < UNGUESSABLE_BYTES);
        if let Some(token) = short
            && let Some(retry_after_ms) = self.failures.wait_ms(peer, now_ms)
            && !self.failures.was_good(token)
        {
            self.metrics.over_quota(UsageLimit::AuthFailures);
            return Err(AuthError::TooMany { retry_after_ms });
        }
        let known = self.auth.authenticate(token).await;
        if let Err(error @ AuthError::BadToken(_)) = &known {
            if let Some(retry_after_ms) = self.failures.failed(peer, now_ms) {
                self.metrics.over_quota(UsageLimit::AuthFailures);
                return Err(AuthError::TooMany { retry_after_ms });
            }
            // Only those that count: others could be any number.
            self.record(|| Record::new(peer, "auth", error.code()));
        }
        if let (Some(token), Ok(_)) = (short, &known) {
            self.failures.good(token);
        }
        known
    }

    /// Writes down who did what, if that is wanted.
    pub(crate) fn record(&self, record: impl FnOnce() -> Record) {
        if let Some(audit) = &self.audit {
            audit.put(record());
        }
    }

    /// Whether an identity may.
    pub(crate) fn may(&self, identity: &Identity, access: &Access<'_>) -> bool {
        identity.may(access) && self.audit.as_ref().is_none_or(|audit| audit.lets(identity, access))
    }

    /// As [`App::identify`], of a client that stays.
    pub(crate) async fn session(
        &self,
        peer: IpAddr,
        token: Option<Secret>,
    ) -> Result<AuthSession, AuthError> {
        let seen = self.auth.generation();
        let text = token.as_ref().and_then(Secret::reveal_text);
        let identity = self.identify(peer, text).await?;
        Ok(AuthSession::known(&self.auth, text, seen, identity))
    }

    /// What an identity uses, if it is limited.
    pub(crate) fn account(&self, identity: &Identity) -> Option<Arc<Account>> {
        self.accounts.of(identity, self.clock.monotonic_ms())
    }

    /// Whether so many events, which came in so many bytes, may be published to these topics.
    pub(crate) fn pay_for<'t>(
        &self,
        account: &Account,
        topics: impl Iterator<Item = &'t TopicName>,
        events: usize,
        bytes: usize,
    ) -> Result<(), Refusal> {
        let now_ms = self.clock.monotonic_ms();
        let has_events = |topic: &TopicName| self.bus.end_of(topic) > Offset::ZERO;
        let begun = account.begin_topics(topics, has_events, now_ms);
        begun.inspect_err(|_| self.metrics.over_quota(UsageLimit::Topics))?;
        let paid = account.publish(events, bytes, now_ms);
        paid.inspect_err(|_| self.metrics.over_quota(UsageLimit::Publish))
    }
}
