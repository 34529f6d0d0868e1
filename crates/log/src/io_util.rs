//! Whole reads and writes over positioned calls that may be short.

use std::io;
use std::sync::{Mutex, MutexGuard};

use crate::disk::DiskFile;
use promethean_model::IgnorePoison;

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

/// A panicking holder poisons the log itself (see `poison.rs`), so the lock's own poison says nothing more.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}
