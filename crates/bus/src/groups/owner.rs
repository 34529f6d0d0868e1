//! The handle of an owner, and the table of all owners. An owner lives while it has members or work to do.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_delivery::Subject;
use promethean_model::{GroupName, IgnorePoison, TopicName};
use tokio::sync::oneshot;

use super::mailbox::Mailbox;
use super::message::OwnerMessage;
use super::{Groups, task};
use crate::error::BusError;
use crate::metrics::GroupMetrics;
use crate::rows::{GroupOptions, GroupRow};

type TopicAndGroup = (TopicName, GroupName);

/// The handle of the owner of one claim, which delivers one topic to one group. Its task holds the rest of
/// its state.
#[derive(Debug)]
pub(crate) struct ClaimOwner {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) mailbox: Mailbox<OwnerMessage>,
    pub(crate) metrics: GroupMetrics,
    /// The owner's number, from 1. No other owner of this process has had it.
    pub(crate) number: u64,
    /// Whether it waits for credit that the owner of another topic holds.
    pub(crate) starved: AtomicBool,
}

/// The owners of this process.
#[derive(Debug, Default)]
pub(crate) struct ClaimOwners {
    table: Mutex<OwnerTable>,
}

#[derive(Debug, Default)]
struct OwnerTable {
    owners: HashMap<TopicAndGroup, RunningOwner>,
    /// The options of the newest owner. Most owners have equal options and share them.
    options: Option<Arc<GroupOptions>>,
    /// How many owners were started in this process.
    count: u64,
    closed: bool,
}

#[derive(Debug)]
struct RunningOwner {
    owner: Arc<ClaimOwner>,
    options: Arc<GroupOptions>,
}

impl OwnerTable {
    fn shared(&mut self, options: &GroupOptions) -> Arc<GroupOptions> {
        match &self.options {
            Some(last) if **last == *options => Arc::clone(last),
            _ => Arc::clone(self.options.insert(Arc::new(options.clone()))),
        }
    }
}

/// The owner that a caller needs; started if it does not run.
#[derive(Debug, Clone)]
pub(crate) struct WantedOwner {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) row: GroupRow,
}

impl ClaimOwners {
    /// Sends a message to an owner, and starts the owner if it does not run. Holds the table's lock: an owner
    /// that is about to end because it has no work either sees the message or has already left the table.
    pub(crate) fn send(
        &self,
        groups: &Arc<Groups>,
        wanted: &WantedOwner,
        message: OwnerMessage,
    ) -> Result<Arc<ClaimOwner>, BusError> {
        let key = (wanted.topic.clone(), wanted.group.clone());
        let mut table = self.lock();
        if table.closed {
            return Err(BusError::Closed);
        }
        if let Some(entry) = table.owners.get(&key) {
            check_options(&wanted.group, &entry.options, &wanted.row.options)?;
            entry.owner.mailbox.send_now(message)?;
            return Ok(Arc::clone(&entry.owner));
        }
        // Checked under the lock: either the deletion finds this owner in the table, or the owner is not
        // started.
        groups.topics.gates.check(&wanted.topic, &wanted.group)?;
        table.count += 1;
        let owner = Arc::new(ClaimOwner {
            number: table.count,
            topic: key.0.clone(),
            group: key.1.clone(),
            mailbox: Mailbox::new(),
            metrics: groups.base.metrics.group(&key.0, &key.1),
            starved: AtomicBool::new(false),
        });
        owner.mailbox.send_now(message)?;
        let options = table.shared(&wanted.row.options);
        table.owners.insert(key, RunningOwner { owner: Arc::clone(&owner), options });
        groups.base.tasks.spawn(task::run(groups, &owner, &wanted.row));
        Ok(owner)
    }

    /// The owner, if it runs.
    pub(crate) fn get(&self, topic: &TopicName, group: &GroupName) -> Option<Arc<ClaimOwner>> {
        let key = (topic.clone(), group.clone());
        self.lock().owners.get(&key).map(|entry| Arc::clone(&entry.owner))
    }

    /// All owners that run.
    pub(crate) fn all(&self) -> Vec<Arc<ClaimOwner>> {
        self.lock().owners.values().map(|entry| Arc::clone(&entry.owner)).collect()
    }

    /// Waits until the owners of a group without members have ended. An error if one of them still has
    /// members.
    pub(crate) async fn await_ends(&self, group: &GroupName, subject: &Subject) -> Result<(), BusError> {
        let concerned = |owner: &Arc<ClaimOwner>| owner.group == *group && subject.matches(&owner.topic);
        for owner in self.all().into_iter().filter(concerned) {
            let (answer, answered) = oneshot::channel();
            // Every result but a refusal means that the owner has ended.
            if owner.mailbox.send_now(OwnerMessage::AwaitEnd(answer)).is_ok()
                && let Ok(Err(busy @ BusError::GroupBusy { .. })) = answered.await
            {
                return Err(busy);
            }
        }
        Ok(())
    }

    /// Removes an owner from the table and closes its mailbox, unless `still_needed` returns true. The
    /// messages left in the mailbox are refused. Returns whether it was removed.
    pub(super) fn remove(
        &self,
        owner: &Arc<ClaimOwner>,
        why: BusError,
        still_needed: impl FnOnce() -> bool,
    ) -> bool {
        let mut table = self.lock();
        if still_needed() {
            return false;
        }
        let key = (owner.topic.clone(), owner.group.clone());
        if table.owners.get(&key).is_some_and(|entry| Arc::ptr_eq(&entry.owner, owner)) {
            table.owners.remove(&key);
        }
        let left = owner.mailbox.close(why.clone());
        drop(table);
        left.into_iter().for_each(|message| message.refuse(&why));
        true
    }

    /// Starts no more owners, and tells the running owners to end.
    pub(crate) fn close(&self) {
        let mut table = self.lock();
        table.closed = true;
        for entry in table.owners.values() {
            // An owner whose mailbox is closed is ending already.
            let _ = entry.owner.mailbox.send_now(OwnerMessage::Close);
        }
    }

    fn lock(&self) -> MutexGuard<'_, OwnerTable> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.table.lock().ignore_poison()
    }
}

/// Refuses options that differ from those of the running owner. A group can reach a topic by its name and by
/// patterns, but one owner has one set of options.
fn check_options(group: &GroupName, actual: &GroupOptions, wanted: &GroupOptions) -> Result<(), BusError> {
    let same = GroupOptions { from: actual.from, ..wanted.clone() } == *actual;
    if same {
        return Ok(());
    }
    let json = |options: &GroupOptions| serde_json::to_string(options).unwrap_or_default();
    Err(BusError::GroupConflict {
        group: group.clone(),
        option: "options",
        asked: json(wanted),
        actual: json(actual),
    })
}
