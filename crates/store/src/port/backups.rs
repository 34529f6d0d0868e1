//! Backups of a store while it works.

use std::sync::Arc;

use async_trait::async_trait;
pub use promethean_log::{LogBackup, LogBackupFile, LogBackupTopic};
use thiserror::Error;

/// Backups: a store stages one point at a time, whose files and state are read until the backup ends.
///
/// By default a store has no files, and offers none.
#[async_trait]
pub trait Backups: Send + Sync {
    /// Stages a point: everything that was durable at one moment. Batches are taken meanwhile.
    async fn begin_backup(&self) -> Result<Arc<LogBackup>, BackupError> {
        Err(BackupError::NotOffered)
    }

    /// Reads bytes of a file of the point.
    async fn read_backup(&self, _path: &str, _at: u64, _len: usize) -> Result<Vec<u8>, BackupError> {
        Err(BackupError::NotOffered)
    }

    /// Reads a page of the state of the point: the entries after the place where the page before ended.
    async fn read_backup_state(&self, _after: Option<Vec<u8>>) -> Result<StatePage, BackupError> {
        Err(BackupError::NotOffered)
    }

    /// Ends the backup and removes what it staged. Without a backup it does nothing.
    async fn end_backup(&self) -> Result<(), BackupError> {
        Err(BackupError::NotOffered)
    }
}

/// A page of the state of a backup point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePage {
    /// The entries, in the form that `EmbeddedStore::restore_state` reads.
    pub bytes: Vec<u8>,
    /// The place where the next page begins; `None` after the last page.
    pub next: Option<Vec<u8>>,
}

/// Why a backup was refused or failed. The store is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BackupError {
    /// The store has no files.
    #[error(
        "this store keeps nothing on disk, so there is nothing to back up; use a server with a data directory"
    )]
    NotOffered,
    /// Another backup is under way.
    #[error("another backup is under way; wait until it has ended, or end it")]
    Running,
    /// No backup is under way.
    #[error("no backup is under way; begin one")]
    NotRunning,
    /// The point has no such file.
    #[error("the backup has no file `{path}` of that length; read the list of its files")]
    UnknownFile {
        /// The path.
        path: String,
    },
    /// The place in the state is none.
    #[error("this is no place in the state; give the one that the page before named")]
    BadPlace,
    /// The disk has no room for what a backup stages.
    #[error("storage_full: {reason}; free space and try again")]
    StorageFull {
        /// What there is too little of.
        reason: String,
    },
    /// Reading or staging failed.
    #[error("the backup failed: {reason}; see the server's log")]
    Storage {
        /// What failed.
        reason: String,
    },
    /// The store was closed.
    #[error("the store is closed; the server is shutting down, try again when it is back")]
    Closed,
}

impl BackupError {
    /// The stable code of this error.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotOffered => "not_offered",
            Self::Running => "backup_running",
            Self::NotRunning | Self::UnknownFile { .. } => "unknown_backup",
            Self::BadPlace => "bad_request",
            Self::StorageFull { .. } => "storage_full",
            Self::Storage { .. } => "storage_failed",
            Self::Closed => "closed",
        }
    }
}
