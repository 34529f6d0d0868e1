//! Support for tests: parts that misbehave on demand, a clock, the world of tests above the store, and the ledger that
//! judges the result.
//!
//! - [`fault_disk`]: an in-memory `Disk` with power cuts, I/O errors and bit rot.
//! - [`gate_disk`]: a disk whose syncs take as long as a test wants.
//! - [`fault_state`]: an in-memory `StateSink` that loses un-synced state in a power cut.
//! - [`torn_folder`]: a folder of real files whose un-synced bytes are torn in a power cut.
//! - [`fault_store`]: a store whose calls a test can hold back, fail and count.
//! - [`manual_clock`]: time that a test controls.
//! - [`world`]: a store, a bus over it and a clock; projections over them.
//! - [`patience`]: waiting without sleeping.
//! - [`ledger`]: the outcomes that producers got, checked against the events that readers see.
//! - [`conformance`]: what every store must do.
//! - [`names`]: names from text.
//! - [`rng`]: seeded randomness; everything above draws from it and from nothing else.
//! - [`mod@seeds`]: which seeds a suite of random runs takes, fresh ones in CI.
#![expect(clippy::indexing_slicing, reason = "a wrong index in test support must fail the test that uses it")]

pub mod conformance;
pub mod fault_disk;
pub mod fault_state;
pub mod fault_store;
pub mod gate_disk;
pub mod ledger;
pub mod manual_clock;
pub mod names;
pub mod patience;
pub mod rng;
pub mod seeds;
pub mod torn_folder;
pub mod world;

pub use fault_disk::{DiskFailure, DiskSnapshot, FaultDisk, Matcher, OpKind};
pub use fault_state::FaultState;
pub use fault_store::{Fault, FaultStore, StoreCall, When};
pub use gate_disk::GateDisk;
pub use ledger::{Ledger, LedgerEntry, ObservedEvent, ObservedTopic, ObservedTopics};
pub use manual_clock::ManualClock;
pub use names::{collection, group, topic};
pub use patience::{soon, starts_waiting, until, until_some};
/// The stores, for tests of crates that see them only through the bus.
pub use promethean_store as store;
pub use rng::SeededRng;
pub use seeds::seeds;
pub use torn_folder::SyncedFolder;
pub use world::{StoreKind, World};
