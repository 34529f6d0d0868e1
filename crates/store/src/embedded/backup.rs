//! Backups: a staged point of the log, with an image of the engine from the same moment, and the state of a new
//! directory made from one.
//!
//! ```text
//! page of state: entries, each
//!     space u8 | key u16 len, bytes | value u32 len, bytes
//! place after a page: space u8 | key
//! ```

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use promethean_log::{LogBackup, LogBackupError, MaintenanceError};
use promethean_model::IgnorePoison;

use super::engine::{Engine, FrozenEngine};
use super::error::OpenError;
use super::open_store::OpenStore;
use super::options::EmbeddedOptions;
use super::{EmbeddedStore, Interrupted, STATE_DIR, StoreClosed, blocking, state_folder};
use crate::port::{BackupError, Backups, StatePage};
use crate::state::codec::{Malformed, RowReader, put_long, put_short};
use crate::state::keys::counter::{self, StateCounter};
use crate::state::{Flow, RowSpan, StateFault, StateSpace, View, Writes};

/// A page of state ends with the entry that reaches this many bytes.
const PAGE_BYTES: usize = 4 << 20;

/// A point that is being read.
pub(super) struct StagedBackup {
    point: Arc<LogBackup>,
    state: FrozenEngine,
}

impl OpenStore {
    fn begin_backup(&self) -> Result<Arc<LogBackup>, BackupError> {
        let mut state = None;
        let point = self.log.begin_backup(&mut || {
            state = Some(self.engine.freeze());
            Ok(())
        });
        let (point, Some(state)) = (point.map_err(backup_error)?, state) else {
            return Err(BackupError::Storage { reason: "the log never noted the state".to_owned() });
        };
        let point = Arc::new(point);
        let staged = StagedBackup { point: Arc::clone(&point), state };
        *self.backup.lock().ignore_poison() = Some(Arc::new(staged));
        Ok(point)
    }

    /// Ends a backup, if one is under way.
    pub(super) fn end_backup(&self) -> Result<(), BackupError> {
        match self.backup.lock().ignore_poison().take() {
            Some(_) => self.log.end_backup().map_err(backup_error),
            None => Ok(()),
        }
    }

    fn staged(&self) -> Result<Arc<StagedBackup>, BackupError> {
        self.backup.lock().ignore_poison().clone().ok_or(BackupError::NotRunning)
    }

    fn read_backup(&self, path: &str, bytes: Range<u64>) -> Result<Vec<u8>, BackupError> {
        let staged = self.staged()?;
        let files = &staged.point.files;
        let found = files.binary_search_by(|file| file.path.as_str().cmp(path)).ok();
        let found = found.and_then(|at| files.get(at)).filter(|file| bytes.end <= file.bytes);
        if found.is_none() {
            return Err(BackupError::UnknownFile { path: path.to_owned() });
        }
        self.log.read_backup(path, bytes.start, (bytes.end - bytes.start) as usize).map_err(backup_error)
    }
}

#[async_trait]
impl Backups for EmbeddedStore {
    async fn begin_backup(&self) -> Result<Arc<LogBackup>, BackupError> {
        let store = self.opened()?;
        blocking(move || store.begin_backup()).await?
    }

    async fn read_backup(&self, path: &str, at: u64, len: usize) -> Result<Vec<u8>, BackupError> {
        let (store, path) = (self.opened()?, path.to_owned());
        blocking(move || store.read_backup(&path, at..at.saturating_add(len as u64))).await?
    }

    async fn read_backup_state(&self, after: Option<Vec<u8>>) -> Result<StatePage, BackupError> {
        let store = self.opened()?;
        blocking(move || read_page(&store.staged()?.state, after.as_deref(), PAGE_BYTES)).await?
    }

    async fn end_backup(&self) -> Result<(), BackupError> {
        let store = self.opened()?;
        blocking(move || store.end_backup()).await?
    }
}

impl EmbeddedStore {
    /// Makes the state of a new data directory from the pages of a backup. Returns the number of its entries.
    pub fn restore_state(
        dir: &Path,
        options: EmbeddedOptions,
        pages: &mut dyn FnMut() -> io::Result<Option<Vec<u8>>>,
    ) -> Result<u64, OpenError> {
        let (folder, options) = (dir.join(STATE_DIR), options.clamped());
        let mut entries = 0;
        state_folder::create_once(&folder, |new| {
            let engine = Engine::open_whole(new, &options)?;
            let failed = |fault: StateFault| OpenError::StateCorrupt { reason: fault.to_string() };
            while let Some(page) = pages()? {
                let writes = decode_page(&page).map_err(|malformed| failed(malformed.into()))?;
                entries += writes.len() as u64;
                engine.write(writes).map_err(failed)?;
            }
            engine.check_format()?;
            engine.sync().map_err(failed)
        })?;
        Ok(entries)
    }
}

