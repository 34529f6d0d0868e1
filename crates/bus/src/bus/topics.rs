//! Topics. Deleting one is in `topic_deletion`.

use promethean_model::{TopicName, TopicSettings};
use promethean_store::port::{TopicInfo, TopicPage, TopicRoom};

use super::Bus;
use crate::error::BusError;

impl Bus {
    /// Every topic, in the order of their names.
    pub async fn topics(&self) -> Result<Vec<TopicInfo>, BusError> {
        let mut found = Vec::new();
        self.groups.topics.each(|info| found.push(info)).await?;
        Ok(found)
    }

    /// Topics that are wanted, by name, after `after`, at most `limit`.
    pub async fn topics_page(
        &self,
        after: Option<&TopicName>,
        limit: usize,
        wanted: impl Fn(&TopicName) -> bool,
    ) -> Result<TopicPage, BusError> {
        self.groups.topics.page(after, limit, wanted).await
    }

    /// Whether a topic exists, also one without events.
    pub fn has_topic(&self, topic: &TopicName) -> bool {
        self.groups.base.store.has_topic(topic)
    }

    /// How many topics there are, and how many there may be.
    pub fn topic_room(&self) -> TopicRoom {
        self.groups.base.store.topic_room()
    }

    /// One topic.
    pub async fn topic(&self, topic: &TopicName) -> Result<TopicInfo, BusError> {
        self.groups.topics.require(topic).await
    }

    /// The settings of a topic. The topic need not exist yet.
    pub fn topic_settings(&self, topic: &TopicName) -> TopicSettings {
        (*self.groups.topics.settings.get(topic)).clone()
    }

    /// Creates a topic, empty. A topic that exists stays as it is.
    pub async fn create_topic(&self, topic: &TopicName) -> Result<(), BusError> {
        self.groups.topics.create(topic).await
    }

    /// Creates a topic with settings, or sets a topic that exists: both or nothing.
    pub async fn create_topic_with(
        &self,
        topic: &TopicName,
        settings: TopicSettings,
    ) -> Result<(), BusError> {
        self.groups.topics.create_with(topic, settings).await
    }

    /// Sets everything that can be set for a topic.
    pub async fn set_topic(&self, topic: &TopicName, settings: TopicSettings) -> Result<(), BusError> {
        self.groups.topics.set(topic, settings).await
    }
}
