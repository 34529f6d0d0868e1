//! The state that all connections and requests share.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use promethean_bus::{Bus, TopicRoom};
use promethean_model::{Clock, Offset, TopicName};
use promethean_projections::Projections;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::{Audit, AuditRecord};
use crate::auth::{Access, AuthError, AuthSession, Authenticator, Identity, Secret};
use crate::http::stored_headers::StoredHeaders;
use crate::listen::connection_list::ConnectionList;
use crate::listen::origin::Origins;
use crate::listen::rare_warning::RareWarning;
use crate::metrics::{GatewayMetrics, UsageLimit};
use crate::options::GatewayOptions;
use crate::refusal::Refusal;
use crate::tickets::Tickets;
use crate::usage::accounts::{Account, Accounts};
use crate::usage::failures::AuthFailures;
use crate::usage::receiving::Receiving;

/// The state that all connections and requests share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) inner: Arc<AppInner>,
}

/// The parts of an [`App`].
#[derive(Debug)]
pub(crate) struct AppInner {
    pub(crate) bus: Bus,
    /// The collections that projectors derive from events; `None` if the server has none.
    pub(crate) projections: Option<Projections>,
    pub(crate) auth: Arc<dyn Authenticator>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: GatewayOptions,
    /// Which web pages may connect.
    pub(crate) origins: Origins,
    /// Bounds the warnings of pages that may not.
    pub(crate) refused_origins: Mutex<RareWarning>,
    /// Which headers of requests become headers of events.
    pub(crate) stored_headers: StoredHeaders,
    pub(crate) metrics: GatewayMetrics,
    /// The invalid tokens that each address has shown.
    pub(crate) failures: AuthFailures,
    /// What each identity uses.
    pub(crate) accounts: Accounts,
    /// The bytes that are being received.
    pub(crate) receiving: Arc<Receiving>,
    /// The connections that are open.
    pub(crate) connections: Arc<ConnectionList>,
    /// The tickets that stand for tokens.
    pub(crate) tickets: Tickets,
    /// Writes audit records; `None` if there is no audit topic.
    pub(crate) audit: Option<Audit>,
    /// Every spawned task; joined at shutdown.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the gateway stops.
    pub(crate) stopping: CancellationToken,
}

impl std::ops::Deref for App {
    type Target = AppInner;

    fn deref(&self) -> &AppInner {
        &self.inner
    }
}

/// A token with this many bytes cannot be guessed. A shorter one may be a word.
const UNGUESSABLE_BYTES: usize = 32;

impl App {
    /// Finds the identity of a token that came from this address. If the address has shown too many invalid
    /// tokens, a token that can be guessed is refused unchecked. A long token, and one that was valid before,
    /// is still checked, so that a neighbour behind the same address cannot lock a client out.
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
            // Failures above the limit are not recorded: there could be any number of them.
            self.record(|| AuditRecord::new(peer, "auth", error.code()));
        }
        if let (Some(token), Ok(_)) = (short, &known) {
            self.failures.good(token);
        }
        known
    }

    /// Writes an audit record, if there is an audit topic.
    pub(crate) fn record(&self, record: impl FnOnce() -> AuditRecord) {
        if let Some(audit) = &self.audit {
            audit.put(record());
        }
    }

    /// Whether an identity may do this.
    pub(crate) fn may(&self, identity: &Identity, access: &Access<'_>) -> bool {
        identity.may(access) && self.audit.as_ref().is_none_or(|audit| audit.lets(identity, access))
    }

    /// As [`App::identify`], for a client that stays connected.
    pub(crate) async fn session(
        &self,
        peer: IpAddr,
        token: Option<Secret>,
    ) -> Result<AuthSession, AuthError> {
        let seen = self.auth.revision();
        let text = token.as_ref().and_then(Secret::reveal_text);
        let identity = self.identify(peer, text).await?;
        Ok(AuthSession::known(&self.auth, text, seen, identity))
    }

    /// The account of an identity, if it has a quota.
    pub(crate) fn account(&self, identity: &Identity) -> Option<Arc<Account>> {
        self.accounts.of(identity, self.clock.monotonic_ms())
    }

    /// Takes so many events, sent in so many bytes, to these topics from the quota of an account.
    pub(crate) fn pay_for<'t>(
        &self,
        account: &Account,
        is_admin: bool,
        topics: impl Iterator<Item = &'t TopicName>,
        (events, bytes): (usize, usize),
    ) -> Result<(), Refusal> {
        let now_ms = self.clock.monotonic_ms();
        let has_events = |topic: &TopicName| self.bus.end_of(topic) > Offset::ZERO;
        let has_room = |new: &[&TopicName]| {
            // A topic that exists takes no room, also if this is its first event.
            let absent = new.iter().filter(|topic| !self.bus.has_topic(topic)).count();
            if is_admin || absent == 0 { Ok(()) } else { room_for(absent, self.bus.topic_room()) }
        };
        let begun = account.begin_topics(topics, has_events, has_room, now_ms);
        begun.inspect_err(|_| self.metrics.over_quota(UsageLimit::Topics))?;
        let paid = account.publish(events, bytes, now_ms);
        paid.inspect_err(|_| self.metrics.over_quota(UsageLimit::Publish))
    }

    /// Whether so few topics are left that only admins may create them.
    pub(crate) fn topics_are_scarce(&self) -> bool {
        room_for(1, self.bus.topic_room()).is_err()
    }
}

/// Topics that only admins may create, so that a client which creates too many does not lock them out.
const ADMIN_TOPICS: usize = 1_000;

/// Refuses new topics of clients that are no admins, once only the admins' topics are left. A server that may have few
/// topics keeps a tenth of them.
fn room_for(new: usize, room: TopicRoom) -> Result<(), Refusal> {
    let kept = ADMIN_TOPICS.min(room.max / 10);
    if room.topics.saturating_add(new) <= room.max.saturating_sub(kept) {
        return Ok(());
    }
    let message = format!(
        "there are {} topics, and the last {kept} of `limits.events.topics_max` ({}) are kept for admins; delete topics, or use one \
         that exists",
        room.topics, room.max
    );
    Err(Refusal::new(StatusCode::CONFLICT, "too_many_topics", message))
}
