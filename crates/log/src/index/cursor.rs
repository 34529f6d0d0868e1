//! A cursor that reads a run from its first entry to its last, many pages at a time.

use std::sync::Arc;

use super::entry::{KEY_LEN, SortKey};
use super::footer::FENCE_KEYS;
use super::page::{self, PAGE_LEN, PageAt};
use super::run::{IndexRun, IndexRunError};
use super::run_writer::BUFFER_LEN;
use crate::file_io::read_full;

/// A position in a run. The cursor verifies all it passes: pages, order, and fences against the data they
/// lead to.
#[derive(Debug)]
pub(crate) struct RunCursor {
    run: Arc<IndexRun>,
    buf: Vec<u8>,
    /// The next page of the file, and its position in `buf`.
    page: u64,
    page_in_buf: usize,
    /// The numbers of data and fence pages passed so far.
    data: u64,
    fence: u64,
    /// The current entry and the end of its page, in `buf`.
    at: usize,
    end: usize,
    key: Option<SortKey>,
    /// First keys of the data pages since the last fence page.
    firsts: Vec<u8>,
}

impl RunCursor {
    /// Makes a cursor at the run's first entry.
    pub(crate) fn new(run: Arc<IndexRun>) -> Result<RunCursor, IndexRunError> {
        let mut cursor = RunCursor {
            run,
            buf: Vec::new(),
            page: 0,
            page_in_buf: 0,
            data: 0,
            fence: 0,
            at: 0,
            end: 0,
            key: None,
            firsts: Vec::new(),
        };
        cursor.next_data_page(None)?;
        Ok(cursor)
    }

    /// The current entry's key; `None` past the last entry.
    pub(crate) fn key(&self) -> Option<SortKey> {
        self.key
    }

    /// The current entry's bytes.
    pub(crate) fn raw(&self) -> &[u8] {
        self.buf.get(self.at..self.at + self.run.meta.kind.entry_len()).unwrap_or_default()
    }

    /// Goes to the next entry.
    pub(crate) fn advance(&mut self) -> Result<(), IndexRunError> {
        let before = self.key;
        self.at += self.run.meta.kind.entry_len();
        if self.at >= self.end {
            return self.next_data_page(before);
        }
        self.key = Some(SortKey::of_slice(self.raw()));
        if self.key > before { Ok(()) } else { Err(self.damaged("entries out of order")) }
    }

    fn next_data_page(&mut self, before: Option<SortKey>) -> Result<(), IndexRunError> {
        let entry_len = self.run.meta.kind.entry_len();
        if self.firsts.len() == FENCE_KEYS * KEY_LEN || self.data == self.run.shape.data_pages {
            self.pass_fence()?;
        }
        if self.data == self.run.shape.data_pages {
            self.key = None;
            return Ok(());
        }
        let count = self.run.shape.data_count(self.data);
        (self.at, self.end) = self.next_page(count, entry_len)?;
        self.data += 1;
        self.key = Some(SortKey::of_slice(self.raw()));
        if self.key <= before {
            return Err(self.damaged("pages out of order"));
        }
        let first = self.buf.get(self.at..self.at + KEY_LEN).unwrap_or_default();
        self.firsts.extend_from_slice(first);
        Ok(())
    }

    fn pass_fence(&mut self) -> Result<(), IndexRunError> {
        if self.firsts.is_empty() {
            return Ok(());
        }
        let (at, end) = self.next_page(self.run.shape.fence_count(self.fence), KEY_LEN)?;
        let top = self.run.top.get(self.fence as usize).copied();
        if self.buf.get(at..end) != Some(&*self.firsts) || top != Some(SortKey::of_slice(&self.firsts)) {
            return Err(self.damaged("fence does not match its pages"));
        }
        self.fence += 1;
        self.firsts.clear();
        Ok(())
    }

    /// Verifies the file's next page. Returns where its items begin and end in `buf`.
    fn next_page(&mut self, count: usize, item_len: usize) -> Result<(usize, usize), IndexRunError> {
        if self.page_in_buf >= self.buf.len() {
            self.fill()?;
        }
        let at = PageAt { run: self.run.meta.number, page: self.page };
        let begin = self.page_in_buf;
        let bytes = self.buf.get(begin..(begin + PAGE_LEN).min(self.buf.len())).unwrap_or_default();
        let items = page::open(bytes, at, count, item_len).map_err(|what| self.run.damaged_page(at, what))?;
        let end = begin + items.len();
        self.page += 1;
        self.page_in_buf += PAGE_LEN;
        Ok((begin, end))
    }

    fn fill(&mut self) -> Result<(), IndexRunError> {
        let from = self.page * PAGE_LEN as u64;
        let left = self.run.shape.top_at().saturating_sub(from);
        self.buf.resize(left.min(BUFFER_LEN as u64) as usize, 0);
        let read = read_full(&*self.run.file, &mut self.buf, from).map_err(|err| self.run.io_error(err))?;
        self.buf.truncate(read);
        self.page_in_buf = 0;
        Ok(())
    }

    /// The error for damage in the last page.
    fn damaged(&self, what: &'static str) -> IndexRunError {
        self.run.damaged_page(PageAt { run: self.run.meta.number, page: self.page.saturating_sub(1) }, what)
    }
}
