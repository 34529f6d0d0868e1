//! Support for tests: a disk, a state engine and a clock that misbehave on demand, and the ledger that judges the result.
//!
//! - [`fault_disk`]: an in-memory `Disk` with power cuts, I/O errors and bit rot.
//! - [`gate_disk`]: a disk whose syncs take as long as a test wants.
//! - [`fault_state`]: an in-memory `StateSink` that forgets what was not synced.
//! - [`manual_clock`]: time that moves only when told to.
//! - [`ledger`]: what producers were told, checked against what readers see.
//! - [`conformance`]: what every store must do.
//! - [`rng`]: seeded randomness; everything above draws from it and from nothing else.
#![expect(clippy::indexing_slicing, reason = "a wrong index in test support must fail the test that uses it")]

pub mod conformance;
pub mod fault_disk;
pub mod fault_state;
pub mod gate_disk;
pub mod ledger;
pub mod manual_clock;
pub mod rng;

pub use fault_disk::{Failure, FaultDisk, Matcher, OpKind, Snapshot};
pub use fault_state::FaultState;
pub use gate_disk::GateDisk;
pub use ledger::{Ledger, LedgerEntry, ObservedEvent, ObservedTopic, ObservedTopics};
pub use manual_clock::ManualClock;
/// The stores, for tests of crates that see them only through the bus.
pub use promethean_store as store;
pub use rng::SeededRng;
