//! Members, owners and the epoch.

use std::collections::BTreeMap;

use promethean_model::limits::PARTITIONS_MAX;
use promethean_model::{MemberId, rendezvous_owner};
use serde_json::Value;

use super::view::{CoordinatorView, MemberView};
use crate::error::DeliveryError;
use crate::types::{MemberNo, Now};

/// A member that sends heartbeats is gone after this long without one.
pub const HEARTBEAT_TTL_MS: u64 = 15_000;
/// How often to look for such members.
pub const RECOMPUTE_EVERY_MS: u64 = 3_000;

/// How a member shows that it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Liveness {
    /// By its socket or its subscription, whose owner says when it is gone.
    #[default]
    Socket,
    /// By heartbeats.
    Heartbeat,
}

/// A member that joins.
#[derive(Debug, Clone, PartialEq)]
pub struct Joining {
    /// Its name. A name that is taken is taken over: the session that had it loses its partitions.
    pub member: MemberId,
    /// Its session, never used before.
    pub session: MemberNo,
    /// How it shows that it lives.
    pub liveness: Liveness,
    /// What it says of itself.
    pub meta: Option<Value>,
}

/// The partitions of a group and who owns them.
///
/// Invariants: while there are members, every partition has exactly one owner, which is a member; the owners follow
/// from the names of the members alone; the epoch grows whenever a partition changes hands, and only then.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) partitions: u32,
    pub(super) epoch: u64,
    /// When the epoch last grew, epoch ms.
    pub(super) since_ms: i64,
    pub(super) members: BTreeMap<MemberId, Member>,
    /// By partition; all `None` or none.
    pub(super) owners: Vec<Option<MemberId>>,
    recompute_at_ms: u64,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) session: MemberNo,
    pub(super) liveness: Liveness,
    pub(super) meta: Option<Value>,
    pub(super) joined_ms: i64,
    /// Monotonic.
    seen_at_ms: u64,
}

/// Partitions changed hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebalance {
    /// The new epoch.
    pub epoch: u64,
    /// Whose partitions changed, those that left included, by session.
    pub changes: Vec<MemberChange>,
}

impl MemberChange {
    /// This change and one after it, for a member that has heard of neither. A partition that came and went again is in
    /// neither list; one that went and came again is in both, since others had it in between.
    #[must_use]
    pub fn then(mut self, later: Self) -> Self {
        let both = |mut a: Vec<u32>, b: Vec<u32>| {
            a.extend(b);
            a.sort_unstable();
            a.dedup();
            a
        };
        let (passing, lost): (Vec<u32>, Vec<u32>) =
            later.revoked.into_iter().partition(|partition| self.assigned.contains(partition));
        self.assigned.retain(|partition| !passing.contains(partition));
        self.assigned = both(self.assigned, later.assigned);
        self.revoked = both(self.revoked, lost);
        self
    }
}

/// What changes for one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberChange {
    /// Its name.
    pub member: MemberId,
    /// Its session.
    pub session: MemberNo,
    /// Partitions it has now and had not before, ascending.
    pub assigned: Vec<u32>,
    /// Partitions it had and has no longer, ascending.
    pub revoked: Vec<u32>,
}

impl Coordinator {
    /// No members. `epoch` is the last one known, so that epochs grow over restarts.
    pub fn new(partitions: u32, epoch: u64, now: Now) -> Result<Self, DeliveryError> {
        check_partitions(partitions)?;
        Ok(Self {
            partitions,
            epoch,
            since_ms: now.wall_ms,
            members: BTreeMap::new(),
            owners: vec![None; partitions as usize],
            recompute_at_ms: now.monotonic_ms.saturating_add(RECOMPUTE_EVERY_MS),
        })
    }

    /// A member joins. Joining again with the same session updates what it says of itself.
    pub fn join(&mut self, joining: Joining, now: Now) -> Option<Rebalance> {
        let before = self.snapshot();
        let Joining { member: id, session, liveness, meta } = joining;
        let joined_ms = match self.members.get(&id) {
            Some(same) if same.session == session => same.joined_ms,
            _ => now.wall_ms,
        };
        let member = Member { session, liveness, meta, joined_ms, seen_at_ms: now.monotonic_ms };
        if self.members.insert(id.clone(), member).is_none() {
            self.hand_over_to(&id);
        }
        self.finish(before, now)
    }

    /// A member lives. A session that is not known, or was taken over, must join again.
    pub fn heartbeat(&mut self, member: &MemberId, session: MemberNo, now: Now) -> Result<(), DeliveryError> {
        let known = self.members.get_mut(member).filter(|known| known.session == session);
        let known = known.ok_or_else(|| DeliveryError::UnknownMember { member: member.clone() })?;
        known.seen_at_ms = known.seen_at_ms.max(now.monotonic_ms);
        Ok(())
    }

    /// A session ends. One that was taken over has ended already: its leaving changes nothing.
    pub fn leave(&mut self, member: &MemberId, session: MemberNo, now: Now) -> Option<Rebalance> {
        if self.members.get(member).is_none_or(|known| known.session != session) {
            return None;
        }
        let before = self.snapshot();
        self.remove(member);
        self.finish(before, now)
    }

