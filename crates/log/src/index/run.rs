//! A run: one immutable sorted file of entries, read a page at a time.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::cursor::RunCursor;
use super::entry::{ENTRY_LEN, GHOST_LEN, GhostEntry, IndexEntry, KEY_LEN, SortKey};
use super::footer::{FENCE_KEYS, FOOTER_LEN, RunMeta, RunShape, run_path};
use super::page::{self, PAGE_LEN, PageAt};
use crate::disk::{Disk, DiskFile};
use crate::file_io::read_full;

/// A run that can be read. Holds its file open and the first key of each fence page in memory.
#[derive(Debug)]
pub(crate) struct IndexRun {
    pub(super) meta: RunMeta,
    pub(super) shape: RunShape,
    pub(super) file: Arc<dyn DiskFile>,
    /// First keys of the fence pages, ascending, never empty.
    pub(super) top: Vec<SortKey>,
}

/// The error of a run that cannot be read or written. Runs are derived data: they can be rebuilt from the
/// segments.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IndexRunError {
    /// The disk failed.
    #[error("{file}: {source}")]
    Io {
        /// The run's path.
        file: String,
        /// The error of the disk.
        source: io::Error,
    },
    /// The bytes fail a check.
    #[error("{file} is damaged in bytes {from_byte}..{to_byte}: {what}")]
    Damaged {
        /// The run's path.
        file: String,
        /// First byte of the smallest range that is known to hold the damage.
        from_byte: u64,
        /// First byte after that range.
        to_byte: u64,
        /// Which check failed.
        what: &'static str,
    },
}

impl IndexRun {
    /// Opens the run with this number, reading its footer and top only.
    pub(crate) fn open(disk: &dyn Disk, number: u64, level: u8) -> Result<IndexRun, IndexRunError> {
        let path = run_path(number);
        let io_error = |source| IndexRunError::Io { file: path.clone(), source };
        let damaged = |from_byte, to_byte, what| IndexRunError::Damaged {
            file: path.clone(),
            from_byte,
            to_byte,
            what,
        };

        let file = disk.open(&path).map_err(io_error)?;
        let len = file.len().map_err(io_error)?;
        let footer_at = len.saturating_sub(FOOTER_LEN as u64);
        let mut footer = [0; FOOTER_LEN];
        read_full(&*file, &mut footer, footer_at).map_err(io_error)?;
        let (mut meta, top_crc) = RunMeta::decode(&footer).map_err(|what| damaged(footer_at, len, what))?;
        meta.level = level;
        if meta.number != number {
            return Err(damaged(footer_at, len, "the file of another run"));
        }
        let shape = RunShape::new(meta.kind, meta.entries.min(len));
        if meta.entries > len || shape.file_len() != len {
            return Err(damaged(0, len, "length does not match the footer"));
        }
        let mut top = vec![0; shape.top_len()];
        read_full(&*file, &mut top, shape.top_at()).map_err(io_error)?;
        if crc32c::crc32c(&top) != top_crc {
            return Err(damaged(shape.top_at(), footer_at, "top checksum"));
        }
        let top = top.as_chunks::<KEY_LEN>().0.iter().map(SortKey::of).collect();
        Ok(IndexRun { meta, shape, file, top })
    }

    /// The run's facts.
    pub(crate) fn meta(&self) -> &RunMeta {
        &self.meta
    }

    /// The file, to sync it. A new run is not durable before that.
    pub(crate) fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    /// The file's path.
    pub(crate) fn path(&self) -> String {
        run_path(self.meta.number)
    }

