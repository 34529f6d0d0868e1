//! What producers were told, checked against what readers see.
//!
//! Every publish of an event is one *operation* with three outcomes: `invoked -> ok(offset) | fail | unknown`. An operation
//! without an outcome is unknown too: its producer died. The ledger is kept in process or as JSON lines by another one.
//!
//! - `entry`: the lines. `book`: recording them, reading and writing them.
//! - `observed`: what a reader saw. `tries`: operations, joined. `check`: the rules. `holes`: what
//!   compaction may take. `violation`: what they find.

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
