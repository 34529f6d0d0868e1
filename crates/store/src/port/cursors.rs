//! Cursors: the progress of groups and projectors.

use async_trait::async_trait;
use promethean_model::{GroupName, Offset, TopicName};

use super::ReadError;

/// A group's progress on one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Every offset below it is finished. Never above the topic's durable end.
    pub floor: Offset,
    /// Decides which owner may write: a write names the epoch that it found, and is refused if the epoch has changed since.
    pub epoch: u64,
    /// The offsets finished above the floor, and attempts, as bytes of the bus.
    pub data: Vec<u8>,
}

/// A cursor with its group and topic.
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
