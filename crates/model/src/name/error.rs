//! Why a name was refused.

use std::fmt;

use thiserror::Error;

/// The error for a text that is not a valid name. The message says what to change and never repeats the whole
/// text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{kind} name {fault}")]
pub struct NameError {
    /// The kind of name that was expected.
    pub kind: NameKind,
    /// What is wrong with the text.
    pub fault: NameFault,
}

impl NameError {
    /// The stable error code: `reserved_name` for a name that is kept for the system, `bad_name` for any other.
    pub const fn code(&self) -> &'static str {
        match self.fault {
            NameFault::ReservedPrefix | NameFault::ReservedSuffix { .. } => "reserved_name",
            _ => "bad_name",
        }
    }
}

/// The kinds of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// A topic.
    Topic,
    /// A consumer group.
    Group,
    /// A member of a group.
    Member,
    /// A collection.
    Collection,
}

/// What is wrong with a name. Positions are bytes from 0.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameFault {
    /// The name is empty.
    #[error("is empty; give at least one character")]
    Empty,
    /// The name is too long.
    #[error("has {bytes} bytes; shorten it to at most {bytes_max}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest allowed.
        bytes_max: usize,
    },
    /// A character outside the alphabet.
    #[error("has {char:?} at byte {at}; use only {allowed}")]
    Char {
        /// The character.
        char: char,
        /// Where it is.
        at: usize,
        /// The alphabet, for people.
        allowed: &'static str,
    },
    /// A topic name with nothing before, between or after its dots.
    #[error("has an empty word at byte {at}; put a word on both sides of every `.`")]
    EmptyWord {
        /// Where the word should be.
        at: usize,
    },
    /// A word of a topic name that begins or ends with `:`.
    #[error("has `:` at byte {at}, the edge of a word; put it between other characters")]
    ColonAtEdge {
        /// Where it is.
        at: usize,
    },
    /// A topic name that begins with `_`.
    #[error("begins with `_`, which is kept for the system; begin with another character")]
    ReservedPrefix,
    /// A topic name with the suffix of a topic that the system derives.
    #[error("ends in `{suffix}`, which is kept for topics that the system writes; use another last word")]
    ReservedSuffix {
        /// The suffix with its dot.
        suffix: String,
    },
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Topic => "topic",
            Self::Group => "group",
            Self::Member => "member",
            Self::Collection => "collection",
        })
    }
}
