//! Poison of the log: after a failed sync nothing is written again, because the page cache may have dropped
//! the bytes that it could not write.

use std::sync::{Mutex, MutexGuard, OnceLock};

use promethean_model::IgnorePoison;

use crate::error::AppendError;

/// The reason why the log stopped writing. Set once, by the first failure.
#[derive(Debug, Default)]
pub(crate) struct Poison(OnceLock<String>);

impl Poison {
    /// Notes a failure. Returns whether it is the first; a later one is a consequence of it.
    pub(crate) fn set(&self, reason: &str) -> bool {
        self.0.set(reason.to_owned()).is_ok()
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

/// Takes a lock, also after a panic of its holder: a thread that panics poisons the log itself, so the poison
/// of the lock says nothing more.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}
