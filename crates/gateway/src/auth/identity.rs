//! A client that is known.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde::Deserialize;

use super::grants::{Access, Grants};

/// Who a client is. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its name in logs: the token's name, or `sub` of a JWT.
    pub name: Arc<str>,
    /// What it may do.
    pub grants: Arc<Grants>,
    /// When it stops being known, epoch ms.
    pub expires_ms: Option<i64>,
    /// How much it may use, where that is not as the gateway's default says.
    pub quota: Quota,
}

impl Identity {
    /// Somebody who stays known.
    pub fn new(name: impl Into<Arc<str>>, grants: Grants) -> Self {
        Self { name: name.into(), grants: Arc::new(grants), expires_ms: None, quota: Quota::default() }
    }

    /// Whether it may.
    pub fn may(&self, access: &Access<'_>) -> bool {
        self.grants.allow(access)
    }
}

/// How much an identity may use, all its connections together. What is not given is as the gateway's default says, and
/// without one as much as it likes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// WebSockets and streams at a time.
    pub max_connections: Option<NonZeroU32>,
    /// Subscriptions at a time.
    pub max_subscriptions: Option<NonZeroU32>,
    /// Events in flight at a time: what its subscriptions may have, together.
    pub max_in_flight: Option<NonZeroU32>,
    /// Topics that it begins in an hour, and at once: by creating them, or by publishing their first event.
    pub new_topics_per_hour: Option<NonZeroU32>,
    /// Events published in a second, and at once.
    pub publish_per_second: Option<NonZeroU32>,
    /// Bytes of frames and bodies that publish, in a second, and at once.
    pub publish_bytes_per_second: Option<NonZeroU32>,
}

impl Quota {
    /// This, and where it says nothing, the other.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self {
            max_connections: self.max_connections.or(other.max_connections),
            max_subscriptions: self.max_subscriptions.or(other.max_subscriptions),
            max_in_flight: self.max_in_flight.or(other.max_in_flight),
            new_topics_per_hour: self.new_topics_per_hour.or(other.new_topics_per_hour),
            publish_per_second: self.publish_per_second.or(other.publish_per_second),
            publish_bytes_per_second: self.publish_bytes_per_second.or(other.publish_bytes_per_second),
        }
    }

    /// Whether it limits nothing.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}
