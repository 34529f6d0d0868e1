//! The event log engine: one journal, per-topic segments, shared indexes. Synchronous; all I/O through `Disk`.

pub mod disk;
#[cfg_attr(not(test), expect(dead_code, unused_imports, reason = "wired by the log"))]
mod index;
pub mod state;
