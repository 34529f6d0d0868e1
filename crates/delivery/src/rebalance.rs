//! A rebalance: which partitions each member gained and lost.

use std::collections::BTreeMap;

use promethean_model::MemberId;

use crate::input::MemberNo;

/// The changes of one rebalance of a partitioned group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebalance {
    /// The new epoch.
    pub epoch: u64,
    /// The members whose partitions changed, including members that left, by session.
    pub changes: Vec<MemberChange>,
    /// The sessions that are lost: they were silent for too long, their connection broke, or another session
    /// took their name.
    pub lost: Vec<MemberNo>,
}

/// The partitions that one member gained and lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberChange {
    /// The name of the member.
    pub member: MemberId,
    /// Its session.
    pub session: MemberNo,
    /// The partitions it gained, ascending.
    pub assigned: Vec<u32>,
    /// The partitions it lost, ascending.
    pub revoked: Vec<u32>,
}

impl MemberChange {
    /// Joins this change and a later one into one, for a member that was told neither. A partition that was
    /// gained and then lost is in neither list. A partition that was lost and then gained is in both, since
    /// another member owned it in between.
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

/// A session that owns a partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PartitionOwner {
    pub(crate) session: MemberNo,
    pub(crate) member: MemberId,
}

/// The changes between two lists of owners by partition.
pub(crate) fn changes(
    before: Vec<Option<PartitionOwner>>,
    after: Vec<Option<PartitionOwner>>,
) -> Vec<MemberChange> {
    let mut by_owner: BTreeMap<PartitionOwner, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
    for ((had, has), partition) in before.into_iter().zip(after).zip(0..) {
        if had == has {
            continue;
        }
        if let Some(had) = had {
            by_owner.entry(had).or_default().1.push(partition);
        }
        if let Some(has) = has {
            by_owner.entry(has).or_default().0.push(partition);
        }
    }
    let change = |(owner, (assigned, revoked)): (PartitionOwner, _)| MemberChange {
        member: owner.member,
        session: owner.session,
        assigned,
        revoked,
    };
    by_owner.into_iter().map(change).collect()
}
