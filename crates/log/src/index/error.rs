//! What can go wrong with a run file.

use std::io;

/// A run cannot be read or written. Runs are derived: the segments can always rebuild them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The disk refused.
    #[error("{file}: {source}")]
    Io {
        /// The run's path.
        file: String,
        /// What the disk said.
        source: io::Error,
    },
    /// Bytes are not what was written.
    #[error("{file} is damaged in bytes {from_byte}..{to_byte}: {what}")]
    Damaged {
        /// The run's path.
        file: String,
        /// First byte of the smallest range known to hold the damage.
        from_byte: u64,
        /// End of that range.
        to_byte: u64,
        /// What does not hold.
        what: &'static str,
    },
}
