//! A client that is known.

use std::sync::Arc;

use super::access::Access;
use super::grants::Grants;

/// Who a client is. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its name in logs: the token's name, or `sub` of a JWT.
    pub name: Arc<str>,
    /// What it may do.
    pub grants: Arc<Grants>,
    /// When it stops being known, epoch ms.
    pub expires_ms: Option<i64>,
}

impl Identity {
    /// Whether it may.
    pub fn may(&self, access: &Access<'_>) -> bool {
        self.grants.allow(access)
    }
}
