//! Names, parsed at the edge: a value of these types is valid, so nothing below the edge checks again.

mod error;
mod newtype;
mod plain;
mod topic;

pub use error::{NameError, NameFault, NameKind};
pub use plain::{CollectionName, GroupName, MemberId};
pub use topic::{SystemSuffix, TopicName};
