//! Topics: listing, creating, setting.

use std::sync::Arc;

use promethean_model::{TopicName, TopicSettings};
use promethean_store::port::{Batch, SettingsOp, TopicInfo, TopicOp};

use crate::bus::Bus;
use crate::changing::to_the_end;
use crate::error::BusError;
use crate::topics;

impl Bus {
    /// Every topic, by name.
    pub async fn topics(&self) -> Result<Vec<TopicInfo>, BusError> {
        let mut found = Vec::new();
        topics::each(&self.core, |info| found.push(info)).await?;
        Ok(found)
    }

    /// One topic.
    pub async fn topic(&self, topic: &TopicName) -> Result<TopicInfo, BusError> {
        let info = self.core.store.topic_info(topic).await?;
        info.ok_or_else(|| BusError::UnknownTopic { topic: topic.clone() })
    }

    /// What is set for a topic; the topic need not exist yet.
    pub fn topic_settings(&self, topic: &TopicName) -> TopicSettings {
        (*self.core.settings.get(topic)).clone()
    }

    /// Creates a topic, empty; one that exists stays as it is.
    pub async fn create_topic(&self, topic: &TopicName) -> Result<(), BusError> {
        TopicName::parse_user(topic.as_str())?;
        let (core, topic) = (Arc::clone(&self.core), topic.clone());
        to_the_end(&self.core, async move {
            let _lock = core.changing.lock(&topic).await;
            core.store.commit(Batch::new().with(TopicOp::Create(topic.clone()))).await?;
            // Nobody may be following patterns.
            let _ = core.births.send(topic.clone());
            Ok(())
        })
        .await
    }

    /// Sets everything that can be set for a topic.
    pub async fn set_topic(&self, topic: &TopicName, settings: TopicSettings) -> Result<(), BusError> {
        settings.validate()?;
        let (core, topic) = (Arc::clone(&self.core), topic.clone());
        to_the_end(&self.core, async move {
            // What is in memory follows the store in its order.
            let _lock = core.changing.lock(&topic).await;
            let op = SettingsOp::Put(topic.clone(), settings.clone());
            core.store.commit(Batch::new().with(op)).await?;
            core.settings.put(&topic, Some(settings));
            Ok(())
        })
        .await
    }
}
