//! How many subscriptions each group has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_delivery::Subject;
use promethean_model::{GroupName, IgnorePoison};

use super::Groups;

type GroupAndSubject = (GroupName, Subject);

/// Counts the subscriptions of groups, also those that are about to be made.
#[derive(Debug, Default)]
pub(crate) struct GroupEntries {
    counts: Mutex<HashMap<GroupAndSubject, usize>>,
}

impl GroupEntries {
    /// How many subscriptions a group has.
    pub(crate) fn count(&self, key: &GroupAndSubject) -> usize {
        self.lock().get(key).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GroupAndSubject, usize>> {
        self.counts.lock().ignore_poison()
    }
}

/// Counts as one subscription of a group until it is dropped.
pub(crate) struct GroupEntry {
    groups: Arc<Groups>,
    key: GroupAndSubject,
}

impl GroupEntry {
    /// Called under the group's lock, so that the holder of the lock sees all subscriptions there are.
    pub(crate) fn new(groups: &Arc<Groups>, key: GroupAndSubject) -> Self {
        *groups.entries.lock().entry(key.clone()).or_default() += 1;
        Self { groups: Arc::clone(groups), key }
    }
}

impl Drop for GroupEntry {
    fn drop(&mut self) {
        let mut counts = self.groups.entries.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

impl std::fmt::Debug for GroupEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("GroupEntry").field(&self.key).finish()
    }
}
