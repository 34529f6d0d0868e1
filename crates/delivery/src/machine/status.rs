//! The status of a machine, for operators.

use std::collections::BTreeMap;

use promethean_model::Offset;

use super::Machine;
use super::unfinished::Stage;
use crate::input::MemberNo;

/// The most blocked keys in a status.
const BLOCKED_KEYS_MAX: usize = 100;

/// The status of a machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryStatus {
    /// Every offset below it is finished.
    pub floor: Offset,
    /// The durable end of the topic, at most the end of the claim.
    pub end: Offset,
    /// Every offset below it is known: finished, or with its stage.
    pub scanned: Offset,
    /// Offsets below the end that are not finished.
    pub lag: u64,
    /// Current leases.
    pub in_flight: usize,
    /// Events with failed attempts that are not finished.
    pub failed: usize,
    /// Finished ranges above the floor.
    pub ranges: usize,
    /// Offsets that retention dropped before they were finished, since the machine was built.
    pub expired: u64,
    /// What happened to leases since the machine was built.
    pub counts: DeliveryCounts,
    /// Events that wait for an earlier event of their key.
    pub blocked: usize,
    /// Redriven events that are not finished.
    pub redriven: usize,
    /// Keys with events that wait, at most 100 keys.
    pub blocked_keys: Vec<BlockedKey>,
}

/// Counts of what happened to leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Deliveries after the first attempt.
    pub redelivered: u64,
    /// Acked events, by the member or by `auto_ack`.
    pub acked: u64,
    /// Nacked leases.
    pub nacked: u64,
    /// Expired leases.
    pub lease_expired: u64,
}

/// A key with events that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockedKey {
    /// XXH3-64 of the key.
    pub key: u64,
    /// The offset of the event they wait for.
    pub offset: Offset,
    /// The member that holds that event, if it is leased.
    pub member: Option<MemberNo>,
    /// How many events wait.
    pub waiting: usize,
}

impl Machine {
    /// How many leases each member has. Looks at every unfinished event, so it is for single questions of users.
    pub fn leases_by_member(&self) -> BTreeMap<MemberNo, usize> {
        let mut counts = BTreeMap::new();
        for (_, _, lease) in self.unfinished.leases() {
            *counts.entry(lease.member).or_default() += 1;
        }
        counts
    }

    /// The status at this moment.
    pub fn status(&self) -> DeliveryStatus {
        let floor = self.finished.floor();
        DeliveryStatus {
            floor,
            end: self.end,
            scanned: self.scan,
            lag: self.end.since(floor).saturating_sub(self.finished.covered_below(self.end)),
            in_flight: self.unfinished.leased,
            failed: self.failures.len(),
            ranges: self.finished.ranges(),
            expired: self.expired,
            counts: self.counts,
            blocked: self.unfinished.blocked,
            redriven: self.unfinished.redriven,
            blocked_keys: self
                .key_queues
                .blocked()
                .take(BLOCKED_KEYS_MAX)
                .map(|(key, queue)| {
                    let offset = Offset(queue.head);
                    let member = match self.unfinished.get(offset).map(|entry| entry.stage) {
                        Some(Stage::Leased(lease)) => Some(lease.member),
                        _ => None,
                    };
                    BlockedKey { key, offset, member, waiting: queue.rest.len() }
                })
                .collect(),
        }
    }
}
