//! A `Disk` in memory that keeps the seen bytes apart from the durable ones, which survive a power cut.
//!
//! - `disk`: the handle and its faults. `volume` and `file`: the `Disk` and `DiskFile` traits over it.
//! - `state`: everything behind the one mutex; admits or refuses each operation.
//! - `bytes`: one file's seen and durable bytes. `names`: the same for folders' entries.
//! - `crash`: power cut, process kill, snapshots.
//! - `faults`: errors, short writes, lost syncs and the stop after N operations.
//! - `surgery`: bit rot, truncation and set-up without the knowledge of the code under test.
//! - `trace`: the last operations, for a failing seed.

mod bytes;
mod crash;
mod disk;
mod faults;
mod file;
mod names;
mod state;
mod surgery;
#[cfg(test)]
mod tests;
mod trace;
mod volume;

pub use bytes::SECTOR;
pub use crash::DiskSnapshot;
pub use disk::FaultDisk;
pub use faults::{DiskFailure, Matcher, OpKind};
