//! The event log engine: one journal, per-topic segments, shared indexes. Synchronous; all I/O through `Disk`.

pub mod disk;
pub mod state;
