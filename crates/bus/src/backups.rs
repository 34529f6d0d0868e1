//! Backups: a point of the whole store, read piece by piece while the bus works.
//!
//! One backup is read at a time. A backup that is not read for a while is ended, because what it staged takes
//! space. Reading is slowed down, so that publishers hardly notice it.

use std::sync::Arc;
use std::time::Duration;

use promethean_model::EventId;
use promethean_store::port::{BackupError, LogBackup};
use tracing::{info, warn};

use crate::base::{BackupSession, Base};
use crate::error::BusError;

/// The length of a piece of a file; the last piece of a file may be shorter.
pub const PIECE_BYTES: u64 = 4 << 20;
/// A backup that is not read for this long is ended.
const UNUSED_MS_MAX: u64 = 5 * 60 * 1000;
/// Bytes that are read in a second, at most.
pub(crate) const BYTES_PER_SECOND_MAX: u64 = 256 << 20;
/// The longest pause after a piece.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A backup that can be read.
#[derive(Debug, Clone)]
pub struct BackupView {
    /// Its name, which every request gives.
    pub id: String,
    /// When its point was taken, in milliseconds since 1970.
    pub taken_ms: i64,
    /// Its files and topics.
    pub point: Arc<LogBackup>,
}

impl BackupSession {
    pub(crate) fn view(&self) -> BackupView {
        BackupView { id: self.id.clone(), taken_ms: self.taken_ms, point: Arc::clone(&self.point) }
    }

    fn is_unused(&self, base: &Base) -> bool {
        base.clock.monotonic_ms().saturating_sub(self.used_ms) >= UNUSED_MS_MAX
    }
}

/// Takes a point, or finds the one that is read under this id.
pub(crate) async fn begin(base: &Base, id: Option<EventId>) -> Result<BackupView, BusError> {
    let mut slot = base.backup.lock().await;
    let taken_ms = base.clock.wall_ms();
    let id = id.unwrap_or_else(|| base.mint.mint(taken_ms.max(0) as u64)).to_string();
    if let Some(session) = slot.as_mut().filter(|session| session.id == id) {
        session.used_ms = base.clock.monotonic_ms();
        return Ok(session.view());
    }
    if let Some(session) = slot.take_if(|session| session.is_unused(base)) {
        end(base, &session).await?;
    }
    if slot.is_some() {
        return Err(BackupError::Running.into());
    }
    let point = base.store.begin_backup().await?;
    info!(position = point.lsn, files = point.files.len(), "a backup began");
    let used_ms = base.clock.monotonic_ms();
    let session = BackupSession { id, taken_ms, point, used_ms };
    Ok(slot.insert(session).view())
}

/// Ends a backup that was taken out of its place.
pub(crate) async fn end(base: &Base, session: &BackupSession) -> Result<(), BackupError> {
    info!(position = session.point.lsn, "a backup ended");
    base.store.end_backup().await
}

/// Ends a backup that is not read any more.
pub(crate) async fn end_unused(base: &Base) {
    let unused = base.backup.lock().await.take_if(|session| session.is_unused(base));
    if let Some(session) = unused
        && let Err(error) = end(base, &session).await
    {
        warn!(%error, "could not remove what a backup staged");
    }
}
