//! The coordinators of partitioned groups, and how a rebalance reaches owners and members.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use promethean_delivery::{
    Coordinator, CoordinatorView, DeliveryError, Input, Joining, MemberNo, Now, RECOMPUTE_EVERY_MS,
    Rebalance, Subject,
};
use promethean_model::{GroupName, IgnorePoison, MemberId};
use tokio::time::MissedTickBehavior;

use super::inbox::{Inbox, InboxItem};
use super::message::OwnerMessage;
use super::{ClaimOwner, Groups};
use crate::error::BusError;

type Key = (GroupName, Subject);

/// Those with members. A group that nobody is in needs none.
#[derive(Debug, Default)]
pub(crate) struct Coordinators(Mutex<CoordinatorTable>);

#[derive(Debug, Default)]
struct CoordinatorTable {
    map: HashMap<Key, PartitionedGroup>,
    /// Whether a task looks for members without heartbeats.
    ticking: bool,
}

#[derive(Debug)]
struct PartitionedGroup {
    coordinator: Coordinator,
    inboxes: HashMap<MemberNo, Arc<Inbox>>,
    /// Of the subject's topics.
    owners: Vec<Arc<ClaimOwner>>,
}

/// A member that joins.
pub(crate) struct PartitionMember {
    pub(crate) joining: Joining,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) partitions: u32,
    /// Epochs begin after it.
    pub(crate) epoch: u64,
}

