//! Space and descriptors: publishing stops while there is still room for all other writes, and resumes once a
//! write has succeeded.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;

use crate::batch::LogBatch;
use crate::core::LogCore;
use crate::error::{AppendError, MaintenanceError};
use crate::file_io::write_all_at;
use crate::notice::ToldNeeds;

/// Free space is checked each time the journal has grown by this many bytes.
const LOOK_EVERY: u64 = 4 * 1024 * 1024;
/// The file that is written and removed to find out whether writes succeed again.
const PROBE: &str = "probe";
const PROBE_BYTES: usize = 64 * 1024;
/// How many files a rewrite may add before it removes the old ones.
const REWRITE_FILES: u64 = 8;

/// A resource that others use too, so that work without it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The disk has no space or no inodes, or a quota is used up.
    Space,
    /// The process or the system has no descriptor left.
    Descriptors,
}

impl Shortage {
    /// The shortage that an error tells of, if it does.
    pub(crate) fn of(error: &io::Error) -> Option<Shortage> {
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => return Some(Shortage::Descriptors),
            Some(Errno::NOSPC | Errno::DQUOT) => return Some(Shortage::Space),
            _ => {}
        }
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        full.then_some(Shortage::Space)
    }
}

/// The shortages that the log has met.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Less than the reserve is free.
    low: AtomicBool,
    /// A write found no space, and no write has succeeded since.
    spent: AtomicBool,
    /// A file could not be opened, and none was opened since.
    no_descriptors: AtomicBool,
    /// A merge of index runs waits for space beside the reserve.
    pub(crate) merge_waits: AtomicBool,
    /// A compaction waits for space beside the reserve.
    pub(crate) compaction_waits: AtomicBool,
    pub(crate) told: ToldNeeds,
    /// Bytes that were free at the last look, plus one; 0 if the file system does not say.
    free_bytes: AtomicU64,
}

impl Space {
    /// Whether publishing is refused.
    pub(crate) fn is_full(&self) -> bool {
        self.low.load(Ordering::Relaxed) || self.is_spent()
    }

    /// Bytes that were free at the last look; `None` if the file system does not say.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.free_bytes.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Whether a write found no space, and no write has succeeded since.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// Whether a file could not be opened, and none was opened since.
    pub(crate) fn lacks_descriptors(&self) -> bool {
        self.no_descriptors.load(Ordering::Relaxed)
    }

    /// Returns whether the shortage is new.
    fn note(&self, shortage: Shortage) -> bool {
        !match shortage {
            Shortage::Space => self.spent.swap(true, Ordering::Relaxed),
            Shortage::Descriptors => self.no_descriptors.swap(true, Ordering::Relaxed),
        }
    }

    fn forget(&self) {
        self.spent.store(false, Ordering::Relaxed);
        self.no_descriptors.store(false, Ordering::Relaxed);
    }
}

impl LogCore {
    /// Notes the shortage that an error tells of. If it is new, batches that wait for room are told, so that
    /// they are refused for the shortage.
    pub(crate) fn note_shortage(&self, error: &io::Error) {
        if Shortage::of(error).is_some_and(|shortage| self.space.note(shortage)) {
            // Told at once: the shortage may be over before the next look.
            self.tell_shortages();
            self.announce_room();
        }
    }

    /// Turns a failure into an error. Work that ran out of space or descriptors is tried again; every other
    /// failure stops the writer, and so does a failed sync. A sync opens files, which may lack descriptors,
    /// but it never needs one itself.
    pub(crate) fn upkeep_failed(&self, what: &str, error: io::Error, syncing: bool) -> MaintenanceError {
        let what = what.to_owned();
        match Shortage::of(&error) {
            Some(Shortage::Space) if !syncing => {
                self.note_shortage(&error);
                MaintenanceError::NoSpace { what }
            }
            Some(Shortage::Descriptors) => {
                self.note_shortage(&error);
                MaintenanceError::NoDescriptors { what }
            }
            _ => self.fail(format!("writing {what} failed: {error}")),
        }
    }

    /// As `upkeep_failed`, for the rewriting of files that can stay as they are. It removes what it wrote, so
    /// space that it lacked says nothing about the space for events.
    pub(crate) fn rewrite_failed(
        &self,
        what: &str,
        error: io::Error,
        waits: &AtomicBool,
    ) -> MaintenanceError {
        match Shortage::of(&error) {
            Some(Shortage::Space) => {
                waits.store(true, Ordering::Relaxed);
                MaintenanceError::NoSpace { what: what.to_owned() }
            }
            _ => self.upkeep_failed(what, error, false),
        }
    }

