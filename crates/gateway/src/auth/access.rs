//! What a client can ask for, as far as it has to be allowed.

use promethean_delivery::Subject;
use promethean_model::{GroupName, TopicName};

/// One thing a client wants to do.
#[derive(Debug, Clone, Copy)]
pub enum Access<'a> {
    /// Publish to a topic.
    Publish(&'a TopicName),
    /// Be given or read events of a topic or pattern, its dead letters and snapshots; in a group, or without one.
    Subscribe(&'a Subject, Option<&'a GroupName>),
    /// Read a collection.
    Read(&'a str),
    /// Seek, pause and delete groups, redrive, change settings and schemas.
    Manage(&'a Subject),
    /// What concerns no topic.
    Admin,
}