impl Coordinators {
    /// A member joins; its partitions come with the rebalance.
    pub(crate) fn join(&self, key: &Key, member: PartitionMember, now: Now) -> Result<(), BusError> {
        let entries = &mut self.lock().map;
        if !entries.contains_key(key) {
            let coordinator = Coordinator::new(member.partitions, member.epoch, now)?;
            let entry = PartitionedGroup { coordinator, inboxes: HashMap::new(), owners: Vec::new() };
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
    pub(crate) fn attach(&self, key: &Key, owner: &Arc<ClaimOwner>) {
        let entries = &mut self.lock().map;
        let Some(entry) = entries.get_mut(key) else { return };
        let same_topic = |known: &Arc<ClaimOwner>| known.topic == owner.topic;
        if entry.owners.iter().any(|known| Arc::ptr_eq(known, owner)) {
            return;
        }
        entry.owners.retain(|known| !same_topic(known));
        entry.owners.push(Arc::clone(owner));
        // One that has ended is attached by nobody.
        let _ = assign(owner, &entry.coordinator);
    }

    /// An owner has ended: its topic is gone.
    pub(crate) fn detach(&self, key: &Key, owner: &Arc<ClaimOwner>) {
        if let Some(entry) = self.lock().map.get_mut(key) {
            entry.owners.retain(|known| !Arc::ptr_eq(known, owner));
        }
    }

    /// A session lives.
    pub(crate) fn heartbeat(
        &self,
        key: &Key,
        member: &MemberId,
        session: MemberNo,
        now: Now,
    ) -> Result<(), BusError> {
        let unknown = || DeliveryError::UnknownMember { member: member.clone() };
        let entries = &mut self.lock().map;
        Ok(entries.get_mut(key).ok_or_else(unknown)?.coordinator.heartbeat(member, session, now)?)
    }

    /// Time has passed: members without heartbeats lose their partitions. Says whether anybody has to be looked after
    /// still.
    pub(crate) fn tick(&self, now: Now) -> bool {
        let mut entries = self.lock();
        for entry in entries.map.values_mut() {
            let rebalance = entry.coordinator.tick(now);
            entry.tell(rebalance);
        }
        entries.map.values().any(|entry| entry.coordinator.has_heartbeats())
    }

    /// Looks for members without heartbeats from now on, while there are any that must send some.
    pub(crate) fn keep_ticking(&self, groups: &Arc<Groups>) {
        if !std::mem::replace(&mut self.lock().ticking, true) {
            groups.base.tasks.spawn(tick(Arc::clone(groups)));
        }
    }

    /// Whether the task that ticks may end: under the lock, so that whoever joins starts another.
    fn stops_ticking(&self) -> bool {
        let mut entries = self.lock();
        entries.ticking = entries.map.values().any(|entry| entry.coordinator.has_heartbeats());
        !entries.ticking
    }

    /// A session ends.
    pub(crate) fn leave(&self, key: &Key, member: &MemberId, session: MemberNo, now: Now) {
        let entries = &mut self.lock().map;
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
        self.lock().map.get(key).map(|entry| entry.coordinator.epoch())
    }

    /// What can be seen of all of them.
    pub(crate) fn views(&self) -> Vec<(GroupName, Subject, CoordinatorView)> {
        let view = |((group, subject), entry): (&Key, &PartitionedGroup)| {
            (group.clone(), subject.clone(), entry.coordinator.view())
        };
        self.lock().map.iter().map(view).collect()
    }

    fn lock(&self) -> MutexGuard<'_, CoordinatorTable> {
        // Rebalances are told under the lock, so that owners and members hear of them in their order.
        self.0.lock().ignore_poison()
    }
}

impl PartitionedGroup {
    fn tell(&mut self, rebalance: Option<Rebalance>) {
        let Some(rebalance) = rebalance else { return };
        // First: a member hears of its partitions before it is given their events.
        for change in rebalance.changes {
            if let Some(inbox) = self.inboxes.get(&change.session) {
                inbox.put(InboxItem::Rebalance(rebalance.epoch, change));
            }
        }
        let coordinator = &self.coordinator;
        self.owners.retain(|owner| assign(owner, coordinator).is_ok());
    }
}

/// An error if the owner has ended: it delivers nothing, and the next one is attached when it starts.
fn assign(owner: &ClaimOwner, coordinator: &Coordinator) -> Result<(), BusError> {
    owner.mailbox.send_now(OwnerMessage::Tell(Input::Assign(coordinator.owners())))
}

async fn tick(groups: Arc<Groups>) {
    let mut shutdown = groups.base.shutdown.subscribe();
    let mut every = tokio::time::interval(Duration::from_millis(RECOMPUTE_EVERY_MS));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !groups.coordinators.stops_ticking() {
        tokio::select! {
            _ = shutdown.wait_for(|closing| *closing) => return,
            _ = every.tick() => {}
        }
        groups.coordinators.tick(groups.base.now());
    }
}

#[cfg(test)]
mod tests {
    use promethean_model::SystemClock;
    use promethean_store::memory::MemoryStore;

    use crate::publish::Publish;
    use crate::subscription::Subscribe;
    use crate::{Bus, BusOptions};

    #[tokio::test]
    async fn owners_of_deleted_topics_are_let_go() {
        let clock = std::sync::Arc::new(SystemClock::new());
        let store = std::sync::Arc::new(MemoryStore::new(clock.clone(), Default::default()));
        let bus = Bus::open(store, clock, BusOptions::default()).await.unwrap();
        for topic in ["t.a", "t.b", "t.c"] {
            bus.publish(Publish::new(topic.parse().unwrap(), "1")).await.unwrap();
        }
        let mut request = Subscribe::new("t.*".parse().unwrap(), "g".parse().unwrap());
        request.options.partitions = Some(4);
        request.member.member_id = Some("m".parse().unwrap());
        let subscription = bus.subscribe(request).await.unwrap();
        let owners = || {
            let key = subscription.link.key();
            let entries = bus.groups.coordinators.lock();
            entries.map[&key].owners.iter().map(|owner| owner.topic.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(owners().len(), 3);
        bus.delete_topic(&"t.b".parse().unwrap()).await.unwrap();
        let mut left = owners();
        left.sort();
        assert_eq!(left, ["t.a", "t.c"]);
        drop(subscription);
        bus.close().await;
    }
}
