//! Following the durable end of topics.

use promethean_model::{Offset, TopicName};

pub use crate::watch::EndWatch;

/// How many topics there are, and how many there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicRoom {
    /// Topics that exist, or are about to.
    pub topics: usize,
    /// Topics that may exist: `topics_max`.
    pub max: usize,
}

/// Subscriptions to the durable end of topics.
pub trait Watch {
    /// Follows the durable end of a topic, which need not exist yet. Takes memory only while the handle exists.
    fn watch(&self, topic: &TopicName) -> EndWatch;
    /// The durable end now: the offset the next event will get; 0 for an unknown topic.
    fn durable_end(&self, topic: &TopicName) -> Offset;
    /// Whether a topic exists, also one without events.
    fn has_topic(&self, topic: &TopicName) -> bool;
    /// How many topics there are, and how many there may be.
    fn topic_room(&self) -> TopicRoom;
}
