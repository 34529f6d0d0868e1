//! Backups: a point of the whole store, read piece by piece.

use std::sync::Arc;
use std::time::Duration;

use promethean_model::EventId;
use promethean_store::port::{BackupError, StatePage};

use super::Bus;
use crate::backups::{BYTES_PER_SECOND_MAX, BackupView, PAUSE_MAX, PIECE_BYTES, begin, end};
use crate::error::BusError;

impl Bus {
    /// Takes a point of the store, to be read until [`Bus::end_backup`]. Refused while another backup is read. A
    /// caller that gives the id of the backup that is read gets its point again, so a lost answer can be asked for.
    pub async fn begin_backup(&self, id: Option<EventId>) -> Result<BackupView, BusError> {
        let base = Arc::clone(&self.groups.base);
        // A caller that stops waiting must not leave a point that no session knows.
        self.groups.base.run_to_end(async move { begin(&base, id).await }).await
    }

    /// The backup of this name.
    pub async fn backup(&self, id: &str) -> Result<BackupView, BusError> {
        let base = &self.groups.base;
        let mut slot = base.backup.lock().await;
        let session = slot.as_mut().filter(|session| session.id == id).ok_or(BackupError::NotRunning)?;
        session.used_ms = base.clock.monotonic_ms();
        Ok(session.view())
    }

    /// Reads a piece of a file of a backup. Pieces are numbered from 0; an empty file has one, which is empty.
    pub async fn backup_piece(&self, id: &str, path: &str, piece: u64) -> Result<Vec<u8>, BusError> {
        let point = self.backup(id).await?.point;
        let unknown = || BackupError::UnknownFile { path: path.to_owned() };
        let found = point.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok();
        let file = found.and_then(|at| point.files.get(at)).ok_or_else(unknown)?;
        let at = piece.checked_mul(PIECE_BYTES).filter(|at| *at < file.bytes || *at == 0);
        let at = at.ok_or_else(unknown)?;
        let len = (file.bytes - at).min(PIECE_BYTES) as usize;
        self.paced(self.groups.base.store.read_backup(path, at, len), Vec::len).await
    }

    /// Reads a page of the state of a backup.
    pub async fn backup_state(&self, id: &str, after: Option<Vec<u8>>) -> Result<StatePage, BusError> {
        self.backup(id).await?;
        self.paced(self.groups.base.store.read_backup_state(after), |page| page.bytes.len()).await
    }

    /// Ends a backup.
    pub async fn end_backup(&self, id: &str) -> Result<(), BusError> {
        let base = Arc::clone(&self.groups.base);
        let id = id.to_owned();
        let ending = async move {
            let mut slot = base.backup.lock().await;
            let session = slot.take_if(|session| session.id == id).ok_or(BackupError::NotRunning)?;
            Ok(end(&base, &session).await?)
        };
        self.groups.base.run_to_end(ending).await
    }

    /// Reads, and then pauses for as long as the reading took, or longer if it was fast.
    async fn paced<T>(
        &self,
        reading: impl Future<Output = Result<T, BackupError>>,
        len: impl FnOnce(&T) -> usize,
    ) -> Result<T, BusError> {
        let clock = &self.groups.base.clock;
        let began_ms = clock.monotonic_ms();
        let read = reading.await?;
        let took_ms = clock.monotonic_ms().saturating_sub(began_ms);
        let least_ms = len(&read) as u64 * 1000 / BYTES_PER_SECOND_MAX;
        let pause = Duration::from_millis(took_ms.max(least_ms)).min(PAUSE_MAX);
        if !pause.is_zero() {
            #[expect(
                clippy::disallowed_methods,
                reason = "the pause is for the disk, there is nothing to wait for"
            )]
            tokio::time::sleep(pause).await;
        }
        Ok(read)
    }
}
