//! Why an embedded store did not open, and the log's errors as errors of the ports.

use promethean_log::{AppendError, LogOpenError, LogReadError, MaintenanceError};
use promethean_model::{GroupName, Offset, OffsetRange, TopicName};
use thiserror::Error;

use crate::port::{CommitError, Damage, ReadError};

/// Why an embedded store did not open. Nothing was changed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The log refused: the directory is in use, of another format, damaged, or does not fit its state.
    #[error(transparent)]
    Log(LogOpenError),
    /// Another process has the state open.
    #[error(
        "locked: the state in the data directory is in use by another process; stop it, or use another directory"
    )]
    StateLocked,
    /// The state engine could not open its files.
    #[error(
        "state_corrupt: the `state` folder cannot be opened ({reason}); restore it from the backup of this directory, or \
         run `promethean verify --repair --data DIR` to set the damage aside and keep the rest"
    )]
    StateCorrupt {
        /// What the engine said.
        reason: String,
    },
    /// The state was written by another version.
    #[error("the state has format {found}, this version reads {expected}; use the version that wrote it")]
    StateFormat {
        /// What the state says.
        found: u64,
        /// What this version reads.
        expected: u64,
    },
    /// A cursor is beyond the log: the log lost its tail, or belongs to another time.
    #[error(
        "state_ahead: group `{group}` is at offset {floor} of topic `{topic}`, which ends at {end}: journal and state \
         are from different times; restore both from one backup, or run `promethean verify --repair --data DIR` to \
         remove the cursor"
    )]
    CursorAhead {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: TopicName,
        /// Where the cursor is.
        floor: Offset,
        /// Where the topic ends.
        end: Offset,
    },
    /// The last steps of opening could not read or write.
    #[error("opening failed: {reason}; check the disk and try again")]
    Failed {
        /// What failed.
        reason: String,
    },
}

impl OpenError {
    /// A stable word.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Log(LogOpenError::Locked) | Self::StateLocked => "locked",
            Self::Log(LogOpenError::Format { .. }) | Self::StateFormat { .. } => "format",
            Self::Log(LogOpenError::CorruptRange(_)) => "corrupt_range",
            Self::Log(LogOpenError::StateAhead { .. }) | Self::CursorAhead { .. } => "state_ahead",
            Self::Log(LogOpenError::StateBehind { .. }) => "state_behind",
            Self::Log(LogOpenError::State(_)) | Self::StateCorrupt { .. } => "state_corrupt",
            Self::Log(LogOpenError::Options { .. }) => "options",
            Self::Log(_) | Self::Failed { .. } => "open_failed",
        }
    }
}

impl From<super::Interrupted> for OpenError {
    fn from(interrupted: super::Interrupted) -> Self {
        Self::Failed { reason: interrupted.to_string() }
    }
}

/// A topic name read from the log; it was valid when it was written.
fn topic(name: &str) -> Result<TopicName, String> {
    name.parse().map_err(|error| format!("topic name `{name}` from the log: {error}"))
}

pub(super) fn commit_error(error: AppendError) -> CommitError {
    let converted = match error {
        AppendError::Conflict { topic: name, expected, actual } => topic(&name)
            .map(|topic| CommitError::Conflict { topic, expected: Offset(expected), actual: Offset(actual) }),
        AppendError::KeyConflict { topic: name, expected, actual } => topic(&name).map(|topic| {
            CommitError::KeyConflict { topic, expected: expected.map(Offset), actual: actual.map(Offset) }
        }),
        AppendError::IdConflict { topic: name, id, offset } => {
            topic(&name).map(|topic| CommitError::IdConflict { topic, id, offset: Offset(offset) })
        }
        AppendError::StorageFull { reason } => Ok(CommitError::StorageFull { reason }),
        AppendError::Busy { what } => Ok(CommitError::Busy { what }),
        AppendError::Poisoned { reason } => Ok(CommitError::Poisoned { reason }),
        AppendError::UnknownOutcome { reason } => Ok(CommitError::UnknownOutcome { reason }),
        AppendError::TooLarge { what, size, max } => {
            Ok(CommitError::TooLarge { what, size: size as u64, max: max as u64 })
        }
        AppendError::TooManyTopics { max } => Ok(CommitError::TooManyTopics { max: u64::from(max) }),
        AppendError::KeyRequired { topic: name } => {
            topic(&name).map(|topic| CommitError::KeyRequired { topic })
        }
        AppendError::TopicDeleted { topic: name } => {
            topic(&name).map(|topic| CommitError::TopicDeleted { topic })
        }
        AppendError::Lookup { message } => Err(message),
        AppendError::Closed => Ok(CommitError::Closed),
        other => Err(other.to_string()),
    };
    converted.unwrap_or_else(|reason| CommitError::Storage { reason })
}

/// The error of a lookup that a commit needs.
pub(super) fn lookup_error(error: LogReadError) -> CommitError {
    match error {
        LogReadError::Rebuilding => CommitError::Busy { what: "rebuilding an index" },
        error if error.lacks_descriptors() => CommitError::Busy { what: "a shortage of file descriptors" },
        error => CommitError::Storage { reason: error.to_string() },
    }
}

pub(super) fn read_error(error: LogReadError) -> ReadError {
    let LogReadError::CorruptRange(found) = error else {
        return ReadError::Storage { reason: error.to_string() };
    };
    match damage(&found) {
        Some(damage) => ReadError::CorruptRange(damage),
        None => ReadError::Storage { reason: found.to_string() },
    }
}

/// Damage of one topic as the ports report it. `None` for damage of files that topics share: it has no range of events.
pub(super) fn damage(found: &promethean_log::LogDamage) -> Option<Damage> {
    let topic = topic(found.topic.as_deref()?).ok()?;
    let range = OffsetRange::new(Offset(found.from_offset), Offset(found.to_offset));
    let detail = format!("{} bytes {}..{}, {}", found.file, found.from_byte, found.to_byte, found.what);
    Some(Damage { topic, range, detail })
}

pub(super) fn maintenance_error(error: MaintenanceError) -> CommitError {
    match error {
        MaintenanceError::Poisoned { reason } => CommitError::Poisoned { reason },
        other => CommitError::Storage { reason: other.to_string() },
    }
}
