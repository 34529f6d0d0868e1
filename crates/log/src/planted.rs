//! Known bugs that the crash suite must catch. Without the `planted-bugs` feature none of them exists.

/// A bug that can be switched on to prove that the tests see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Bug {
    /// The journal is not synced before the ack.
    SkipSync = 1,
    /// New names in a folder are not made durable.
    SkipDirSync,
    /// The ack is sent before the frame is written.
    AckBeforeWrite,
    /// Checksums are not compared.
    IgnoreCrc,
    /// Readers see events that are not synced.
    ReadPastDurableEnd,
    /// Recovery forgets the ids it has seen.
    DropDedupeOnRestart,
    /// Recovery hands out the last offset once more.
    ReuseOffset,
    /// Recovery serves frames that are only in the page cache.
    ServeUnsynced,
    /// A checkpoint frees the journal without syncing the segments.
    SkipSegmentSync,
    /// A checkpoint frees the journal without syncing the state.
    SkipStateSync,
    /// Events are compacted before a checkpoint has brought them into the manifest.
    CompactBeforeCheckpoint,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use std::sync::atomic::{AtomicU32, Ordering};

    static ACTIVE: AtomicU32 = AtomicU32::new(0);

    /// Switches one bug on for the whole process, or all off.
    pub fn plant(bug: Option<super::Bug>) {
        ACTIVE.store(bug.map_or(0, |bug| bug as u32), Ordering::SeqCst);
    }

    pub(crate) fn is(bug: super::Bug) -> bool {
        ACTIVE.load(Ordering::SeqCst) == bug as u32
    }
}

#[cfg(not(feature = "planted-bugs"))]
mod switch {
    pub(crate) const fn is(_bug: super::Bug) -> bool {
        false
    }
}

pub(crate) use switch::is;
#[cfg(feature = "planted-bugs")]
pub use switch::plant;
