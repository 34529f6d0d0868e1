//! Why a pattern, a filter or a request to the coordinator was refused.

use promethean_model::{MemberId, NameError};
use thiserror::Error;

/// A refusal of this crate. The message says what to change; [`DeliveryError::code`] is the stable word for
/// programs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeliveryError {
    /// The name of a topic is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The filter is not valid, or too large.
    #[error("bad filter: {reason}")]
    BadFilter {
        /// What is wrong and what to change.
        reason: String,
    },
    /// The pattern is not valid, or matches no topic at all.
    #[error("bad pattern: {reason}")]
    BadPattern {
        /// What is wrong and what to change.
        reason: String,
    },
    /// The number of partitions is out of range.
    #[error("`partitions` is {given}; give a number from 1 to 4096")]
    BadPartitions {
        /// The number that was asked for.
        given: u32,
    },
    /// The number of partitions cannot change while the group has members.
    #[error("the group has {members} members, so its partitions stay {partitions}; stop them first")]
    PartitionsInUse {
        /// How many members there are.
        members: usize,
        /// How many partitions there are.
        partitions: u32,
    },
    /// The member is not in the group, or another session took its name.
    #[error("member `{member}` is not in the group; it may have missed its heartbeats, join again")]
    UnknownMember {
        /// The name of the member.
        member: MemberId,
    },
}

impl DeliveryError {
    /// The stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Name(error) => error.code(),
            Self::BadFilter { .. } => "bad_filter",
            Self::BadPattern { .. } => "bad_pattern",
            Self::BadPartitions { .. } => "bad_option",
            Self::PartitionsInUse { .. } => "partitions_in_use",
            Self::UnknownMember { .. } => "unknown_member",
        }
    }
}