    /// Visits offset and position of all entries under a hash whose offset is at most `upto`, newest first.
    pub(crate) fn walk(
        &self,
        topic: u32,
        hash: u64,
        upto: u64,
        visit: &mut dyn FnMut(u64, u32) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, IndexRunError> {
        let limit = SortKey::entry(topic, hash, upto);
        let mut buf = [0; PAGE_LEN];
        let Some(last) = self.page_of(limit, &mut buf)? else { return Ok(ControlFlow::Continue(())) };
        for data in (0..=last).rev() {
            let entries = self.data_page(data, &mut buf)?.as_chunks::<ENTRY_LEN>().0;
            let end = entries.partition_point(|raw| SortKey::of(raw) <= limit);
            for raw in entries.iter().take(end).rev() {
                let entry = IndexEntry::decode(raw);
                if (entry.topic, entry.hash) != (topic, hash) {
                    return Ok(ControlFlow::Continue(()));
                }
                if visit(entry.offset, entry.pos).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Appends offset and position of all entries under a hash, newest first.
    pub(crate) fn find(&self, topic: u32, hash: u64, out: &mut Vec<(u64, u32)>) -> Result<(), IndexRunError> {
        let mut visit = |offset, pos| {
            out.push((offset, pos));
            ControlFlow::Continue(())
        };
        self.walk(topic, hash, u64::MAX, &mut visit).map(|_| ())
    }

    /// Finds the ghost of an id.
    pub(crate) fn find_ghost(&self, topic: u32, id: &[u8; 16]) -> Result<Option<GhostEntry>, IndexRunError> {
        let key = SortKey::ghost(topic, id);
        let mut buf = [0; PAGE_LEN];
        let Some(data) = self.page_of(key, &mut buf)? else { return Ok(None) };
        let entries = self.data_page(data, &mut buf)?.as_chunks::<GHOST_LEN>().0;
        let found = entries.binary_search_by_key(&key, SortKey::of).ok();
        Ok(found.and_then(|at| entries.get(at)).map(GhostEntry::decode))
    }

    /// Makes a cursor at the first entry.
    pub(crate) fn cursor(self: &Arc<Self>) -> Result<RunCursor, IndexRunError> {
        RunCursor::new(Arc::clone(self))
    }

    /// Reads every page and checks checksums, counts, order and fences.
    pub(crate) fn verify(self: &Arc<Self>) -> Result<(), IndexRunError> {
        let mut cursor = self.cursor()?;
        while cursor.key().is_some() {
            cursor.advance()?;
        }
        Ok(())
    }

    /// The last data page that begins at or before this key.
    fn page_of(&self, key: SortKey, buf: &mut [u8; PAGE_LEN]) -> Result<Option<u64>, IndexRunError> {
        let Some(fence) = self.top.partition_point(|first| *first <= key).checked_sub(1) else {
            return Ok(None);
        };
        let fence = fence as u64;
        let at = PageAt { run: self.meta.number, page: self.shape.fence_at(fence) };
        let keys = self.read_page(at, self.shape.fence_count(fence), KEY_LEN, buf)?.as_chunks::<KEY_LEN>().0;
        match keys.partition_point(|first| SortKey::of(first) <= key).checked_sub(1) {
            Some(nth) => Ok(Some(fence * FENCE_KEYS as u64 + nth as u64)),
            None => Err(self.damaged_page(at, "fence page and top differ")),
        }
    }

    fn data_page<'a>(&self, data: u64, buf: &'a mut [u8; PAGE_LEN]) -> Result<&'a [u8], IndexRunError> {
        let at = PageAt { run: self.meta.number, page: self.shape.data_at(data) };
        self.read_page(at, self.shape.data_count(data), self.meta.kind.entry_len(), buf)
    }

    fn read_page<'a>(
        &self,
        at: PageAt,
        count: usize,
        item_len: usize,
        buf: &'a mut [u8; PAGE_LEN],
    ) -> Result<&'a [u8], IndexRunError> {
        let read = read_full(&*self.file, buf, at.byte()).map_err(|source| self.io_error(source))?;
        let page = buf.get(..read).unwrap_or_default();
        page::open(page, at, count, item_len).map_err(|what| self.damaged_page(at, what))
    }

    pub(super) fn io_error(&self, source: io::Error) -> IndexRunError {
        IndexRunError::Io { file: self.path(), source }
    }

    pub(super) fn damaged_page(&self, at: PageAt, what: &'static str) -> IndexRunError {
        let (from_byte, to_byte) = (at.byte(), at.byte() + PAGE_LEN as u64);
        IndexRunError::Damaged { file: self.path(), from_byte, to_byte, what }
    }
}
