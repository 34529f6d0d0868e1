//! The refusal of a schema.

use thiserror::Error;

/// Bytes above which a reason is cut: reasons of the validator quote the schema.
const REASON_BYTES_MAX: usize = 1024;
/// Characters that are kept of a reason that is cut.
const REASON_CHARS_KEPT: usize = 1000;

/// A schema that is refused, and why.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the schema is not usable{}: {reason}", place(at))]
pub struct BadSchema {
    /// Where in the schema, as a JSON pointer; empty for the whole schema.
    pub at: String,
    /// What is wrong and what to change.
    pub reason: String,
}

impl BadSchema {
    /// A refusal of the whole schema.
    pub fn whole(reason: impl Into<String>) -> Self {
        Self::at(String::new(), reason.into())
    }

    /// A refusal of the part that a JSON pointer names.
    pub(crate) fn at(at: String, reason: String) -> Self {
        if reason.len() <= REASON_BYTES_MAX {
            return Self { at, reason };
        }
        Self { at, reason: reason.chars().take(REASON_CHARS_KEPT).chain(['\u{2026}']).collect() }
    }
}

fn place(at: &str) -> String {
    if at.is_empty() { String::new() } else { format!(" at `{at}`") }
}
