//! The bytes of the rows of groups and schemas in the store's small tables. They are stored on disk, so a
//! form may get additions but never changes.
//!
//! | module | table | key | value |
//! | --- | --- | --- | --- |
//! | `attempts` | `Attempts` | `group 0 topic 0 offset(be64)` | fixed bytes |
//! | `dead_letters::row` | `DeadLetters` | `group 0 topic 0 offset(be64)` | fixed bytes |
//! | `dead_letters::closed_block` | `ClosedLetters` | `group 0 topic 0 first-offset(be64)` | fixed bytes |
//! | `groups` | `Groups` | `group 0 topic-or-pattern` | JSON |
//! | `schemas` | `Schemas` | `topic 0 version(be32)` | JSON |

use thiserror::Error;

mod attempts;
pub(crate) mod failure;
mod groups;
mod keys;
mod options;
mod schemas;

pub use attempts::{decode_attempts, encode_attempts};
pub use groups::GroupRow;
pub use keys::{EventKey, GroupKey, dedupe_scope, feed_key, group_prefix, topic_prefix};
pub use options::{AskedOptions, GroupOptions, StartPosition};
pub use schemas::{SchemaKey, SchemaRow};

/// A row that cannot be decoded: a newer release wrote it, or there is a bug.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a row of table `{table}` cannot be read ({reason}); use the release that wrote it")]
pub struct RowError {
    /// The table.
    pub table: &'static str,
    /// Why it cannot be decoded.
    pub reason: String,
}

impl From<RowError> for crate::BusError {
    fn from(error: RowError) -> Self {
        Self::StorageFailed { reason: error.to_string() }
    }
}

pub(crate) fn bad(table: &'static str, reason: impl Into<String>) -> RowError {
    RowError { table, reason: reason.into() }
}
