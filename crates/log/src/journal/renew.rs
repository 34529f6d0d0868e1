//! Writes again what only the page cache may have.
//!
//! After a failed sync the pages it should have written read well and are never written by any later sync. The process
//! that failed stops; the next one finds the pages, and syncing them says nothing. Writing the same bytes to the same
//! places makes the sync mean what it says.

use std::io;

use super::{FRAMES_AT, frame};
use crate::disk::DiskFile;
use crate::io_util::write_all_at;

const PAGE_BYTES: usize = 4096;

/// Writes the header again, and all frames of the journal's last file that no durable mark covers. Files before it were
/// synced whole before their successor began.
pub(super) fn renew(file: &dyn DiskFile, bytes: &[u8], base_lsn: u64, salt: u32) -> io::Result<()> {
    let (from, to) = unmarked(bytes, base_lsn, salt);
    write_all_at(file, bytes.get(..FRAMES_AT as usize).unwrap_or_default(), 0)?;
    write_all_at(file, bytes.get(from..to).unwrap_or_default(), from as u64)
}

/// From the first frame above the highest durable mark to the end of the frames, in whole pages.
fn unmarked(bytes: &[u8], base_lsn: u64, salt: u32) -> (usize, usize) {
    let frames = || {
        let mut at = FRAMES_AT as usize;
        let mut lsn = base_lsn;
        std::iter::from_fn(move || {
            let view = bytes.get(at..).and_then(|rest| frame::parse(rest, salt))?;
            let found = (view.lsn == lsn).then_some((at, view))?;
            at += view.len;
            lsn += 1;
            Some(found)
        })
    };
    let mark = frames().map(|(_, view)| view.durable_mark).max().unwrap_or(0);
    let above = frames().filter(|(_, view)| view.lsn > mark);
    let (from, to) = above.fold((usize::MAX, 0), |(from, _), (at, view)| (from.min(at), at + view.len));
    (from.min(to) / PAGE_BYTES * PAGE_BYTES, to.next_multiple_of(PAGE_BYTES).min(bytes.len()))
}