/// Reads entries after a place, at least one, until they have `most` bytes.
fn read_page(view: &dyn View, after: Option<&[u8]>, most: usize) -> Result<StatePage, BackupError> {
    let (first, key) = match after.map(|after| after.split_first()) {
        None => (StateSpace::Meta, None),
        Some(Some((space, key))) => (StateSpace::of_number(*space).ok_or(BackupError::BadPlace)?, Some(key)),
        Some(None) => return Err(BackupError::BadPlace),
    };
    // The number of a sync belongs to the engine that was synced.
    let own = counter::key(StateCounter::SyncMark);
    let mut bytes = Vec::new();
    let mut next = None;
    for space in StateSpace::ALL.into_iter().filter(|space| *space >= first) {
        let after = key.filter(|_| space == first);
        let scanned = view.scan(space, RowSpan { prefix: &[], after }, &mut |key, value| {
            if space == StateSpace::Meta && key == own {
                return Ok(Flow::Continue(()));
            }
            bytes.push(space as u8);
            put_short(&mut bytes, key);
            put_long(&mut bytes, value);
            if bytes.len() < most {
                return Ok(Flow::Continue(()));
            }
            next = Some([&[space as u8], key].concat());
            Ok(Flow::Break(()))
        });
        scanned.map_err(|fault| BackupError::Storage { reason: fault.to_string() })?;
        if next.is_some() {
            break;
        }
    }
    Ok(StatePage { bytes, next })
}

fn decode_page(page: &[u8]) -> Result<Writes, Malformed> {
    let mut reader = RowReader::new(page, "page of a backup");
    let mut writes = Writes::default();
    while reader.end().is_err() {
        let space = StateSpace::of_number(reader.u8()?).ok_or_else(|| reader.malformed())?;
        let key = reader.short()?.to_vec();
        let value = reader.long()?.to_vec();
        writes.set(space, key, Some(value));
    }
    Ok(writes)
}

fn backup_error(error: LogBackupError) -> BackupError {
    match error {
        LogBackupError::Running => BackupError::Running,
        LogBackupError::Maintenance(MaintenanceError::NoSpace { what }) => {
            BackupError::StorageFull { reason: format!("no space left for {what}") }
        }
        LogBackupError::Io { source, file, .. } if source.kind() == io::ErrorKind::StorageFull => {
            BackupError::StorageFull { reason: format!("no space left for a copy of {file}") }
        }
        other => {
            tracing::warn!(error = %other, "a backup failed");
            BackupError::Storage { reason: other.to_string() }
        }
    }
}

impl From<StoreClosed> for BackupError {
    fn from(_: StoreClosed) -> Self {
        Self::Closed
    }
}

impl From<Interrupted> for BackupError {
    fn from(interrupted: Interrupted) -> Self {
        Self::Storage { reason: interrupted.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Pages of any size hold every entry once, but for the engine's own counter.
        #[test]
        fn pages_hold_every_entry_once(
            entries in prop::collection::btree_map(
                (0usize..4, prop::collection::vec(any::<u8>(), 0..12)),
                prop::collection::vec(any::<u8>(), 0..40),
                0..60,
            ),
            most in 1usize..200,
        ) {
            let mut all = Writes::default();
            for ((space, key), value) in entries {
                all.set(StateSpace::ALL[space], key, Some(value));
            }
            let mut expected = all.clone();
            let own = counter::key(StateCounter::SyncMark);
            all.set(StateSpace::Meta, own.clone(), Some(counter::value(7)));
            expected.set(StateSpace::Meta, own, None);
            let mut found = Writes::default();
            let mut place = None;
            let mut pages = 0;
            loop {
                let page = read_page(&all, place.as_deref(), most).unwrap();
                for (space, key, value) in decode_page(&page.bytes).unwrap().into_iter() {
                    prop_assert_eq!(found.get(space, &key), None, "twice");
                    found.set(space, key, value);
                }
                pages += 1;
                prop_assert!(pages <= 62);
                match page.next {
                    Some(next) => place = Some(next),
                    None => break,
                }
            }
            found.set(StateSpace::Meta, counter::key(StateCounter::SyncMark), None);
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn bytes_that_are_no_page_are_refused(cut in 1usize..20) {
            let mut writes = Writes::default();
            writes.set(StateSpace::Docs, b"key".to_vec(), Some(b"a longer value".to_vec()));
            let page = read_page(&writes, None, 1).unwrap().bytes;
            prop_assert!(decode_page(&page[..page.len() - cut]).is_err() || cut >= page.len());
        }
    }

    #[test]
    fn a_place_names_a_space() {
        assert_eq!(read_page(&Writes::default(), Some(&[9, 1]), 1), Err(BackupError::BadPlace));
        assert_eq!(read_page(&Writes::default(), Some(&[]), 1), Err(BackupError::BadPlace));
        assert_eq!(read_page(&Writes::default(), Some(&[4]), 1).unwrap().next, None);
    }
}