    /// Time has passed: members without heartbeats are gone.
    pub fn tick(&mut self, now: Now) -> Option<Rebalance> {
        if now.monotonic_ms < self.recompute_at_ms {
            return None;
        }
        self.recompute_at_ms = now.monotonic_ms.saturating_add(RECOMPUTE_EVERY_MS);
        let is_gone = |member: &Member| {
            member.liveness == Liveness::Heartbeat
                && now.monotonic_ms.saturating_sub(member.seen_at_ms) > HEARTBEAT_TTL_MS
        };
        let gone: Vec<MemberId> =
            self.members.iter().filter(|(_, member)| is_gone(member)).map(|(id, _)| id.clone()).collect();
        if gone.is_empty() {
            return None;
        }
        let before = self.snapshot();
        gone.iter().for_each(|id| self.remove(id));
        self.finish(before, now)
    }

    /// Whether anybody has to be looked after.
    pub fn has_heartbeats(&self) -> bool {
        self.members.values().any(|member| member.liveness == Liveness::Heartbeat)
    }

    /// When to tick next, monotonic.
    pub const fn next_tick_ms(&self) -> u64 {
        self.recompute_at_ms
    }

    /// Another number of partitions, while nobody is there.
    pub fn set_partitions(&mut self, partitions: u32) -> Result<(), DeliveryError> {
        check_partitions(partitions)?;
        if partitions == self.partitions {
            return Ok(());
        }
        if !self.members.is_empty() {
            return Err(DeliveryError::PartitionsInUse {
                members: self.members.len(),
                partitions: self.partitions,
            });
        }
        self.partitions = partitions;
        self.owners = vec![None; partitions as usize];
        Ok(())
    }

    /// How many partitions there are.
    pub const fn partitions(&self) -> u32 {
        self.partitions
    }

    /// How often partitions changed hands.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The session that owns each partition, for the delivery machine.
    pub fn owners(&self) -> Vec<Option<MemberNo>> {
        let session = |id: &MemberId| self.members.get(id).map(|member| member.session);
        self.owners.iter().map(|owner| owner.as_ref().and_then(session)).collect()
    }

    /// The partitions of a member, ascending.
    pub fn partitions_of(&self, member: &MemberId) -> Vec<u32> {
        let owned = self.owners.iter().zip(0..).filter(|(owner, _)| owner.as_ref() == Some(member));
        owned.map(|(_, partition)| partition).collect()
    }

    /// What operators see.
    pub fn view(&self) -> CoordinatorView {
        let member = |(id, member): (&MemberId, &Member)| MemberView {
            member: id.clone(),
            meta: member.meta.clone(),
            partitions: self.partitions_of(id),
            since: member.joined_ms,
            liveness: member.liveness.as_str(),
        };
        CoordinatorView {
            partitions: self.partitions,
            epoch: self.epoch,
            since: self.since_ms,
            members: self.members.iter().map(member).collect(),
        }
    }

    /// Highest score wins, so a newcomer has only to be compared with each owner.
    fn hand_over_to(&mut self, newcomer: &MemberId) {
        for (owner, partition) in self.owners.iter_mut().zip(0..) {
            *owner = match owner.take() {
                Some(owner) => rendezvous_owner(partition, &[owner, newcomer.clone()]).cloned(),
                None => Some(newcomer.clone()),
            };
        }
    }

    /// Only what the leaver owned gets a new owner.
    fn remove(&mut self, leaver: &MemberId) {
        self.members.remove(leaver);
        let left: Vec<MemberId> = self.members.keys().cloned().collect();
        for (owner, partition) in self.owners.iter_mut().zip(0..) {
            if owner.as_ref() == Some(leaver) {
                *owner = rendezvous_owner(partition, &left).cloned();
            }
        }
    }

    fn snapshot(&self) -> Vec<Option<Holder>> {
        let holder = |id: &MemberId| {
            self.members.get(id).map(|member| Holder { session: member.session, member: id.clone() })
        };
        self.owners.iter().map(|owner| owner.as_ref().and_then(holder)).collect()
    }

    fn finish(&mut self, before: Vec<Option<Holder>>, now: Now) -> Option<Rebalance> {
        let after = self.snapshot();
        if before == after {
            return None;
        }
        self.epoch += 1;
        self.since_ms = now.wall_ms;
        let mut changes: BTreeMap<Holder, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
        for ((had, has), partition) in before.into_iter().zip(after).zip(0..) {
            if had == has {
                continue;
            }
            if let Some(had) = had {
                changes.entry(had).or_default().1.push(partition);
            }
            if let Some(has) = has {
                changes.entry(has).or_default().0.push(partition);
            }
        }
        let change = |(holder, (assigned, revoked)): (Holder, _)| MemberChange {
            member: holder.member,
            session: holder.session,
            assigned,
            revoked,
        };
        Some(Rebalance { epoch: self.epoch, changes: changes.into_iter().map(change).collect() })
    }
}

/// A session of a member that owns something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    session: MemberNo,
    member: MemberId,
}

impl Liveness {
    /// The word operators see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Heartbeat => "heartbeat",
        }
    }
}

fn check_partitions(partitions: u32) -> Result<(), DeliveryError> {
    if (1..=PARTITIONS_MAX).contains(&partitions) {
        return Ok(());
    }
    Err(DeliveryError::BadPartitions { given: partitions })
}

// The message of `BadPartitions` says it.
const _: () = assert!(PARTITIONS_MAX == 4096);
