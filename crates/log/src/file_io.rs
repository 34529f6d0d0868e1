//! Whole reads and writes over positioned calls that may be short.

use std::io;

use crate::disk::DiskFile;

/// Reads until `buf` is full or the file ends. Returns how many bytes were read.
pub(crate) fn read_full(file: &dyn DiskFile, buf: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The failure of a step that writes and syncs. A write may be repeated; after a failed sync nothing may be
/// written again.
#[derive(Debug)]
pub(crate) struct WriteFailed {
    pub(crate) error: io::Error,
    /// Whether bytes that were written may be lost.
    pub(crate) syncing: bool,
}

impl WriteFailed {
    pub(crate) fn writing(error: io::Error) -> WriteFailed {
        WriteFailed { error, syncing: false }
    }

    pub(crate) fn syncing(error: io::Error) -> WriteFailed {
        WriteFailed { error, syncing: true }
    }
}

/// Writes all of `bytes` from position `at` on.
pub(crate) fn write_all_at(file: &dyn DiskFile, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
