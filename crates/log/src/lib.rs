//! The event log engine: one journal, per-topic segments, shared indexes. Synchronous; all I/O through
//! `Disk`.
//!
//! A batch goes `batch` -> `sequencer` (with `checks`) -> `commit` -> `journal`. Durable records go through
//! `apply` to segment files; `checkpoint` makes these durable too; `recovery` opens a directory after a stop
//! or a crash. Readers use `read` and `lookup`. `docs/disk-format.md` draws the bytes and names the
//! invariants.

mod apply;
mod backup;
mod batch;
mod bytes;
mod checkpoint;
mod checks;
mod commit;
mod compaction;
mod core;
mod damage;
mod descriptors;
pub mod disk;
mod error;
mod fetch;
mod file_io;
mod files;
mod holds;
mod index;
mod journal;
mod log;
mod log_clock;
mod lookup;
mod manifest;
mod notice;
mod options;
pub mod planted;
mod poison;
mod read;
mod real_disk;
mod rebuild;
mod recent;
mod record;
mod recovery;
mod redo;
mod repair;
mod retention;
mod room;
mod runs;
mod samples;
mod segment;
mod sequencer;
mod space;
pub mod state;
mod step_watch;
mod sync_times;
mod threads;
mod topic;
mod verify;

pub use crate::backup::{LogBackup, LogBackupFile, LogBackupTopic};
pub use crate::batch::{Completion, LogBatch, LogReceipt, LogSubmission, PlacedRecord, Placements};
pub use crate::core::{NoObserver, Observer};
pub use crate::error::{
    AppendError, LogBackupError, LogDamage, LogOpenError, LogReadError, MaintenanceError,
};
pub use crate::holds::Holds;
pub use crate::log::{Log, LogHealth, OpenArgs};
pub use crate::notice::{LogNeed, LogNotice};
pub use crate::options::{LogOptions, TopicPolicy};
pub use crate::read::{ReadLimit, RecordPage};
pub use crate::real_disk::RealDisk;
pub use crate::record::{NewEvent, NewId, Record, RecordView};
pub use crate::recovery::RecoveryReport;
pub use crate::repair::{LogRepair, LogRepairReport, LostEvents, RepairSettings};
pub use crate::step_watch::{Step, StepWatch};
pub use crate::sync_times::{LogFigures, SYNC_LIMITS_MS};
pub use crate::topic::{LogTopicInfo, Topic};
pub use crate::verify::LogVerifyReport;
