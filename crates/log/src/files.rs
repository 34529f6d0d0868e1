//! The bounded set of open segment files.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use crate::disk::{Disk, DiskFile};
use crate::poison::lock;
use crate::segment::SegmentId;
use crate::space::Shortage;

/// The two files of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum SegmentPart {
    Records,
    Samples,
}

type FileKey = (SegmentId, SegmentPart);

/// Open segment files; the least recently used are closed when there are too many.
#[derive(Debug)]
pub(crate) struct Files {
    disk: Arc<dyn Disk>,
    most: usize,
    open: Mutex<OpenFiles>,
}

#[derive(Debug, Default)]
struct OpenFiles {
    files: HashMap<FileKey, (Arc<dyn DiskFile>, u64)>,
    clock: u64,
}

impl Files {
    pub(crate) fn new(disk: Arc<dyn Disk>, most: usize) -> Files {
        Files { disk, most: most.max(8), open: Mutex::default() }
    }

    /// Opens an existing file, or returns it if it is open.
    pub(crate) fn get(&self, id: SegmentId, part: SegmentPart) -> io::Result<Arc<dyn DiskFile>> {
        if let Some(file) = self.cached((id, part)) {
            return Ok(file);
        }
        let file = self.with_descriptors(|| self.disk.open(&path(id, part)))?;
        self.insert((id, part), Arc::clone(&file));
        Ok(file)
    }

    /// Creates an empty file; a leftover of the same name is emptied.
    pub(crate) fn create(&self, id: SegmentId, part: SegmentPart) -> io::Result<Arc<dyn DiskFile>> {
        let path = path(id, part);
        let file = match self.with_descriptors(|| self.disk.create(&path)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let file = self.with_descriptors(|| self.disk.open(&path))?;
                file.set_len(0)?;
                file
            }
            other => other?,
        };
        self.insert((id, part), Arc::clone(&file));
        Ok(file)
    }

    /// Opens a file. If no descriptor is left, files that were not used for the longest time are closed first.
    fn with_descriptors(
        &self,
        open: impl Fn() -> io::Result<Arc<dyn DiskFile>>,
    ) -> io::Result<Arc<dyn DiskFile>> {
        match open() {
            Err(error) if Shortage::of(&error) == Some(Shortage::Descriptors) => {
                lock(&self.open).close_oldest(self.most);
                open()
            }
            other => other,
        }
    }

    pub(crate) fn forget(&self, id: SegmentId) {
        let mut open = lock(&self.open);
        open.files.remove(&(id, SegmentPart::Records));
        open.files.remove(&(id, SegmentPart::Samples));
    }

    fn cached(&self, key: FileKey) -> Option<Arc<dyn DiskFile>> {
        let mut open = lock(&self.open);
        open.clock += 1;
        let now = open.clock;
        let (file, used) = open.files.get_mut(&key)?;
        *used = now;
        Some(Arc::clone(file))
    }

    fn insert(&self, key: FileKey, file: Arc<dyn DiskFile>) {
        let mut open = lock(&self.open);
        open.clock += 1;
        let now = open.clock;
        open.files.insert(key, (file, now));
        if open.files.len() > self.most {
            open.close_oldest(self.most);
        }
    }
}

impl OpenFiles {
    /// Closes an eighth of the files at a time, so that most inserts need not search for the oldest.
    fn close_oldest(&mut self, most: usize) {
        let mut ages: Vec<u64> = self.files.values().map(|(_, used)| *used).collect();
        let drop_count = (most / 8).max(1).min(ages.len());
        if drop_count == ages.len() {
            self.files.clear();
            return;
        }
        let (_, limit, _) = ages.select_nth_unstable(drop_count);
        let limit = *limit;
        self.files.retain(|_, (_, used)| *used >= limit);
    }
}

fn path(id: SegmentId, part: SegmentPart) -> String {
    match part {
        SegmentPart::Records => id.path(),
        SegmentPart::Samples => id.samples_path(),
    }
}
