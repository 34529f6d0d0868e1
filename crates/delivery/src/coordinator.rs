//! The coordinator: which member of a partitioned group owns which partition.

use std::collections::BTreeMap;

use promethean_model::limits::PARTITIONS_MAX;
use promethean_model::{MemberId, rendezvous_owner};
use serde::Serialize;
use serde_json::Value;

use crate::error::DeliveryError;
use crate::input::{Leaving, MemberNo, Now};
use crate::rebalance::{self, PartitionOwner, Rebalance};

/// How long a member that sends heartbeats may be silent before it is removed.
pub const HEARTBEAT_TTL_MS: u64 = 15_000;
/// How often the coordinator looks for silent members.
pub const RECOMPUTE_EVERY_MS: u64 = 3_000;

/// How a member shows that it is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Liveness {
    /// By its socket or its subscription; their owner calls `leave` when it is gone.
    #[default]
    Socket,
    /// By heartbeats.
    Heartbeat,
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

/// A request of a member to join.
#[derive(Debug, Clone, PartialEq)]
pub struct Joining {
    /// Its name. If another session has the name, that session loses it and its partitions.
    pub member: MemberId,
    /// Its session, never used before.
    pub session: MemberNo,
    /// How it shows that it is alive.
    pub liveness: Liveness,
    /// Data that the member gives about itself, for operators.
    pub meta: Option<Value>,
}

/// The partitions of a group and their owners. It is told of members and of time, and returns the changes.
///
/// Invariants: while there are members, every partition has exactly one owner, which is a member; the owners
/// follow from the names of the members alone; the epoch grows whenever a partition changes hands, and only
/// then.
#[derive(Debug)]
pub struct Coordinator {
    partitions: u32,
    epoch: u64,
    /// When the epoch last grew, epoch ms.
    since_ms: i64,
    members: BTreeMap<MemberId, MemberSession>,
    /// The owner of each partition; all are `None` or none is.
    owners: Vec<Option<MemberId>>,
    recompute_at_ms: u64,
}

#[derive(Debug)]
struct MemberSession {
    session: MemberNo,
    liveness: Liveness,
    meta: Option<Value>,
    joined_ms: i64,
    /// When it last showed that it is alive, monotonic.
    seen_at_ms: u64,
}

impl Coordinator {
    /// Makes a coordinator without members. `epoch` is the last known epoch, so that epochs grow over
    /// restarts.
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

    /// Adds a member. Joining again with the same session updates its data.
    pub fn join(&mut self, joining: Joining, now: Now) -> Option<Rebalance> {
        let before = self.snapshot();
        let Joining { member: id, session, liveness, meta } = joining;
        let replaced = self.members.get(&id).map(|known| known.session).filter(|known| *known != session);
        let joined_ms = match self.members.get(&id) {
            Some(same) if same.session == session => same.joined_ms,
            _ => now.wall_ms,
        };
        let member = MemberSession { session, liveness, meta, joined_ms, seen_at_ms: now.monotonic_ms };
        if self.members.insert(id.clone(), member).is_none() {
            self.hand_over_to(&id);
        }
        self.finish(before, replaced.into_iter().collect(), now)
    }

    /// Notes a heartbeat. A session that is unknown, or has lost its name to another, is refused and must
    /// join again.
    pub fn heartbeat(&mut self, member: &MemberId, session: MemberNo, now: Now) -> Result<(), DeliveryError> {
        let known = self.members.get_mut(member).filter(|known| known.session == session);
        let known = known.ok_or_else(|| DeliveryError::UnknownMember { member: member.clone() })?;
        known.seen_at_ms = known.seen_at_ms.max(now.monotonic_ms);
        Ok(())
    }

    /// Removes a session. A session that has lost its name to another is removed already; then nothing
    /// changes.
    pub fn leave(
        &mut self,
        member: &MemberId,
        session: MemberNo,
        how: Leaving,
        now: Now,
    ) -> Option<Rebalance> {
        if self.members.get(member).is_none_or(|known| known.session != session) {
            return None;
        }
        let before = self.snapshot();
        self.remove(member);
        let lost = match how {
            Leaving::Lost => vec![session],
            Leaving::Released => Vec::new(),
        };
        self.finish(before, lost, now)
    }

