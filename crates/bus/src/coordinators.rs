//! The coordinators of partitioned groups, and how a rebalance reaches owners and members.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use promethean_model::{GroupName, MemberId};

use crate::coordinator::{Coordinator, CoordinatorView, Joining, Rebalance};
use crate::delivery::types::{Input, MemberNo, Now};
use crate::error::BusError;
use crate::group::{Command, Inbox, Item, Owner};
use crate::pattern::Subject;

type Key = (GroupName, Subject);

/// Those with members. A group that nobody is in needs none.
#[derive(Debug, Default)]
pub(crate) struct Coordinators(Mutex<HashMap<Key, Entry>>);

#[derive(Debug)]
struct Entry {
    coordinator: Coordinator,
    inboxes: HashMap<MemberNo, Arc<Inbox>>,
    /// Of the subject's topics.
    owners: Vec<Arc<Owner>>,
}

/// A member that joins.
pub(crate) struct Member {
    pub(crate) joining: Joining,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) partitions: u32,
    /// Epochs begin after it.
    pub(crate) epoch: u64,
}

impl Coordinators {
    /// A member joins; its partitions come with the rebalance.
    pub(crate) fn join(&self, key: &Key, member: Member, now: Now) -> Result<(), BusError> {
        let mut entries = self.lock();
        if !entries.contains_key(key) {
            let coordinator = Coordinator::new(member.partitions, member.epoch, now)?;
            let entry = Entry { coordinator, inboxes: HashMap::new(), owners: Vec::new() };
            entries.insert(key.clone(), entry);
        }
        let Some(entry) = entries.get_mut(key) else { return Ok(()) };
        entry.coordinator.set_partitions(member.partitions)?;
        entry.inboxes.insert(member.joining.session, member.inbox);
        let rebalance = entry.coordinator.join(member.joining, now);
        entry.tell(rebalance);
        Ok(())
    }

    /// An owner of one of the subject's topics works: it must know the assignment.
    pub(crate) fn attach(&self, key: &Key, owner: &Arc<Owner>) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(key) else { return };
        let same_topic = |known: &Arc<Owner>| known.topic == owner.topic;
        if entry.owners.iter().any(|known| Arc::ptr_eq(known, owner)) {
            return;
        }
        entry.owners.retain(|known| !same_topic(known));
        entry.owners.push(Arc::clone(owner));
        assign(owner, &entry.coordinator);
    }

    /// A session ends.
    pub(crate) fn leave(&self, key: &Key, member: &MemberId, session: MemberNo, now: Now) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(key) else { return };
        let rebalance = entry.coordinator.leave(member, session, now);
        entry.tell(rebalance);
        entry.inboxes.remove(&session);
        if entry.inboxes.is_empty() {
            entries.remove(key);
        }
    }

    /// The last epoch given out, if the group has members.
    pub(crate) fn epoch(&self, key: &Key) -> Option<u64> {
        self.lock().get(key).map(|entry| entry.coordinator.epoch())
    }

    /// What can be seen of all of them.
    pub(crate) fn views(&self) -> Vec<(GroupName, Subject, CoordinatorView)> {
        let view = |((group, subject), entry): (&Key, &Entry)| {
            (group.clone(), subject.clone(), entry.coordinator.view())
        };
        self.lock().iter().map(view).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        // Rebalances are told under the lock, so that owners and members hear of them in their order.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn tell(&self, rebalance: Option<Rebalance>) {
        let Some(rebalance) = rebalance else { return };
        // First: a member hears of its partitions before it is given their events.
        for change in rebalance.changes {
            if let Some(inbox) = self.inboxes.get(&change.session) {
                inbox.put(Item::Rebalance(rebalance.epoch, change));
            }
        }
        for owner in &self.owners {
            assign(owner, &self.coordinator);
        }
    }
}

fn assign(owner: &Owner, coordinator: &Coordinator) {
    // An owner that has ended delivers nothing; the next one is attached when it starts.
    let _ = owner.mailbox.send_now(Command::Tell(Input::Assign(coordinator.owners())));
}
