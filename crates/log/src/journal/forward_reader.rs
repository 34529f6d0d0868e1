//! A reader of a journal file from front to back, through one window of bounded size.

use std::io;

use super::frame::{self, FrameHeader, FrameView};
use crate::disk::DiskFile;

/// Bytes read at once; more if a frame is larger. Few enough to be still in the processor's cache when they
/// are used.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes read at once when only headers are needed and most bodies are skipped.
const HEADERS_BYTES: usize = 16 << 10;

/// A file, and the window of it that was read last.
pub(super) struct ForwardReader<'a> {
    file: &'a dyn DiskFile,
    len: usize,
    /// Bytes of the file from `start` on.
    window: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> ForwardReader<'a> {
    /// Makes a reader that reuses the memory of `window`.
    pub(super) fn new(file: &'a dyn DiskFile, window: &'a mut Vec<u8>) -> io::Result<Self> {
        let len = file.len()? as usize;
        window.clear();
        Ok(Self { file, len, window, start: 0 })
    }

    /// Drops the window, so that the next read goes to the file.
    pub(super) fn forget(&mut self) {
        self.window.clear();
        self.start = 0;
    }

    /// Length of the file.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Reads at least `wanted` bytes from `at` on, fewer only at the end of the file.
    pub(super) fn from(&mut self, at: usize, wanted: usize) -> io::Result<&[u8]> {
        self.read(at, wanted, WINDOW_BYTES)
    }

    /// Reads the frame at `at`, if there is a valid one.
    pub(super) fn frame(&mut self, at: usize, salt: u32) -> io::Result<Option<FrameView<'_>>> {
        let header = self.from(at, frame::HEADER_BYTES)?;
        let Some(FrameHeader { len, .. }) = frame::header(header, salt) else { return Ok(None) };
        Ok(frame::parse(self.from(at, len)?, salt))
    }

    /// Reads the frame header at `at`, if there is a valid one. The body is not checked.
    pub(super) fn header(&mut self, at: usize, salt: u32) -> io::Result<Option<FrameHeader>> {
        Ok(frame::header(self.read(at, frame::HEADER_BYTES, HEADERS_BYTES)?, salt))
    }

    fn read(&mut self, at: usize, wanted: usize, window_bytes: usize) -> io::Result<&[u8]> {
        let end = self.start + self.window.len();
        if at < self.start || (at.saturating_add(wanted) > end && end < self.len) {
            // Bytes that are in the window already are not read again.
            let known = if (self.start..end).contains(&at) { end - at } else { 0 };
            let unknown = self.window.len() - known;
            self.window.copy_within(unknown.., 0);
            self.start = at;
            let len = wanted.max(window_bytes).min(self.len.saturating_sub(at));
            self.window.resize(len.max(known), 0);
            let rest = self.window.get_mut(known..).unwrap_or_default();
            let count = self.file.read_at(rest, (at + known) as u64)?;
            self.window.truncate(known + count);
        }
        Ok(self.window.get(at - self.start..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::Disk;
    use crate::file_io::write_all_at;
    use crate::index::tests::mem_disk::MemDisk;

    fn file(bytes: &[u8]) -> Arc<dyn DiskFile> {
        let file = MemDisk::default().create("file").unwrap();
        write_all_at(&*file, bytes, 0).unwrap();
        file
    }

    #[test]
    fn every_place_reads_as_it_is_in_the_file() {
        let bytes: Vec<u8> = (0..WINDOW_BYTES * 2 + 1000).map(|at| (at / 7) as u8).collect();
        let (file, mut window) = (file(&bytes), vec![9; 100]);
        let mut forward = ForwardReader::new(&*file, &mut window).unwrap();
        assert_eq!(forward.len(), bytes.len());
        let places =
            [0, 3, WINDOW_BYTES - 2, WINDOW_BYTES, 5, WINDOW_BYTES * 2 - 1, bytes.len() - 3, bytes.len()];
        for (at, wanted) in
            places.into_iter().flat_map(|at| [(at, 4), (at, WINDOW_BYTES + 9), (at, usize::MAX)])
        {
            let found = forward.from(at, wanted).unwrap();
            assert!(found.len() >= wanted.min(bytes.len() - at), "{at} {wanted}");
            assert!(bytes[at..].starts_with(found), "{at} {wanted}");
        }
        assert!(forward.from(bytes.len() + 1, 1).unwrap().is_empty());
    }

    #[test]
    fn a_frame_is_found_across_the_end_of_a_window() {
        let mut bytes = vec![0; WINDOW_BYTES - 20];
        let at = bytes.len();
        let mut made = vec![0; frame::HEADER_BYTES];
        made.extend(vec![7; WINDOW_BYTES * 2]);
        frame::finish(&mut made, frame::FrameParts { lsn: 5, ..frame::FrameParts::default() });
        frame::seal(&mut made, 4, 1);
        bytes.extend(&made);
        let (file, mut window) = (file(&bytes), Vec::new());
        let mut forward = ForwardReader::new(&*file, &mut window).unwrap();
        forward.from(0, 1).unwrap();
        let found = forward.frame(at, 1).unwrap().map(|view| (view.lsn, view.len));
        assert_eq!(found, Some((5, made.len())));
        let header =
            forward.header(at, 1).unwrap().map(|header| (header.lsn, header.durable_mark, header.len));
        assert_eq!(header, Some((5, 4, made.len())));
        assert!(forward.header(at, 2).unwrap().is_none());
        assert!(forward.frame(at, 2).unwrap().is_none() && forward.frame(0, 1).unwrap().is_none());
    }
}
