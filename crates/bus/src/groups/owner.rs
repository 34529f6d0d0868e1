//! Which owners there are. An owner lives while it has members or something to do.

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

type Key = (TopicName, GroupName);

/// The owner of one claim, as all but its task see it: it delivers one topic to one group.
#[derive(Debug)]
pub(crate) struct ClaimOwner {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) mailbox: Mailbox<OwnerMessage>,
    pub(crate) metrics: GroupMetrics,
    /// A number that no other owner of this process has had; from 1.
    pub(crate) number: u64,
    /// Whether it waits for credit that the owner of another topic holds now.
    pub(crate) starved: AtomicBool,
}

/// The owners of this process.
#[derive(Debug, Default)]
pub(crate) struct ClaimOwners {
    map: Mutex<Map>,
}

#[derive(Debug, Default)]
struct Map {
    owners: HashMap<Key, Entry>,
    /// Those of the owner that came last. Most owners have the same, and share them.
    options: Option<Arc<GroupOptions>>,
    /// How many there have been.
    count: u64,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    owner: Arc<ClaimOwner>,
    options: Arc<GroupOptions>,
}

impl Map {
    fn shared(&mut self, options: &GroupOptions) -> Arc<GroupOptions> {
        match &self.options {
            Some(last) if **last == *options => Arc::clone(last),
            _ => Arc::clone(self.options.insert(Arc::new(options.clone()))),
        }
    }
}

/// An owner that someone needs.
#[derive(Debug, Clone)]
pub(crate) struct WantedOwner {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) row: GroupRow,
}

impl ClaimOwners {
    /// Sends a command to an owner, which is started if need be. Under one lock, so that an owner that is about to end
    /// for want of work sees the command or is gone before.
    pub(crate) fn send(
        &self,
        groups: &Arc<Groups>,
        wanted: &WantedOwner,
        command: OwnerMessage,
    ) -> Result<Arc<ClaimOwner>, BusError> {
        let key = (wanted.topic.clone(), wanted.group.clone());
        let mut map = self.lock();
        if map.closed {
            return Err(BusError::Closed);
        }
        if let Some(entry) = map.owners.get(&key) {
            check_options(&wanted.group, &entry.options, &wanted.row.options)?;
            entry.owner.mailbox.send_now(command)?;
            return Ok(Arc::clone(&entry.owner));
        }
        // Under the lock: whoever deletes sees the owner, or the owner is not started.
        groups.topics.gates.check(&wanted.topic, &wanted.group)?;
        map.count += 1;
        let owner = Arc::new(ClaimOwner {
            number: map.count,
            topic: key.0.clone(),
            group: key.1.clone(),
            mailbox: Mailbox::new(),
            metrics: groups.base.metrics.group(&key.0, &key.1),
            starved: AtomicBool::new(false),
        });
        owner.mailbox.send_now(command)?;
        let options = map.shared(&wanted.row.options);
        map.owners.insert(key, Entry { owner: Arc::clone(&owner), options });
        groups.base.tasks.spawn(task::run(groups, &owner, &wanted.row));
        Ok(owner)
    }

    /// The owner, if there is one now.
    pub(crate) fn get(&self, topic: &TopicName, group: &GroupName) -> Option<Arc<ClaimOwner>> {
        let key = (topic.clone(), group.clone());
        self.lock().owners.get(&key).map(|entry| Arc::clone(&entry.owner))
    }

    /// All owners there are now.
    pub(crate) fn all(&self) -> Vec<Arc<ClaimOwner>> {
        self.lock().owners.values().map(|entry| Arc::clone(&entry.owner)).collect()
    }

    /// Waits until the owners of a group that nobody is in any more have ended.
    pub(crate) async fn await_ends(&self, group: &GroupName, subject: &Subject) -> Result<(), BusError> {
        let concerned = |owner: &Arc<ClaimOwner>| owner.group == *group && subject.matches(&owner.topic);
        for owner in self.all().into_iter().filter(concerned) {
            let (answer, answered) = oneshot::channel();
            // Whatever the answer is but a refusal, it has ended.
            if owner.mailbox.send_now(OwnerMessage::AwaitEnd(answer)).is_ok()
                && let Ok(Err(busy @ BusError::GroupBusy { .. })) = answered.await
            {
                return Err(busy);
            }
        }
        Ok(())
    }

    /// Takes an owner off the list and closes its mailbox, unless `still_needed` finds a reason not to. What was in the
    /// mailbox is refused.
    pub(super) fn remove(
        &self,
        owner: &Arc<ClaimOwner>,
        why: BusError,
        still_needed: impl FnOnce() -> bool,
    ) -> bool {
        let mut map = self.lock();
        if still_needed() {
            return false;
        }
        let key = (owner.topic.clone(), owner.group.clone());
        if map.owners.get(&key).is_some_and(|entry| Arc::ptr_eq(&entry.owner, owner)) {
            map.owners.remove(&key);
        }
        let left = owner.mailbox.close(why.clone());
        drop(map);
        left.into_iter().for_each(|command| command.refuse(&why));
        true
    }

    /// Starts no more owners and tells those there are to end.
    pub(crate) fn close(&self) {
        let mut map = self.lock();
        map.closed = true;
        for entry in map.owners.values() {
            // One whose mailbox is closed ends already.
            let _ = entry.owner.mailbox.send_now(OwnerMessage::Close);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.map.lock().ignore_poison()
    }
}

/// One topic of a group can be reached by its name and by patterns; they cannot want different things.
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
