//! Errors of the log, one enum per operation. Every message says what to do.

use std::fmt;
use std::io;

use promethean_model::EventId;

use crate::space::Shortage;

/// A damaged range of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDamage {
    /// The topic whose events are affected; `None` for files shared by all topics.
    pub topic: Option<String>,
    /// Path inside the data directory.
    pub file: String,
    /// First damaged byte.
    pub from_byte: u64,
    /// First byte after the damage that can be used again.
    pub to_byte: u64,
    /// First offset that cannot be served.
    pub from_offset: u64,
    /// First offset after the damage that can be served.
    pub to_offset: u64,
    /// Which check failed.
    pub what: &'static str,
}

impl fmt::Display for LogDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes {}..{} ({})", self.file, self.from_byte, self.to_byte, self.what)?;
        if let Some(topic) = &self.topic {
            write!(f, ", topic `{topic}` offsets {}..{}", self.from_offset, self.to_offset)?;
        }
        Ok(())
    }
}

/// What to do about damage without a backup.
pub(crate) const REPAIR: &str =
    "run `promethean verify --repair --data DIR` to set the damage aside and keep the rest";

/// Why a log did not open. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogOpenError {
    /// Another process uses the directory.
    #[error("the data directory is in use by another process: stop it, or use another directory")]
    Locked,
    /// The directory was written by another version.
    #[error(
        "the data directory has format `{found}`, this version reads `{expected}`: use the version that wrote it"
    )]
    Format {
        /// The format of the directory.
        found: String,
        /// The format that this version reads.
        expected: &'static str,
    },
    /// Acknowledged data is damaged.
    #[error("corrupt_range: {0}: acknowledged data is damaged; restore this file from a backup, or {REPAIR}")]
    CorruptRange(LogDamage),
    /// An option that a log cannot work with.
    #[error("the option `{option}` is {value}: set it to {bound} {limit}")]
    Options {
        /// Its name.
        option: &'static str,
        /// Its value.
        value: u64,
        /// `at least` or `at most`.
        bound: &'static str,
        /// The bound.
        limit: u64,
    },
    /// The state engine has applied frames that the journal does not hold.
    #[error(
        "state_ahead: the state was applied up to {applied}, the journal ends at {end}: journal and state are from \
         different times; restore both from one backup, or {REPAIR}"
    )]
    StateAhead {
        /// Last LSN in the state.
        applied: u64,
        /// Last LSN in the journal.
        end: u64,
    },
    /// The state engine lost frames that the checkpoint relies on.
    #[error(
        "state_behind: the state was applied up to {applied}, the checkpoint needs {needed}: restore the `state` \
         folder from the backup that belongs to this directory, or {REPAIR}"
    )]
    StateBehind {
        /// Last LSN in the state.
        applied: u64,
        /// Last LSN that was durable in the state, by the manifest.
        needed: u64,
    },
    /// The state engine failed.
    #[error("the state engine failed: {0}")]
    State(String),
    /// The file system failed.
    #[error("{action} `{file}` failed: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// Why a batch was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The topic's next offset is not the expected one.
    #[error("topic `{topic}` ends at {actual}, expected {expected}: read up to {actual} and try again")]
    Conflict {
        /// Topic name.
        topic: String,
        /// The offset that the batch expected.
        expected: u64,
        /// The next offset.
        actual: u64,
    },
    /// The key's latest event is not the expected one.
    #[error(
        "the latest event of this key in `{topic}` is at {actual:?}, expected {expected:?}: read it and try again"
    )]
    KeyConflict {
        /// Topic name.
        topic: String,
        /// The offset that the batch expected.
        expected: Option<u64>,
        /// Offset of the key's latest event.
        actual: Option<u64>,
    },
    /// Another event has the id.
    #[error("id {id} is already at offset {offset} of `{topic}` with another key or payload: use a new id")]
    IdConflict {
        /// Topic name.
        topic: String,
        /// The id.
        id: EventId,
        /// The offset of that event.
        offset: u64,
    },
    /// The disk is nearly full, or the last write found no space. The batch is not in the log.
    #[error("storage_full: {reason}: free space, publishing then resumes")]
    StorageFull {
        /// What there is too little of.
        reason: String,
    },
    /// The log cannot take the batch now, because earlier work is not done. The batch is not in the log.
    #[error("busy: the log is busy with {what}: try again")]
    Busy {
        /// The work that the batch would have to wait for.
        what: &'static str,
    },
    /// An earlier failure stopped the writer. The batch is not in the log.
    #[error("the log stopped writing ({reason}): restart the process")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// The batch may or may not survive.
    #[error("unknown_outcome: {reason}: restart, then publish again with the same ids")]
    UnknownOutcome {
        /// The failure.
        reason: String,
    },
    /// A key, an event or a batch exceeds its limit.
    #[error("{what} is {size} bytes, at most {max} are allowed: send less")]
    TooLarge {
        /// Which part.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// Too many topics.
    #[error("there are already {max} topics; delete some, or raise `limits.events.topics_max`")]
    TooManyTopics {
        /// The limit.
        max: u32,
    },
    /// The topic is compacted and the event has no key.
    #[error("topic `{topic}` is compacted: give the event a key")]
    KeyRequired {
        /// Topic name.
        topic: String,
    },
    /// The topic was deleted.
    #[error("topic `{topic}` was deleted: look it up again to create it anew")]
    TopicDeleted {
        /// Topic name.
        topic: String,
    },
    /// The lookup of an id or a key failed, so that a duplicate could not be excluded. Nothing was appended.
    #[error("looking for an earlier event failed: {message}")]
    Lookup {
        /// The failure.
        message: String,
    },
    /// The log is closed.
    #[error("the log is closed")]
    Closed,
}

