//! Progress of groups and projectors.

use async_trait::async_trait;
use promethean_model::{GroupName, Offset, TopicName};

use super::ReadError;

/// A group's progress on one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Every offset below it is finished. Never above the topic's durable end.
    pub floor: Offset,
    /// Who may write it: a write names the epoch it found and is refused if that has changed since.
    pub epoch: u64,
    /// What is finished above the floor, and attempts; its form belongs to the bus.
    pub data: Vec<u8>,
}

/// A cursor with the names it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupCursor {
    /// The group.
    pub group: GroupName,
    /// The topic.
    pub topic: TopicName,
    /// Its progress.
    pub cursor: Cursor,
}

/// Reads of cursors.
#[async_trait]
pub trait CursorReads {
    /// The cursor of a group on a topic.
    async fn cursor(&self, group: &GroupName, topic: &TopicName) -> Result<Option<Cursor>, ReadError>;
    /// Every cursor on a topic, by group name.
    async fn cursors_of_topic(&self, topic: &TopicName) -> Result<Vec<GroupCursor>, ReadError>;
    /// Every cursor of a group, by topic name.
    async fn cursors_of_group(&self, group: &GroupName) -> Result<Vec<GroupCursor>, ReadError>;
}
