//! The coordinators of partitioned groups; they send each rebalance to owners and members.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use promethean_delivery::{
    Coordinator, CoordinatorView, DeliveryError, Input, Joining, Leaving, MemberNo, Now, RECOMPUTE_EVERY_MS,
    Rebalance, Subject,
};
use promethean_model::{GroupName, IgnorePoison, MemberId};
use tokio::time::MissedTickBehavior;

use super::inbox::{Inbox, InboxItem};
use super::message::OwnerMessage;
use super::{ClaimOwner, Groups};
use crate::error::BusError;

type GroupAndSubject = (GroupName, Subject);

/// The coordinators of all partitioned groups that have members.
#[derive(Debug, Default)]
pub(crate) struct Coordinators(Mutex<CoordinatorTable>);

#[derive(Debug, Default)]
struct CoordinatorTable {
    map: HashMap<GroupAndSubject, PartitionedGroup>,
    /// Whether the task that looks for missed heartbeats runs.
    ticking: bool,
}

#[derive(Debug)]
struct PartitionedGroup {
    coordinator: Coordinator,
    inboxes: HashMap<MemberNo, Arc<Inbox>>,
    /// The owners of the subject's topics.
    owners: Vec<Arc<ClaimOwner>>,
}

/// A member that joins a partitioned group.
pub(crate) struct PartitionMember {
    pub(crate) joining: Joining,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) partitions: u32,
    /// The last epoch that was used before; new epochs are larger.
    pub(crate) epoch: u64,
}

impl Coordinators {
    /// Adds a member. It gets its partitions with the rebalance that follows.
    pub(crate) fn join(
        &self,
        key: &GroupAndSubject,
        member: PartitionMember,
        now: Now,
    ) -> Result<(), BusError> {
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

    /// Adds an owner of one of the subject's topics and sends it the assignment of partitions.
    pub(crate) fn attach(&self, key: &GroupAndSubject, owner: &Arc<ClaimOwner>) {
        let entries = &mut self.lock().map;
        let Some(entry) = entries.get_mut(key) else { return };
        let same_topic = |known: &Arc<ClaimOwner>| known.topic == owner.topic;
        if entry.owners.iter().any(|known| Arc::ptr_eq(known, owner)) {
            return;
        }
        entry.owners.retain(|known| !same_topic(known));
        entry.owners.push(Arc::clone(owner));
        // An error means that the owner has ended; it is replaced when the next owner of the topic is
        // attached.
        let _ = assign(owner, &entry.coordinator, &[]);
    }

    /// Removes an owner that has ended because its topic is gone.
    pub(crate) fn detach(&self, key: &GroupAndSubject, owner: &Arc<ClaimOwner>) {
        if let Some(entry) = self.lock().map.get_mut(key) {
            entry.owners.retain(|known| !Arc::ptr_eq(known, owner));
        }
    }

    /// Records a heartbeat of a session.
    pub(crate) fn heartbeat(
        &self,
        key: &GroupAndSubject,
        member: &MemberId,
        session: MemberNo,
        now: Now,
    ) -> Result<(), BusError> {
        let unknown = || DeliveryError::UnknownMember { member: member.clone() };
        let entries = &mut self.lock().map;
        Ok(entries.get_mut(key).ok_or_else(unknown)?.coordinator.heartbeat(member, session, now)?)
    }

    /// Takes the partitions of members whose heartbeats are overdue. Returns whether any member must send
    /// heartbeats.
    pub(crate) fn tick(&self, now: Now) -> bool {
        let mut entries = self.lock();
        for entry in entries.map.values_mut() {
            let rebalance = entry.coordinator.tick(now);
            entry.tell(rebalance);
        }
        entries.map.values().any(|entry| entry.coordinator.has_heartbeats())
    }

    /// Starts the task that looks for overdue heartbeats, if it does not run. It runs while any member must
    /// send heartbeats.
    pub(crate) fn keep_ticking(&self, groups: &Arc<Groups>) {
        if !std::mem::replace(&mut self.lock().ticking, true) {
            groups.base.tasks.spawn(tick(Arc::clone(groups)));
        }
    }

    /// Whether the ticking task may end. Decided under the lock, so that a later member starts a new task.
    fn stops_ticking(&self) -> bool {
        let mut entries = self.lock();
        entries.ticking = entries.map.values().any(|entry| entry.coordinator.has_heartbeats());
        !entries.ticking
    }

    /// Removes a session; its partitions go to other members.
    pub(crate) fn leave(
        &self,
        key: &GroupAndSubject,
        member: &MemberId,
        session: MemberNo,
        how: Leaving,
        now: Now,
    ) {
        let entries = &mut self.lock().map;
        let Some(entry) = entries.get_mut(key) else { return };
        let rebalance = entry.coordinator.leave(member, session, how, now);
        entry.tell(rebalance);
        entry.inboxes.remove(&session);
        if entry.inboxes.is_empty() {
            entries.remove(key);
        }
    }

    /// The present epoch of the group, if it has members.
    pub(crate) fn epoch(&self, key: &GroupAndSubject) -> Option<u64> {
        self.lock().map.get(key).map(|entry| entry.coordinator.epoch())
    }

    /// The state of every coordinator, for display.
    pub(crate) fn views(&self) -> Vec<(GroupName, Subject, CoordinatorView)> {
        let view = |((group, subject), entry): (&GroupAndSubject, &PartitionedGroup)| {
            (group.clone(), subject.clone(), entry.coordinator.view())
        };
        self.lock().map.iter().map(view).collect()
    }

    /// The state of one coordinator, for display.
    pub(crate) fn view(&self, group: &GroupName, subject: &Subject) -> Option<CoordinatorView> {
        let entries = self.lock();
        entries.map.get(&(group.clone(), subject.clone())).map(|entry| entry.coordinator.view())
    }

    fn lock(&self) -> MutexGuard<'_, CoordinatorTable> {
        // Rebalances are sent under this lock, so that owners and members get them in order.
        self.0.lock().ignore_poison()
    }
}

impl PartitionedGroup {
    fn tell(&mut self, rebalance: Option<Rebalance>) {
        let Some(rebalance) = rebalance else { return };
        // Before the owners: a member must learn of its partitions before it gets their events.
        for change in rebalance.changes {
            if let Some(inbox) = self.inboxes.get(&change.session) {
                inbox.put(InboxItem::Rebalance(rebalance.epoch, change));
            }
        }
        let coordinator = &self.coordinator;
        self.owners.retain(|owner| assign(owner, coordinator, &rebalance.lost).is_ok());
    }
}

/// Sends the assignment to an owner. An error if the owner has ended: it delivers nothing, and the next owner
/// of the topic is attached when it starts.
fn assign(owner: &ClaimOwner, coordinator: &Coordinator, lost: &[MemberNo]) -> Result<(), BusError> {
    let input = Input::Assign { owners: coordinator.owners(), lost: lost.to_vec() };
    owner.mailbox.send_now(OwnerMessage::Tell(input))
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
        // After the process missed time, heartbeats may have arrived that no task has read yet.
        if groups.base.pulse.grace_ms().is_none() {
            groups.coordinators.tick(groups.base.now());
        }
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
    async fn owners_of_deleted_topics_are_removed() {
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
            let key = subscription.membership.key();
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