/// Why events were not read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LogReadError {
    /// Retention has removed the offset.
    #[error("offset {requested} of `{topic}` is gone, the earliest kept is {earliest}: go on from there")]
    OutOfRange {
        /// Topic name.
        topic: String,
        /// The offset that was asked for.
        requested: u64,
        /// The first offset that is kept.
        earliest: u64,
    },
    /// The bytes are damaged.
    #[error(
        "corrupt_range: {0}: restore the file from a backup, or go on after the range; stop the server and \
         {REPAIR}"
    )]
    CorruptRange(LogDamage),
    /// The file system failed.
    #[error("{action} `{file}` failed: {message}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        file: String,
        /// The error of the system.
        message: String,
        /// The number of that error, if it has one.
        os_error: Option<i32>,
    },
    /// An index run is damaged and is being rebuilt. Only lookups for an append are refused so.
    #[error("busy: an index is being rebuilt: try again")]
    Rebuilding,
}

impl LogReadError {
    pub(crate) fn of_io(action: &'static str, file: String, source: &io::Error) -> LogReadError {
        LogReadError::Io { action, file, message: source.to_string(), os_error: source.raw_os_error() }
    }

    /// Whether a file could not be opened for lack of descriptors.
    pub fn lacks_descriptors(&self) -> bool {
        let LogReadError::Io { os_error: Some(number), .. } = self else { return false };
        Shortage::of(&io::Error::from_raw_os_error(*number)) == Some(Shortage::Descriptors)
    }

    /// The error as an error of the system, for work that reads in order to write.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            LogReadError::Io { os_error: Some(number), .. } => io::Error::from_raw_os_error(number),
            other => io::Error::other(other),
        }
    }
}

/// Why a backup point was not staged or read. The log is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogBackupError {
    /// Another backup is under way.
    #[error("another backup is under way: wait until it has ended, or end it")]
    Running,
    /// The checkpoint before the backup did not finish.
    #[error("the checkpoint before the backup failed: {0}")]
    Maintenance(MaintenanceError),
    /// The state engine failed.
    #[error("the state engine failed: {0}")]
    State(String),
    /// A file has fewer bytes than the manifest says.
    #[error("`{file}` is shorter than it was: stop the server and run `promethean verify --data DIR`")]
    Short {
        /// Its path in the data directory.
        file: String,
    },
    /// The file system failed.
    #[error("{action} `{file}` failed: {source}")]
    Io {
        /// The operation.
        action: &'static str,
        /// The file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// Why a checkpoint, retention or compaction did not finish.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MaintenanceError {
    /// The disk has no space; the work is tried again.
    #[error("no space left for {what}: free space, it is tried again")]
    NoSpace {
        /// The file that could not be written.
        what: String,
    },
    /// The process or the system has no file descriptor left; the work is tried again.
    #[error("no file descriptor left for {what}: raise the limit of open files, it is tried again")]
    NoDescriptors {
        /// The file that could not be opened.
        what: String,
    },
    /// The log has stopped writing.
    #[error("the log stopped writing ({reason}): restart the process")]
    Poisoned {
        /// The first failure.
        reason: String,
    },
    /// Data is damaged.
    #[error(transparent)]
    Read(#[from] LogReadError),
}

pub(crate) fn open_io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> LogOpenError {
    move |source| LogOpenError::Io { action, file: file.to_owned(), source }
}

pub(crate) fn read_io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> LogReadError {
    move |source| LogReadError::of_io(action, file.to_owned(), &source)
}
