//! Who is in which group, and who may change its row.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_delivery::Subject;
use promethean_model::{GroupName, IgnorePoison};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncGuard};

use crate::core::Core;

type Key = (GroupName, Subject);

/// Locks that groups share; a group waits for another of its lock at most for a few commits.
const LOCKS: usize = 64;

/// How many subscriptions each group has, and locks over the rows of groups.
#[derive(Debug)]
pub(crate) struct Members {
    counts: Mutex<HashMap<Key, usize>>,
    locks: Vec<AsyncMutex<()>>,
}

impl Members {
    /// Waits until nobody else reads and then writes the group's row, or enters it.
    pub(crate) async fn lock(&self, group: &GroupName) -> Option<AsyncGuard<'_, ()>> {
        let hash = xxhash_rust::xxh3::xxh3_64(group.as_str().as_bytes());
        let lock = self.locks.get(hash as usize % LOCKS)?;
        Some(lock.lock().await)
    }

    /// How many subscriptions there are, also those that are about to be.
    pub(crate) fn count(&self, key: &Key) -> usize {
        self.counts().get(key).copied().unwrap_or(0)
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.counts.lock().ignore_poison()
    }
}

impl Default for Members {
    fn default() -> Self {
        Self { counts: Mutex::default(), locks: (0..LOCKS).map(|_| AsyncMutex::default()).collect() }
    }
}

/// Counts as a subscription until it is dropped.
pub(crate) struct Entered {
    core: Arc<Core>,
    key: Key,
}

impl Entered {
    /// To be called under the group's lock, so that whoever holds it sees all subscriptions there are.
    pub(crate) fn new(core: &Arc<Core>, key: Key) -> Self {
        *core.members.counts().entry(key.clone()).or_default() += 1;
        Self { core: Arc::clone(core), key }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.core.members.counts();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

impl std::fmt::Debug for Entered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Entered").field(&self.key).finish()
    }
}
