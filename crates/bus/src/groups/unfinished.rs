//! Deletions of groups that an earlier process began and did not end.
//!
//! Nobody finds such a group. One that cannot be finished, because something of it cannot be read or written, does not keep
//! the bus from being opened: it is tried again while the bus is open, by whoever subscribes as that group, and when the bus
//! is opened the next time.

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

/// How long to wait before what failed is tried again; twice as long each time.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(60);

/// A group whose deletion waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedDeletion {
    /// The group.
    pub group: GroupName,
    /// What it was subscribed to.
    pub subject: Subject,
    /// What is in the way.
    pub reason: String,
}

/// Those that wait, and why.
#[derive(Debug, Default)]
pub(crate) struct Unfinished(Mutex<BTreeMap<(GroupName, String), UnfinishedDeletion>>);

impl Unfinished {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(GroupName, String), UnfinishedDeletion>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.0.lock().ignore_poison()
    }
}

impl Unfinished {
    /// All of them.
    pub(crate) fn list(&self) -> Vec<UnfinishedDeletion> {
        self.lock().values().cloned().collect()
    }
}

/// Finishes what can be finished, and goes on trying for the rest.
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

/// Notes whether it is done, and why not.
async fn finish(groups: &Arc<Groups>, group: GroupName, subject: Subject) {
    let place = (group.clone(), subject.to_string());
    match try_finish(groups, &group, &subject).await {
        Ok(()) => {
            if groups.unfinished.lock().remove(&place).is_some() {
                info!(%group, %subject, "the group is deleted at last");
            }
        }
        Err(error) => {
            let reason = error.to_string();
            let left =
                UnfinishedDeletion { group: group.clone(), subject: subject.clone(), reason: reason.clone() };
            let before = groups.unfinished.lock().insert(place, left);
            // Said once, however long it is so.
            if before.is_none_or(|before| before.reason != reason) {
                warn!(%group, %subject, %reason, "a group is being deleted and something is in the way");
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
    // Somebody may have finished it, and made another of its name.
    match stored_row(groups, group, subject).await? {
        Some(row) if row.deleting => finish_group(groups, subject, group).await,
        _ => Ok(()),
    }
}

/// Deletes what is left of groups of a name, whatever their subjects: another of its name must not find it. Under the
/// group's lock.
pub(crate) async fn finish_named(groups: &Arc<Groups>, group: &GroupName) -> Result<(), BusError> {
    for (key, _) in stored_rows(groups, &group_prefix(group)).await?.iter().filter(|(_, row)| row.deleting) {
        finish_group(groups, &key.subject, group).await?;
    }
    Ok(())
}