    /// Removes members whose heartbeats are overdue.
    pub fn tick(&mut self, now: Now) -> Option<Rebalance> {
        if now.monotonic_ms < self.recompute_at_ms {
            return None;
        }
        self.recompute_at_ms = now.monotonic_ms.saturating_add(RECOMPUTE_EVERY_MS);
        let is_gone = |member: &MemberSession| {
            member.liveness == Liveness::Heartbeat
                && now.monotonic_ms.saturating_sub(member.seen_at_ms) > HEARTBEAT_TTL_MS
        };
        let gone: Vec<(MemberId, MemberNo)> = (self.members.iter())
            .filter(|(_, member)| is_gone(member))
            .map(|(id, member)| (id.clone(), member.session))
            .collect();
        if gone.is_empty() {
            return None;
        }
        let before = self.snapshot();
        gone.iter().for_each(|(id, _)| self.remove(id));
        self.finish(before, gone.into_iter().map(|(_, session)| session).collect(), now)
    }

    /// Whether any member sends heartbeats, so that ticks are needed.
    pub fn has_heartbeats(&self) -> bool {
        self.members.values().any(|member| member.liveness == Liveness::Heartbeat)
    }

    /// When to call `tick` next, monotonic.
    pub const fn next_tick_ms(&self) -> u64 {
        self.recompute_at_ms
    }

    /// Changes the number of partitions; refused while there are members.
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

    /// The number of partitions.
    pub const fn partitions(&self) -> u32 {
        self.partitions
    }

    /// How often partitions changed hands.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The session that owns each partition, for `Input::Assign`.
    pub fn owners(&self) -> Vec<Option<MemberNo>> {
        let session = |id: &MemberId| self.members.get(id).map(|member| member.session);
        self.owners.iter().map(|owner| owner.as_ref().and_then(session)).collect()
    }

    /// The partitions of a member, ascending.
    pub fn partitions_of(&self, member: &MemberId) -> Vec<u32> {
        let owned = self.owners.iter().zip(0..).filter(|(owner, _)| owner.as_ref() == Some(member));
        owned.map(|(_, partition)| partition).collect()
    }

    /// The group as operators see it.
    pub fn view(&self) -> CoordinatorView {
        let member = |(id, member): (&MemberId, &MemberSession)| MemberView {
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

    /// Gives the newcomer the partitions where its score is the highest; only the current owner has to be
    /// compared.
    fn hand_over_to(&mut self, newcomer: &MemberId) {
        for (owner, partition) in self.owners.iter_mut().zip(0..) {
            *owner = match owner.take() {
                Some(owner) => rendezvous_owner(partition, &[owner, newcomer.clone()]).cloned(),
                None => Some(newcomer.clone()),
            };
        }
    }

    /// Removes a member; only the partitions it owned get a new owner.
    fn remove(&mut self, leaver: &MemberId) {
        self.members.remove(leaver);
        let left: Vec<MemberId> = self.members.keys().cloned().collect();
        for (owner, partition) in self.owners.iter_mut().zip(0..) {
            if owner.as_ref() == Some(leaver) {
                *owner = rendezvous_owner(partition, &left).cloned();
            }
        }
    }

    fn snapshot(&self) -> Vec<Option<PartitionOwner>> {
        let current = |id: &MemberId| {
            self.members.get(id).map(|member| PartitionOwner { session: member.session, member: id.clone() })
        };
        self.owners.iter().map(|owner| owner.as_ref().and_then(current)).collect()
    }

    fn finish(
        &mut self,
        before: Vec<Option<PartitionOwner>>,
        lost: Vec<MemberNo>,
        now: Now,
    ) -> Option<Rebalance> {
        let after = self.snapshot();
        if before == after {
            return None;
        }
        self.epoch += 1;
        self.since_ms = now.wall_ms;
        Some(Rebalance { epoch: self.epoch, changes: rebalance::changes(before, after), lost })
    }
}

/// A partitioned group as operators see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoordinatorView {
    /// The number of partitions.
    pub partitions: u32,
    /// How often partitions changed hands.
    pub epoch: u64,
    /// When they last did, epoch ms.
    pub since: i64,
    /// The members, by name.
    pub members: Vec<MemberView>,
}

/// A member of a partitioned group as operators see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemberView {
    /// Its name.
    pub member: MemberId,
    /// Data that the member gives about itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
    /// The partitions it owns, ascending.
    pub partitions: Vec<u32>,
    /// When it joined, epoch ms.
    pub since: i64,
    /// How it shows that it is alive: `socket` or `heartbeat`.
    pub liveness: &'static str,
}

fn check_partitions(partitions: u32) -> Result<(), DeliveryError> {
    if (1..=PARTITIONS_MAX).contains(&partitions) {
        return Ok(());
    }
    Err(DeliveryError::BadPartitions { given: partitions })
}

// The message of `BadPartitions` names the number.
const _: () = assert!(PARTITIONS_MAX == 4096);
