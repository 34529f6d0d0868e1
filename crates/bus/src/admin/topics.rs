//! Topics: listing, creating, setting, deleting.

use promethean_model::{TopicName, TopicSettings};
use promethean_store::port::{Batch, SettingsOp, Table, TopicInfo, TopicOp};

use crate::bus::Bus;
use crate::error::BusError;
use crate::rows::topic_prefix;
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
        self.core.store.commit(Batch::new().with(TopicOp::Create(topic.clone()))).await?;
        // Nobody may be following patterns.
        let _ = self.core.births.send(topic.clone());
        Ok(())
    }

    /// Sets everything that can be set for a topic.
    pub async fn set_topic(&self, topic: &TopicName, settings: TopicSettings) -> Result<(), BusError> {
        settings.validate()?;
        let op = SettingsOp::Put(topic.clone(), settings.clone());
        self.core.store.commit(Batch::new().with(op)).await?;
        self.core.settings.put(topic, Some(settings));
        Ok(())
    }

    /// Deletes a topic with its events, settings, cursors, and what groups noted of its events. Its subscriptions end with `topic_deleted`.
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<(), BusError> {
        self.topic(topic).await?;
        let mut batch = Batch::new().with(TopicOp::Delete(topic.clone()));
        for cursor in self.core.store.cursors_of_topic(topic).await? {
            // A topic of the same name begins at offset 0 again: they would speak of its events.
            for table in [Table::Attempts, Table::DeadLetters] {
                self.add_row_deletes(table, &topic_prefix(&cursor.group, topic), &mut batch).await?;
            }
        }
        self.core.store.commit(batch).await?;
        self.core.letters.forget(topic, None);
        self.core.settings.put(topic, None);
        self.core.metrics.forget_topic(topic);
        Ok(())
    }
}
