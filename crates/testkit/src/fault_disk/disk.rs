//! The handle to the disk, and the faults that can be set on it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::faults::{DiskFailure, FaultEffect, Matcher, Rules, StopFault};
use super::state::DiskState;
use crate::rng::SeededRng;
use promethean_model::IgnorePoison;

/// A data directory in memory. Clones are the same disk.
///
/// After [`FaultDisk::crash`], [`FaultDisk::kill`] or the stop of [`FaultDisk::stop_at`] every operation on this disk
/// and its files fails for ever, so a thread that outlived the crash cannot touch what came after it.
#[derive(Clone, Default)]
pub struct FaultDisk {
    shared: Arc<Mutex<DiskState>>,
}

impl FaultDisk {
    /// An empty disk without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the power during changing operation `op` (counted from 1, see [`FaultDisk::ops`]): by the seed it is done
    /// wholly, partly or not at all, and it and everything after it fail with "power cut".
    pub fn stop_at(&self, op: u64, seed: u64) {
        self.state().stop = Some(StopFault { at: op, rng: SeededRng::new(seed) });
    }

    /// Changing operations so far, failed ones included: what a test enumerates for [`FaultDisk::stop_at`].
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.state().ops
    }

    /// Makes one operation fail, leaving nothing behind; others go on. A failed sync also loses the pages it should
    /// have written: they stay readable, no later sync writes them, and the next crash drops them.
    pub fn fail_next(&self, matcher: Matcher, failure: DiskFailure) {
        self.state().rules.add(matcher, FaultEffect::Fail(failure), false);
    }

    /// Like [`FaultDisk::fail_next`], and every later match fails too.
    pub fn fail_from(&self, matcher: Matcher, failure: DiskFailure) {
        self.state().rules.add(matcher, FaultEffect::Fail(failure), true);
    }

    /// Makes one write accept only `bytes` of its buffer.
    pub fn short_write(&self, matcher: Matcher, bytes: u64) {
        self.state().rules.add(matcher, FaultEffect::Short(bytes), false);
    }

    /// Makes `percent` of all writes accept only a part, at least one byte; 0 ends it.
    pub fn short_writes(&self, seed: u64, percent: u64) {
        self.state().rules.shorten(seed, percent);
    }

    /// From the matcher's n-th sync on, file syncs it fits do nothing and report success. A matcher for any kind of
    /// operation also takes its files out of `sync_all`. Lasts over crashes.
    pub fn ignore_syncs(&self, matcher: Matcher) {
        self.state().rules.add(matcher, FaultEffect::LieAboutBytes, true);
    }

    /// From now on names do not become durable, whatever `sync_dir` and `sync_all` report. Lasts over crashes.
    pub fn ignore_dir_syncs(&self) {
        self.state().rules.add(Matcher::any(), FaultEffect::LieAboutNames, true);
    }

    /// Forgets all faults that were set and have not happened, and all lies.
    pub fn clear_faults(&self) {
        let mut state = self.state();
        state.rules = Rules::default();
        state.stop = None;
    }

    /// Bytes all files may take together; `None` is no limit. Growing past it fails with `ENOSPC`, a write that fits in
    /// part is short.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Files that there may be; `None` is no limit. Creating more fails with `ENOSPC`, as without inodes.
    pub fn set_files_max(&self, files: Option<u64>) {
        self.state().files_max = files;
    }

    /// Files that may be open at once; `None` is no limit. Opening more fails with `EMFILE`.
    pub fn set_descriptors_max(&self, open: Option<usize>) {
        self.state().descriptors_max = open;
    }

    /// Files that are open now.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.state().open_files()
    }

    /// The last operations, oldest first, as `#number kind path: outcome`.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.state().trace.lines()
    }

    pub(super) fn from_state(state: DiskState) -> Self {
        Self { shared: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, DiskState> {
        // A test that panicked under the lock fails by itself; the disk can still be inspected.
        self.shared.lock().ignore_poison()
    }
}

impl fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultDisk").finish_non_exhaustive()
    }
}