    /// Whether files of this many bytes can be rewritten without the reserve.
    pub(crate) fn has_space_to_rewrite(&self, bytes: u64) -> bool {
        let found = self.look_at_space();
        found.bytes >= self.options.reserve_bytes.saturating_add(bytes)
            && found.files >= self.options.reserve_files.saturating_add(REWRITE_FILES)
    }

    /// Refuses a batch for which there is no space. The reserve is kept for state, with the events that
    /// belong to it, and for changes of topics. After a write has found no space, state is refused too: the
    /// state engine could not write it.
    pub(crate) fn check_space(&self, batch: &LogBatch) -> Result<(), AppendError> {
        let refuses = || match (batch.redo.is_empty(), batch.is_empty()) {
            (true, true) => false,
            (true, false) => self.space.is_full(),
            (false, _) => self.space.is_spent(),
        };
        if !refuses() {
            return Ok(());
        }
        if !self.options.threads {
            self.retry_after_shortage();
        }
        // Each refused publish looks again, so that publishing resumes at once.
        let found = self.look_at_space();
        if refuses() { Err(self.storage_full(found)) } else { Ok(()) }
    }

    /// Refuses a change of state that skips the journal while less than the reserve is free.
    pub(crate) fn check_reserve(&self) -> Result<(), AppendError> {
        let found = self.look_at_space();
        if self.space.is_full() { Err(self.storage_full(found)) } else { Ok(()) }
    }

    /// The error of a batch for which there is no space now.
    pub(crate) fn storage_full(&self, found: FreeSpace) -> AppendError {
        let (bytes, files) = (self.options.reserve_bytes, self.options.reserve_files);
        let reason = if self.space.is_spent() {
            "the last write found no space or no inodes, or the quota is used up".to_owned()
        } else if found.files < files {
            format!("{} files can still be created, {files} are kept in reserve", found.files)
        } else {
            format!("{} bytes are free, {bytes} are kept in reserve", found.bytes)
        };
        AppendError::StorageFull { reason }
    }

    /// Checks the free space now and then as the journal grows.
    pub(crate) fn watch_space(&self, bytes: u64) {
        let step = LOOK_EVERY.min(self.options.reserve_bytes / 8).max(1);
        let before = self.counters.written.fetch_add(bytes, Ordering::Relaxed);
        if before / step != (before + bytes) / step {
            self.look_at_space();
        }
    }

    /// Compares the free space with the reserve.
    pub(crate) fn look_at_space(&self) -> FreeSpace {
        // A file system that does not say its free space is not known to be full; a write that finds no space
        // still stops publishing.
        let bytes = self.disk.free_bytes();
        let files = self.disk.free_files().unwrap_or(u64::MAX);
        let known = bytes.as_ref().map_or(0, |bytes| bytes.saturating_add(1));
        self.space.free_bytes.store(known, Ordering::Relaxed);
        if let Ok(bytes) = bytes {
            let low = bytes < self.options.reserve_bytes || files < self.options.reserve_files;
            self.space.low.store(low, Ordering::Relaxed);
        }
        FreeSpace { bytes: bytes.unwrap_or(u64::MAX), files }
    }

    /// After a shortage: does the work again that waits for it, and ends the shortage if a file can be
    /// created, written and synced.
    pub(crate) fn retry_after_shortage(&self) {
        let short = self.space.is_spent() || self.space.lacks_descriptors();
        if !short || self.poison.reason().is_some() {
            return;
        }
        let worked = self.make_spare().is_ok() && self.keep_up().is_ok();
        if worked && self.probe().is_ok() {
            self.space.forget();
            self.announce_room();
        }
    }

    fn probe(&self) -> io::Result<()> {
        match self.disk.remove(PROBE) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = self.disk.create(PROBE)?;
        let written = write_all_at(&*file, &[0; PROBE_BYTES], 0).and_then(|()| file.sync());
        let removed = self.disk.remove(PROBE);
        written.and(removed)
    }
}

/// The space that is left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreeSpace {
    bytes: u64,
    files: u64,
}
