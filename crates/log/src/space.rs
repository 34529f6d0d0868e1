//! Free space: publishing stops while there is still room for all other writes.

use std::sync::atomic::Ordering;

use crate::core::LogCore;
use crate::error::AppendError;

/// Free space is checked each time the journal has grown by this many bytes.
const LOOK_EVERY: u64 = 4 * 1024 * 1024;

impl LogCore {
    /// Refuses a publish while less than the reserve is free. Each refused publish checks again, so
    /// publishing resumes by itself.
    pub(crate) fn check_space(&self) -> Result<(), AppendError> {
        if self.full.load(Ordering::Relaxed) {
            let free = self.look_at_space();
            if self.full.load(Ordering::Relaxed) {
                return Err(AppendError::StorageFull { free, reserve: self.options.reserve_bytes });
            }
        }
        Ok(())
    }

    /// Checks the free space now and then as the journal grows.
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
            // A file system that does not say its free space is not known to be full; a failed write still
            // stops the log.
            Err(_) => u64::MAX,
        }
    }
}
