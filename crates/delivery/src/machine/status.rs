//! What can be seen of a machine from outside.

use promethean_model::Offset;

use super::Machine;
use super::table::State;
use crate::types::MemberNo;

/// At most so many blocked keys are listed.
const BLOCKED_KEYS_MAX: usize = 100;

/// A machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Every offset below is finished.
    pub floor: Offset,
    /// The durable end, as far as the claim goes.
    pub end: Offset,
    /// Offsets below the end that are not finished.
    pub lag: u64,
    /// Leases.
    pub in_flight: usize,
    /// Failed events that are not finished.
    pub failed: usize,
    /// Finished ranges above the floor.
    pub ranges: usize,
    /// Offsets that retention dropped before they were finished, since the machine was built.
    pub expired: u64,
    /// What happened since the machine was built.
    pub counts: Counts,
    /// Events that wait for an earlier one of their key.
    pub blocked: usize,
    /// Redriven dead letters that are not finished.
    pub redriven: usize,
    /// Keys with events that wait, at most 100 of them.
    pub blocked_keys: Vec<BlockedKey>,
}

/// What happened to leases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Deliveries that were not the first attempt.
    pub redelivered: u64,
    /// Events acked, by the member or by being written.
    pub acked: u64,
    /// Leases given back.
    pub nacked: u64,
    /// Leases that ran out.
    pub lease_expired: u64,
}

/// A key with events that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockedKey {
    /// XXH3-64 of the key.
    pub key: u64,
    /// The event they wait for.
    pub offset: Offset,
    /// The member that holds it, if one does.
    pub member: Option<MemberNo>,
    /// How many wait.
    pub waiting: usize,
}

impl Machine {
    /// What can be seen from outside.
    pub fn status(&self) -> Status {
        let floor = self.finished.floor();
        Status {
            floor,
            end: self.end,
            lag: self.end.since(floor).saturating_sub(self.finished.covered_below(self.end)),
            in_flight: self.table.leased,
            failed: self.failures.len(),
            ranges: self.finished.ranges(),
            expired: self.expired,
            counts: self.counts,
            blocked: self.table.blocked,
            redriven: self.table.extras,
            blocked_keys: self
                .keys
                .blocked()
                .take(BLOCKED_KEYS_MAX)
                .map(|(key, line)| {
                    let offset = Offset(line.head);
                    let member = match self.table.get(offset).map(|entry| entry.state) {
                        Some(State::Leased(lease)) => Some(lease.member),
                        _ => None,
                    };
                    BlockedKey { key, offset, member, waiting: line.rest.len() }
                })
                .collect(),
        }
    }
}
