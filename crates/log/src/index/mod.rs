//! The index of ids and keys: a small log-structured merge tree of entries of fixed size, for all topics.
//!
//! New entries go to a memory table; a checkpoint freezes it and spills it as immutable runs, which are
//! merged in tiers.
//!
//! Invariants:
//! - Entries move active table -> frozen table -> runs, and are readable in the next place before they leave
//!   the last. Readers look in that order, so they never miss an entry.
//! - Of one topic and kind, a newer table or run has only higher offsets than an older one; merges join
//!   neighbours in age.
//! - An entry is a hint; the record decides. Entries of dropped events stay until a merge leaves them out.

mod cursor;
mod entry;
mod event_index;
mod footer;
mod lookup;
mod memtable;
mod merge;
mod page;
mod run;
mod run_writer;
mod slots;
mod sort;
mod tiers;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use entry::{EntryKind, GhostEntry};
pub(crate) use event_index::EventIndex;
pub(crate) use footer::{RunMeta, run_number, run_path};
pub(crate) use memtable::{Insert, MemTable};
pub(crate) use merge::Merged;
pub(crate) use run::{IndexRun, IndexRunError};

/// The folder of runs.
pub(crate) const DIR: &str = "index";
