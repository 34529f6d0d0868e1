//! Settings of topics.

use async_trait::async_trait;
use promethean_model::{TopicName, TopicSettings};

use super::ReadError;

/// The settings of one topic; the topic need not exist yet.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicConfig {
    /// The topic.
    pub topic: TopicName,
    /// The settings.
    pub settings: TopicSettings,
}

/// Reads of topic settings.
#[async_trait]
pub trait CatalogReads {
    /// The settings of a topic; `None`: all have their defaults.
    async fn settings(&self, topic: &TopicName) -> Result<Option<TopicSettings>, ReadError>;
    /// Topics with settings, by name, after `after`, at most `limit`.
    async fn settings_page(
        &self,
        after: Option<&TopicName>,
        limit: usize,
    ) -> Result<Vec<TopicConfig>, ReadError>;
}
