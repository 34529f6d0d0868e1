//! Operations, joined from their lines.

use std::collections::BTreeMap;

use super::entry::{Invocation, LedgerEntry, OpId};
use super::observed::ObservedEvent;
use super::violation::Violation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TryOutcome {
    Ok(u64),
    Fail,
    Unknown,
}

/// One operation: a try to publish an event.
#[derive(Debug)]
pub(super) struct Try<'a> {
    pub(super) event: &'a Invocation,
    /// Its place in the order of invocation.
    pub(super) order: usize,
    pub(super) outcome: TryOutcome,
}

impl Try<'_> {
    /// Whether this try may have written the event.
    pub(super) fn may_have_happened(&self) -> bool {
        self.outcome != TryOutcome::Fail
    }

    pub(super) fn acked(&self) -> Option<u64> {
        match self.outcome {
            TryOutcome::Ok(offset) => Some(offset),
            TryOutcome::Fail | TryOutcome::Unknown => None,
        }
    }

    pub(super) fn explains(&self, found: &ObservedEvent) -> bool {
        self.event.key == found.key && self.event.payload == found.payload
    }
}

/// Topic and id: tries that share them are tries of one event.
pub(super) type EventName<'a> = (&'a str, &'a str);
/// Each event's tries in the order of invocation.
pub(super) type Tries<'a> = BTreeMap<EventName<'a>, Vec<Try<'a>>>;

/// Joins each operation's beginning and end.
pub(super) fn collect<'a>(entries: &'a [LedgerEntry], violations: &mut Vec<Violation>) -> Tries<'a> {
    let mut begun: BTreeMap<OpId, (usize, &Invocation)> = BTreeMap::new();
    let mut ended: BTreeMap<OpId, TryOutcome> = BTreeMap::new();
    let mut malformed = |op, why| violations.push(Violation::Malformed { op, why });
    for (order, entry) in entries.iter().enumerate() {
        let (op, outcome) = match entry {
            LedgerEntry::Invoked { op, event } => {
                if begun.insert(*op, (order, event)).is_some() {
                    malformed(*op, "was invoked twice");
                }
                continue;
            }
            LedgerEntry::Ok { op, offset } => (*op, TryOutcome::Ok(*offset)),
            LedgerEntry::Fail { op } => (*op, TryOutcome::Fail),
            LedgerEntry::Unknown { op } => (*op, TryOutcome::Unknown),
        };
        if !begun.contains_key(&op) {
            malformed(op, "ended and was never invoked");
        } else if ended.insert(op, outcome).is_some() {
            malformed(op, "ended twice");
        }
    }
    let mut tries: Tries<'a> = BTreeMap::new();
    for (op, (order, event)) in begun {
        let outcome = ended.get(&op).copied().unwrap_or(TryOutcome::Unknown);
        tries.entry((&event.topic, &event.id)).or_default().push(Try { event, order, outcome });
    }
    tries.values_mut().for_each(|tries| tries.sort_by_key(|attempt| attempt.order));
    tries
}
