//! Following the durable end of topics.

use promethean_model::{Offset, TopicName};

pub use crate::watch::EndWatch;

/// Subscriptions to the durable end of topics.
pub trait Watch {
    /// Follows the durable end of a topic, which need not exist yet. Takes memory only while the handle exists.
    fn watch(&self, topic: &TopicName) -> EndWatch;
    /// The durable end now: the offset the next event will get; 0 for an unknown topic.
    fn durable_end(&self, topic: &TopicName) -> Offset;
}
