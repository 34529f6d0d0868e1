//! Whose rate a refused publish exceeds.

use std::fmt;

/// Whose rate is limited, with the setting that limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateOwner {
    /// One connection, or another publisher of its own.
    Connection,
    /// All publishers of one topic together.
    Topic,
}

impl fmt::Display for RateOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "this connection (`publish_rate` in `[limits]`)",
            Self::Topic => "all publishers of this topic (`topic_rate` in `[limits]`)",
        })
    }
}
