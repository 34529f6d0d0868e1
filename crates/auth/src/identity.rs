//! A client whose token is valid, and how much it may use.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::grants::{Access, Grants};

/// How a client is known. Names are unique within a kind only: the issuer of signed tokens chooses `sub`, which
/// may be the name of a listed token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdentityKind {
    /// The server needs no tokens.
    Open,
    /// By a listed token.
    Listed,
    /// By a signed token.
    Signed,
    /// By an authenticator of the embedder.
    Other,
}

impl IdentityKind {
    /// Its name in audit records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Listed => "listed",
            Self::Signed => "signed",
            Self::Other => "other",
        }
    }
}

/// Who a client is. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Identity {
    /// How it is known.
    pub kind: IdentityKind,
    /// Its name in logs: the token's name, or `sub` of a JWT.
    pub name: Arc<str>,
    /// What it may do.
    pub grants: Arc<Grants>,
    /// When its token expires, epoch ms.
    pub expires_ms: Option<i64>,
    /// How much it may use. A field that is not set has the gateway's default.
    pub quota: Quota,
}

impl Identity {
    /// An identity without an end and without a quota of its own, known by an authenticator of the embedder.
    pub fn new(name: impl Into<Arc<str>>, grants: Grants) -> Self {
        Self {
            kind: IdentityKind::Other,
            name: name.into(),
            grants: Arc::new(grants),
            expires_ms: None,
            quota: Quota::default(),
        }
    }

    /// Whether its grants allow this.
    pub fn may(&self, access: &Access<'_>) -> bool {
        self.grants.allow(access)
    }
}

/// How much an identity may use, all its connections together. A field that is not set has the gateway's
/// default; without a default there is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// WebSockets, streams and requests under way at a time.
    pub max_connections: Option<NonZeroU32>,
    /// Subscriptions at a time.
    pub max_subscriptions: Option<NonZeroU32>,
    /// Events in flight at a time, of all its subscriptions together.
    pub max_in_flight: Option<NonZeroU32>,
    /// New topics in an hour, and at once. A topic is new when it is created or gets its first event.
    pub new_topics_per_hour: Option<NonZeroU32>,
    /// New groups in an hour, and at once.
    pub new_groups_per_hour: Option<NonZeroU32>,
    /// Events published in a second, and at once.
    pub publish_per_second: Option<NonZeroU32>,
    /// Bytes of publish frames and bodies in a second, and at once.
    pub publish_bytes_per_second: Option<NonZeroU32>,
}

/// New topics, and new groups, that a token may begin in an hour unless its quota says otherwise.
const NEW_PER_HOUR: NonZeroU32 = NonZeroU32::new(10_000).unwrap();

impl Quota {
    /// The quota of tokens for which nothing is configured: 10,000 new topics and 10,000 new groups in an hour.
    pub fn of_tokens() -> Self {
        Self {
            new_topics_per_hour: Some(NEW_PER_HOUR),
            new_groups_per_hour: Some(NEW_PER_HOUR),
            ..Self::default()
        }
    }

    /// This quota, with the other one's fields where this one has none.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self {
            max_connections: self.max_connections.or(other.max_connections),
            max_subscriptions: self.max_subscriptions.or(other.max_subscriptions),
            max_in_flight: self.max_in_flight.or(other.max_in_flight),
            new_topics_per_hour: self.new_topics_per_hour.or(other.new_topics_per_hour),
            new_groups_per_hour: self.new_groups_per_hour.or(other.new_groups_per_hour),
            publish_per_second: self.publish_per_second.or(other.publish_per_second),
            publish_bytes_per_second: self.publish_bytes_per_second.or(other.publish_bytes_per_second),
        }
    }

    /// Whether it limits nothing.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}
