//! How many subscriptions each group has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_delivery::Subject;
use promethean_model::{GroupName, IgnorePoison};

use super::Groups;

type GroupAndSubject = (GroupName, Subject);

/// Counts the subscriptions of each group, including subscriptions that are being made.
#[derive(Debug, Default)]
pub(crate) struct GroupEntries {
    counts: Mutex<HashMap<GroupAndSubject, EntryCount>>,
}

impl GroupEntries {
    /// How many subscriptions a group has.
    pub(crate) fn count(&self, key: &GroupAndSubject) -> usize {
        self.lock().get(key).map_or(0, |count| count.now)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<GroupAndSubject, EntryCount>> {
        self.counts.lock().ignore_poison()
    }
}

/// The subscriptions of one group.
#[derive(Debug, Default)]
struct EntryCount {
    now: usize,
    /// All subscriptions since the group last had none, also the ended ones.
    ever: u64,
}

/// Counts as one subscription of a group until it is dropped.
pub(crate) struct GroupEntry {
    groups: Arc<Groups>,
    key: GroupAndSubject,
}

impl GroupEntry {
    /// Called under the group's lock, so that the holder of the lock sees all subscriptions there are.
    pub(crate) fn new(groups: &Arc<Groups>, key: GroupAndSubject) -> Self {
        let mut counts = groups.entries.lock();
        let count = counts.entry(key.clone()).or_default();
        count.now += 1;
        count.ever += 1;
        drop(counts);
        Self { groups: Arc::clone(groups), key }
    }

    /// How many subscriptions the group has had since there was none, with this one.
    pub(crate) fn ever(&self) -> u64 {
        self.groups.entries.lock().get(&self.key).map_or(0, |count| count.ever)
    }
}

impl Drop for GroupEntry {
    fn drop(&mut self) {
        let mut counts = self.groups.entries.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            count.now -= 1;
            if count.now == 0 {
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
