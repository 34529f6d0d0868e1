//! Publishing stops while there is still room for everything else.

use std::sync::atomic::Ordering;

use crate::core::LogCore;
use crate::error::AppendError;

/// How often free space is asked for, in journal bytes.
const LOOK_EVERY: u64 = 4 * 1024 * 1024;

impl LogCore {
    /// Refuses when less than the reserve is free. While full, every publish looks again, so it resumes by itself.
    pub(crate) fn check_space(&self) -> Result<(), AppendError> {
        if self.full.load(Ordering::Relaxed) {
            let free = self.look_at_space();
            if self.full.load(Ordering::Relaxed) {
                return Err(AppendError::StorageFull { free, reserve: self.options.reserve_bytes });
            }
        }
        Ok(())
    }

    /// Looks at the free space now and then as the journal grows.
    pub(crate) fn watch_space(&self, bytes: u64) {
        let step = LOOK_EVERY.min(self.options.reserve_bytes / 8).max(1);
        let before = self.counters.written.fetch_add(bytes, Ordering::Relaxed);
        if before / step != (before + bytes) / step {
            self.look_at_space();
        }
    }

    pub(crate) fn look_at_space(&self) -> u64 {
        match self.disk.free_bytes() {
            Ok(free) => {
                self.full.store(free < self.options.reserve_bytes, Ordering::Relaxed);
                free
            }
            // A file system that cannot tell is not known to be full; real exhaustion still stops writes.
            Err(_) => u64::MAX,
        }
    }
}
