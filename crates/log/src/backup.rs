//! Backup points: the files of a log as they were at one LSN, staged in a folder of their own while the log
//! goes on.
//!
//! Segments and runs are only appended to or replaced, so they are linked, each with the length that the
//! manifest gives it. Journal files are used again in place and the manifest is appended to, so their bytes are
//! copied. A directory of these files opens as the log was: recovery redoes the journal up to its end.

use std::io;
use std::sync::atomic::Ordering;

use promethean_model::TopicName;

use crate::core::LogCore;
use crate::disk::{Disk, DiskFile};
use crate::error::{LogBackupError, MaintenanceError};
use crate::file_io::write_all_at;
use crate::index;
use crate::journal;
use crate::journal::writer::JournalExtent;
use crate::manifest::{self, ManifestSnapshot};
use crate::poison::lock;
use crate::segment::{SAMPLE_BYTES, SegmentMeta};
use crate::state::StateError;
use crate::topic::Topic;

/// The folder of staged files.
pub(crate) const DIR: &str = "backup";
/// Bytes that are copied between two syncs. More of them would delay the syncs of the journal.
const STEP_BYTES: u64 = 1024 * 1024;

/// A point of a log, whose files are staged until the backup ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBackup {
    /// The last LSN in the files.
    pub lsn: u64,
    /// The topics, by number.
    pub topics: Vec<LogBackupTopic>,
    /// The files, sorted by path.
    pub files: Vec<LogBackupFile>,
}

/// A topic at a backup point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBackupTopic {
    /// Its number, which is in the names of its segments.
    pub number: u32,
    /// Its name.
    pub name: TopicName,
    /// The first offset that is kept.
    pub earliest: u64,
    /// The offset after its last event.
    pub end: u64,
}

/// A file of a backup point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogBackupFile {
    /// Its path in a data directory.
    pub path: String,
    /// The bytes that belong to the point.
    pub bytes: u64,
    /// The length that the file must have in a data directory; zeros follow the bytes.
    pub length: u64,
    /// The number of the topic whose events are in the file, and their offsets.
    pub events: Option<(u32, std::ops::Range<u64>)>,
}

/// The durable end of the log at one moment.
struct DurableEnd {
    lsn: u64,
    topics: Vec<(Topic, u64)>,
    journal: Vec<JournalExtent>,
}

impl LogCore {
    /// Stages a backup point. `note_state` is called at the moment that the state of the point must be from.
    pub(crate) fn begin_backup(
        &self,
        note_state: &mut dyn FnMut() -> Result<(), StateError>,
    ) -> Result<LogBackup, LogBackupError> {
        if self.backup_staged.swap(true, Ordering::AcqRel) {
            return Err(LogBackupError::Running);
        }
        // With a fresh checkpoint few frames are redone, and few bytes of the journal are copied.
        let staged = self.checkpoint().map_err(Into::into).and_then(|()| self.stage(note_state));
        if staged.is_err() {
            // The folder is emptied again before the next backup and at the next open.
            let _ = self.end_backup();
        }
        staged
    }

    /// Removes the staged files.
    pub(crate) fn end_backup(&self) -> Result<(), LogBackupError> {
        let removed = remove_staged(&*self.disk);
        self.backup_staged.store(false, Ordering::Release);
        removed.map_err(backup_io("empty", DIR))
    }

    /// Reads bytes of a staged file.
    pub(crate) fn read_backup(&self, path: &str, at: u64, len: usize) -> Result<Vec<u8>, LogBackupError> {
        let file = self.disk.open(&staged_path(path)).map_err(backup_io("open", path))?;
        let bytes = file.read_vec_at(at, len).map_err(backup_io("read", path))?;
        if bytes.len() < len {
            return Err(LogBackupError::Short { file: path.to_owned() });
        }
        Ok(bytes)
    }

    fn stage(
        &self,
        note_state: &mut dyn FnMut() -> Result<(), StateError>,
    ) -> Result<LogBackup, LogBackupError> {
        // While these two are held, no file that the manifest names is removed, no journal file is used again,
        // and the manifest does not change. Batches are still taken, written and synced.
        let _merging = lock(&self.merging);
        let _upkeep = lock(&self.upkeep);
        self.disk.make_dir(DIR).map_err(backup_io("create", DIR))?;
        remove_staged(&*self.disk).map_err(backup_io("empty", DIR))?;
        // Before the end is noted: what the state has applied by now is below the end.
        note_state().map_err(|error| LogBackupError::State(error.to_string()))?;
        let end = self.durable_end()?;
        let (image, manifest) = lock(&self.manifest).manifest.image()?;
        let mut files = vec![self.stage_bytes(manifest::PATH, &image)?];
        for meta in manifest.segments.values() {
            self.stage_segment(meta, &mut files)?;
        }
        for number in manifest.runs.keys() {
            let path = index::run_path(*number);
            let bytes = self.link(&path)?.len().map_err(backup_io("stat", &path))?;
            files.push(LogBackupFile { path, bytes, length: bytes, events: None });
        }
        for extent in &end.journal {
            files.push(self.stage_journal(extent)?);
        }
        files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(LogBackup { lsn: end.lsn, topics: topics_at(&end, &manifest), files })
    }

