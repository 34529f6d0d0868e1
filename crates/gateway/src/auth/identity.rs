//! A client that is known.

use std::sync::Arc;

use super::access::Access;
use super::grants::Grants;
use super::quota::Quota;

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
