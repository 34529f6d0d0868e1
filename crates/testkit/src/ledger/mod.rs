//! The ledger: the outcomes that producers got, checked against the events that readers see.
//!
//! Every publish of an event is one *operation* with three outcomes: `invoked -> ok(offset) | fail | unknown`. An operation
//! without an outcome is unknown too: its producer died. A ledger is kept in this process, or as JSON lines by another.
//!
//! - `entry`: the lines. `book`: recording them, reading and writing them.
//! - `observed`: what a reader saw. `tries`: operations, joined. `check`: the rules. `holes`: events that
//!   compaction may remove. `violation`: broken rules.

mod book;
mod check;
mod entry;
mod holes;
mod observed;
#[cfg(test)]
mod tests;
mod tries;
mod violation;

pub use book::{Ledger, LedgerReadError};
pub use entry::{Invocation, LedgerEntry, OpId, payload_hash};
pub use observed::{ObservedEvent, ObservedTopic, ObservedTopics};
pub use violation::{Summary, Violation};