    /// Syncs all frames that are written, and notes where they end.
    fn durable_end(&self) -> Result<DurableEnd, LogBackupError> {
        let from = lock(&self.manifest).journal_sequence;
        let mut committer = lock(&self.committer);
        let lsn = self.sync_written(&mut committer)?;
        let topics = self.read_catalog(|catalog| {
            catalog.by_id.values().map(|topic| (topic.clone(), topic.end())).collect()
        });
        Ok(DurableEnd { lsn, topics, journal: committer.journal.extents(from) })
    }

    fn link(&self, path: &str) -> Result<std::sync::Arc<dyn DiskFile>, LogBackupError> {
        let staged = staged_path(path);
        self.disk.link(path, &staged).map_err(backup_io("link", path))?;
        self.disk.open(&staged).map_err(backup_io("open", path))
    }

    fn stage_segment(
        &self,
        meta: &SegmentMeta,
        files: &mut Vec<LogBackupFile>,
    ) -> Result<(), LogBackupError> {
        let path = meta.id.path();
        self.disk.link(&path, &staged_path(&path)).map_err(backup_io("link", &path))?;
        let events = Some((meta.id.topic, meta.id.base..meta.end));
        files.push(LogBackupFile { path, bytes: meta.bytes, length: meta.bytes, events });
        if meta.samples == 0 {
            return Ok(());
        }
        let path = meta.id.samples_path();
        // Samples are hints: a file that lost some is taken as it is.
        let written = match self.link(&path) {
            Err(LogBackupError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            file => file?.len().map_err(backup_io("stat", &path))?,
        };
        let bytes = written.min(u64::from(meta.samples) * SAMPLE_BYTES as u64);
        files.push(LogBackupFile { path, bytes, length: bytes, events: None });
        Ok(())
    }

    /// Copies a journal file up to the end of its last frame.
    fn stage_journal(&self, extent: &JournalExtent) -> Result<LogBackupFile, LogBackupError> {
        let path = journal::file_name(extent.number);
        let copy = self.disk.create(&staged_path(&path)).map_err(backup_io("create", &path))?;
        let mut at = 0;
        while at < extent.used {
            let len = (extent.used - at).min(STEP_BYTES);
            let bytes = extent.file.read_vec_at(at, len as usize).map_err(backup_io("read", &path))?;
            if bytes.len() as u64 != len {
                return Err(LogBackupError::Short { file: path });
            }
            write_synced(&*copy, &bytes, at).map_err(backup_io("copy", &path))?;
            at += len;
        }
        Ok(LogBackupFile { path, bytes: extent.used, length: extent.file_bytes, events: None })
    }

    fn stage_bytes(&self, path: &str, bytes: &[u8]) -> Result<LogBackupFile, LogBackupError> {
        let copy = self.disk.create(&staged_path(path)).map_err(backup_io("create", path))?;
        write_synced(&*copy, bytes, 0).map_err(backup_io("write", path))?;
        let length = bytes.len() as u64;
        Ok(LogBackupFile { path: path.to_owned(), bytes: length, length, events: None })
    }
}

/// Removes the files of a backup that has ended.
pub(crate) fn remove_staged(disk: &dyn Disk) -> io::Result<()> {
    let names = match disk.list(DIR) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        names => names?,
    };
    names.iter().try_for_each(|name| disk.remove(&format!("{DIR}/{name}")))
}

/// The name of a staged file. The names of segments, runs and journal files differ by their endings.
fn staged_path(path: &str) -> String {
    format!("{DIR}/{}", path.rsplit('/').next().unwrap_or(path))
}

fn write_synced(file: &dyn DiskFile, bytes: &[u8], at: u64) -> io::Result<()> {
    write_all_at(file, bytes, at)?;
    file.sync()
}

/// The topics of a point. A topic without events that the manifest does not name may not exist at its end yet.
fn topics_at(end: &DurableEnd, manifest: &ManifestSnapshot) -> Vec<LogBackupTopic> {
    let is_there = |(topic, end): &&(Topic, u64)| *end > 0 || manifest.topics.contains_key(&topic.id());
    let of = |(topic, end): &(Topic, u64)| LogBackupTopic {
        number: topic.id(),
        name: topic.name().clone(),
        earliest: topic.info().earliest.min(*end),
        end: *end,
    };
    let mut topics: Vec<LogBackupTopic> = end.topics.iter().filter(is_there).map(of).collect();
    topics.sort_unstable_by_key(|topic| topic.number);
    topics
}

fn backup_io<'a>(action: &'static str, file: &'a str) -> impl FnOnce(io::Error) -> LogBackupError + 'a {
    move |source| LogBackupError::Io { action, file: file.to_owned(), source }
}

impl From<MaintenanceError> for LogBackupError {
    fn from(error: MaintenanceError) -> LogBackupError {
        LogBackupError::Maintenance(error)
    }
}
