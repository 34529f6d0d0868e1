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

use super::delete::finish_group;
use super::find::stored_rows;
use crate::bus::Bus;
use crate::core::Core;
use crate::error::BusError;
use crate::rows::{GroupKey, GroupRow, group_prefix};
use crate::subscribe::stored_row;

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

impl Bus {
    /// Groups that are being deleted since the bus was opened, because something is in the way.
    pub fn unfinished_deletions(&self) -> Vec<UnfinishedDeletion> {
        self.core.unfinished.lock().values().cloned().collect()
    }
}

/// Finishes what can be finished, and goes on trying for the rest.
pub(crate) async fn finish_all(core: &Arc<Core>, rows: &[(GroupKey, GroupRow)]) {
    for (key, _) in rows.iter().filter(|(_, row)| row.deleting) {
        finish(core, key.group.clone(), key.subject.clone()).await;
    }
    if !core.unfinished.lock().is_empty() {
        core.tasks.spawn(go_on(Arc::clone(core)));
    }
}

async fn go_on(core: Arc<Core>) {
    let mut shutdown = core.shutdown.subscribe();
    let mut after = AGAIN_AFTER;
    loop {
        tokio::select! {
            _ = shutdown.wait_for(|closing| *closing) => return,
            () = tokio::time::sleep_until(Instant::now() + after) => {}
        }
        after = (after * 2).min(AGAIN_AFTER_MAX);
        let left: Vec<_> = core.unfinished.lock().values().cloned().collect();
        if left.is_empty() {
            return;
        }
        for UnfinishedDeletion { group, subject, .. } in left {
            if *core.shutdown.borrow() {
                return;
            }
            finish(&core, group, subject).await;
        }
    }
}

/// Notes whether it is done, and why not.
async fn finish(core: &Arc<Core>, group: GroupName, subject: Subject) {
    let place = (group.clone(), subject.to_string());
    match try_finish(core, &group, &subject).await {
        Ok(()) => {
            if core.unfinished.lock().remove(&place).is_some() {
                info!(%group, %subject, "the group is deleted at last");
            }
        }
        Err(error) => {
            let reason = error.to_string();
            let left =
                UnfinishedDeletion { group: group.clone(), subject: subject.clone(), reason: reason.clone() };
            let before = core.unfinished.lock().insert(place, left);
            // Said once, however long it is so.
            if before.is_none_or(|before| before.reason != reason) {
                warn!(%group, %subject, %reason, "a group is being deleted and something is in the way");
            }
        }
    }
}

async fn try_finish(core: &Arc<Core>, group: &GroupName, subject: &Subject) -> Result<(), BusError> {
    let _lock = core.members.lock(group).await;
    if let Subject::Topic(topic) = subject
        && core.followers.get(group, topic).is_some()
    {
        return Ok(());
    }
    // Somebody may have finished it, and made another of its name.
    match stored_row(core, group, subject).await? {
        Some(row) if row.deleting => finish_group(core, subject, group).await,
        _ => Ok(()),
    }
}

/// Deletes what is left of groups of a name, whatever their subjects: another of its name must not find it. Under the
/// group's lock.
pub(crate) async fn finish_named(core: &Arc<Core>, group: &GroupName) -> Result<(), BusError> {
    for (key, _) in stored_rows(core, &group_prefix(group)).await?.iter().filter(|(_, row)| row.deleting) {
        finish_group(core, &key.subject, group).await?;
    }
    Ok(())
}
