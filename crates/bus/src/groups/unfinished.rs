//! Deletions of groups that an earlier process began and did not finish.
//!
//! Such a group is hidden from all lookups. If its deletion fails, because the store cannot read or write
//! some of its rows, the bus opens all the same. The deletion is tried again while the bus is open, when a
//! subscriber uses the group's name, and when the bus is opened again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use promethean_delivery::Subject;
use promethean_model::{GroupName, IgnorePoison};
use tokio::time::Instant;
use tracing::{info, warn};

use super::Groups;
use super::deletion::finish_group;
use super::lookup::{stored_row, stored_rows};
use crate::error::BusError;
use crate::rows::{GroupKey, GroupRow, group_prefix};

/// The wait before a failed deletion is tried again. It doubles each time.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(60);

/// A group whose deletion is not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedDeletion {
    /// The group.
    pub group: GroupName,
    /// The topic or pattern that it was subscribed to.
    pub subject: Subject,
    /// The error that stopped the deletion.
    pub reason: String,
}

/// All deletions that are not finished, with their errors.
#[derive(Debug, Default)]
pub(crate) struct Unfinished(Mutex<BTreeMap<(GroupName, String), UnfinishedDeletion>>);

impl Unfinished {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(GroupName, String), UnfinishedDeletion>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.0.lock().ignore_poison()
    }
}

impl Unfinished {
    /// All unfinished deletions.
    pub(crate) fn list(&self) -> Vec<UnfinishedDeletion> {
        self.lock().values().cloned().collect()
    }
}

/// Finishes the deletions that can be finished now, and starts a task that tries the rest again.
pub(crate) async fn finish_all(groups: &Arc<Groups>, rows: &[(GroupKey, GroupRow)]) {
    for (key, _) in rows.iter().filter(|(_, row)| row.deleting) {
        finish(groups, key.group.clone(), key.subject.clone()).await;
    }
    if !groups.unfinished.lock().is_empty() {
        groups.base.tasks.spawn(go_on(Arc::clone(groups)));
    }
}

async fn go_on(groups: Arc<Groups>) {
    let mut shutdown = groups.base.shutdown.subscribe();
    let mut after = AGAIN_AFTER;
    loop {
        tokio::select! {
            _ = shutdown.wait_for(|closing| *closing) => return,
            () = tokio::time::sleep_until(Instant::now() + after) => {}
        }
        after = (after * 2).min(AGAIN_AFTER_MAX);
        let left: Vec<_> = groups.unfinished.lock().values().cloned().collect();
        if left.is_empty() {
            return;
        }
        for UnfinishedDeletion { group, subject, .. } in left {
            if *groups.base.shutdown.borrow() {
                return;
            }
            finish(&groups, group, subject).await;
        }
    }
}

/// Tries to finish one deletion, and records the error if it fails.
async fn finish(groups: &Arc<Groups>, group: GroupName, subject: Subject) {
    let place = (group.clone(), subject.to_string());
    match try_finish(groups, &group, &subject).await {
        Ok(()) => {
            if groups.unfinished.lock().remove(&place).is_some() {
                info!(%group, %subject, "the unfinished deletion of the group is now done");
            }
        }
        Err(error) => {
            let reason = error.to_string();
            let left =
                UnfinishedDeletion { group: group.clone(), subject: subject.clone(), reason: reason.clone() };
            let before = groups.unfinished.lock().insert(place, left);
            // Logged once for each new reason, not at every try.
            if before.is_none_or(|before| before.reason != reason) {
                warn!(%group, %subject, %reason, "cannot finish the deletion of a group yet; trying again");
            }
        }
    }
}

async fn try_finish(groups: &Arc<Groups>, group: &GroupName, subject: &Subject) -> Result<(), BusError> {
    let _lock = groups.locks.lock(group).await;
    if let Subject::Topic(topic) = subject
        && groups.followers.get(group, topic).is_some()
    {
        return Ok(());
    }
    // Another task may have finished the deletion and created a new group of this name.
    match stored_row(groups, group, subject).await? {
        Some(row) if row.deleting => finish_group(groups, subject, group).await,
        _ => Ok(()),
    }
}

/// Finishes all unfinished deletions of groups of a name, for every subject, so that a new group of this name
/// does not find their rows. Called under the group's lock.
pub(crate) async fn finish_named(groups: &Arc<Groups>, group: &GroupName) -> Result<(), BusError> {
    for (key, _) in stored_rows(groups, &group_prefix(group)).await?.iter().filter(|(_, row)| row.deleting) {
        finish_group(groups, &key.subject, group).await?;
    }
    Ok(())
}
