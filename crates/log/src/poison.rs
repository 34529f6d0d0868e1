//! After a failed sync nothing is written again: the page cache may have dropped what it could not write.

use std::sync::OnceLock;

use crate::error::AppendError;

/// Set once, by the first failure.
#[derive(Debug, Default)]
pub(crate) struct Poison(OnceLock<String>);

impl Poison {
    pub(crate) fn set(&self, reason: String) {
        // A later failure is a consequence of the first, which is the one to report.
        let _ = self.0.set(reason);
    }

    pub(crate) fn reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    pub(crate) fn check(&self) -> Result<(), AppendError> {
        match self.reason() {
            Some(reason) => Err(AppendError::Poisoned { reason: reason.to_owned() }),
            None => Ok(()),
        }
    }
}
