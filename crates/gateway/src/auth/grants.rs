//! What is allowed.

use super::access::Access;

/// What a client may do. Nothing is allowed that is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    everything: bool,
}

impl Grants {
    /// May do everything.
    pub const fn everything() -> Self {
        Self { everything: true }
    }

    /// Whether it is allowed.
    pub const fn allow(&self, _access: &Access<'_>) -> bool {
        self.everything
    }
}
