//! The writer of a run: streams sorted entries into a new file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::{KEY_LEN, SortKey};
use super::footer::{FENCE_KEYS, RunMeta, RunShape, run_path};
use super::page::{self, BODY_LEN, PAGE_LEN, PageAt};
use super::run::{IndexRun, IndexRunError};
use crate::disk::{Disk, DiskFile};
use crate::file_io::write_all_at;

/// The size of the write buffer: whole pages, so that every write is aligned.
pub(crate) const BUFFER_LEN: usize = 64 * PAGE_LEN;

/// A run being written. If it is dropped unfinished, it removes its file.
#[derive(Debug)]
pub(crate) struct RunWriter {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    /// The run's facts, complete except for `entries`.
    meta: RunMeta,
    entries: u64,
    last: Option<SortKey>,
    /// Pages that are not written yet; the last may be incomplete.
    out: Vec<u8>,
    /// Bytes already written.
    written: u64,
    /// The number of entries in the open data page, and in a full one.
    in_page: usize,
    per_page: usize,
    /// First keys of the data pages since the last fence page.
    fence: Vec<u8>,
    top: Vec<SortKey>,
    finished: bool,
}

impl RunWriter {
    /// Creates a run with the facts of `meta` under the next free number; `number` and `entries` are filled
    /// in.
    ///
    /// If a file with the number exists, a crash left it before the manifest named it; its number is skipped.
    pub(crate) fn create(
        disk: &Arc<dyn Disk>,
        next: &AtomicU64,
        mut meta: RunMeta,
    ) -> Result<RunWriter, IndexRunError> {
        let file = loop {
            meta.number = next.fetch_add(1, Ordering::Relaxed);
            match disk.create(&run_path(meta.number)) {
                Ok(file) => break file,
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(IndexRunError::Io { file: run_path(meta.number), source }),
            }
        };
        Ok(RunWriter {
            disk: Arc::clone(disk),
            file,
            meta,
            entries: 0,
            last: None,
            out: Vec::with_capacity(BUFFER_LEN + PAGE_LEN),
            written: 0,
            in_page: 0,
            per_page: BODY_LEN / meta.kind.entry_len(),
            fence: Vec::with_capacity(BODY_LEN),
            top: Vec::new(),
            finished: false,
        })
    }

    /// Adds an entry, which begins with `key`. A second entry with the same key is skipped.
    pub(crate) fn push<const N: usize>(&mut self, key: SortKey, raw: &[u8; N]) -> Result<(), IndexRunError> {
        if self.last == Some(key) {
            return Ok(());
        }
        assert!(self.last < Some(key), "run entries out of order: {key:?} after {:?}", self.last);
        self.last = Some(key);
        if self.in_page == 0 {
            if self.fence.is_empty() {
                self.top.push(key);
            }
            self.fence.extend_from_slice(&key.encode());
        }
        self.out.extend_from_slice(raw);
        self.entries += 1;
        self.in_page += 1;
        if self.in_page == self.per_page { self.close_page() } else { Ok(()) }
    }

    /// Completes the file without syncing it. Without entries it returns `None` and leaves no file.
    pub(crate) fn finish(mut self) -> Result<Option<IndexRun>, IndexRunError> {
        if self.entries == 0 {
            return Ok(None);
        }
        if self.in_page > 0 {
            self.close_page()?;
        }
        if !self.fence.is_empty() {
            self.close_fence();
        }
        self.meta.entries = self.entries;
        let top: Vec<u8> = self.top.iter().flat_map(|key| key.encode()).collect();
        self.out.extend_from_slice(&top);
        self.out.extend_from_slice(&self.meta.encode(crc32c::crc32c(&top)));
        self.flush()?;
        self.finished = true;
        let shape = RunShape::new(self.meta.kind, self.entries);
        assert_eq!(self.written, shape.file_len(), "run file has another shape than its footer says");
        Ok(Some(IndexRun {
            meta: self.meta,
            shape,
            file: Arc::clone(&self.file),
            top: std::mem::take(&mut self.top),
        }))
    }

    fn close_page(&mut self) -> Result<(), IndexRunError> {
        let at = self.at();
        page::seal(&mut self.out, self.in_page, at);
        self.in_page = 0;
        if self.fence.len() == FENCE_KEYS * KEY_LEN {
            self.close_fence();
        }
        if self.out.len() >= BUFFER_LEN { self.flush() } else { Ok(()) }
    }

    fn close_fence(&mut self) {
        let at = self.at();
        self.out.extend_from_slice(&self.fence);
        page::seal(&mut self.out, self.fence.len() / KEY_LEN, at);
        self.fence.clear();
    }

    /// The page at the end of `out`: the open page, or the next one.
    fn at(&self) -> PageAt {
        PageAt { run: self.meta.number, page: (self.written + self.out.len() as u64) / PAGE_LEN as u64 }
    }

    fn flush(&mut self) -> Result<(), IndexRunError> {
        write_all_at(&*self.file, &self.out, self.written)
            .map_err(|source| IndexRunError::Io { file: run_path(self.meta.number), source })?;
        self.written += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if !self.finished {
            // If the file cannot be removed now, the next open removes it: no manifest names it.
            let _ = self.disk.remove(&run_path(self.meta.number));
        }
    }
}
