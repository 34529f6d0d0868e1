//! Renewal: frames that may be only in the page cache are written again.
//!
//! After a failed sync the kernel marks the pages as clean: they can be read, but no later sync writes them.
//! The process that failed stops. The next process reads the pages, and a sync of them would succeed without
//! writing. Writing the same bytes to the same places first makes the sync write them.

use std::io;

use super::FRAMES_AT;
use super::forward_reader::ForwardReader;
use crate::disk::DiskFile;
use crate::file_io::write_all_at;

const PAGE_BYTES: usize = 4096;

/// Writes the header again, and all frames of the journal's last file that no durable mark covers. Earlier
/// files were synced whole before the next file began.
pub(super) fn renew(
    file: &dyn DiskFile,
    forward: &mut ForwardReader<'_>,
    base_lsn: u64,
    salt: u32,
) -> io::Result<()> {
    let (from, to) = unmarked(forward, base_lsn, salt)?;
    let header = file.read_vec_at(0, FRAMES_AT as usize)?;
    write_all_at(file, &header, 0)?;
    let frames = file.read_vec_at(from as u64, to - from)?;
    write_all_at(file, &frames, from as u64)
}

/// The range from the first frame above the highest durable mark to the end of the frames, in whole pages.
/// Bodies are not checked: the header's checksum covers the mark, and a torn frame is written again as it is.
fn unmarked(forward: &mut ForwardReader<'_>, base_lsn: u64, salt: u32) -> io::Result<(usize, usize)> {
    let (mut at, mut mark) = (FRAMES_AT as usize, 0);
    // The position of each frame, by its LSN minus `base_lsn`.
    let mut starts = Vec::new();
    while let Some(header) = forward.header(at, salt)? {
        if header.lsn != base_lsn + starts.len() as u64 {
            break;
        }
        mark = mark.max(header.durable_mark);
        starts.push(at);
        at = at.saturating_add(header.len);
    }
    let marked = mark.saturating_add(1).saturating_sub(base_lsn) as usize;
    let Some(from) = starts.get(marked) else { return Ok((0, 0)) };
    Ok((
        from / PAGE_BYTES * PAGE_BYTES,
        at.min(forward.len()).next_multiple_of(PAGE_BYTES).min(forward.len()),
    ))
}
