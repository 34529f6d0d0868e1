//! Topics: listing, creating, setting, deleting.

use promethean_model::{TopicName, TopicSettings};
use promethean_store::port::{Batch, RowOp, SettingsOp, Table, TopicInfo, TopicOp};
use tokio::sync::oneshot;

use crate::bus::Bus;
use crate::error::BusError;
use crate::group::Command;
use crate::pattern::Subject;
use crate::rows::{GroupKey, topic_prefix};
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

    /// Deletes a topic with its events, settings, and groups with all they noted. Its subscriptions end with
    /// `topic_deleted`. Groups of patterns stay, and begin anew should the topic be born again.
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<(), BusError> {
        self.topic(topic).await?;
        let result = self.delete_now(topic).await;
        // Members of patterns have forgotten it. If it is there still, or again, they must hear of it.
        if self.core.store.topic_info(topic).await?.is_some() {
            // Nobody may be following patterns.
            let _ = self.core.births.send(topic.clone());
        }
        result
    }

    async fn delete_now(&self, topic: &TopicName) -> Result<(), BusError> {
        let core = &self.core;
        // Before we look: what they write while we look would stay.
        self.end_owners(topic).await;
        let mut batch = Batch::new().with(TopicOp::Delete(topic.clone()));
        for cursor in core.store.cursors_of_topic(topic).await? {
            // Another topic of this name would inherit them.
            for table in [Table::Attempts, Table::DeadLetters] {
                self.add_row_deletes(table, &topic_prefix(&cursor.group, topic), &mut batch).await?;
            }
            let key = GroupKey::encode(&cursor.group, &Subject::Topic(topic.clone()));
            batch = batch.with(RowOp::Delete { table: Table::Groups, key });
        }
        core.store.commit(batch).await?;
        core.letters.forget(topic, None);
        core.settings.put(topic, None);
        core.metrics.forget_topic(topic);
        self.end_owners(topic).await;
        Ok(())
    }

    /// Ends the subscriptions to a topic. Until its owners have ended, they are in the way of another of its name.
    async fn end_owners(&self, topic: &TopicName) {
        for owner in self.core.owners.all().into_iter().filter(|owner| owner.topic == *topic) {
            let (answer, ended) = oneshot::channel();
            if owner.mailbox.send_now(Command::TopicDeleted(answer)).is_ok() {
                // Whatever the answer, it has ended.
                let _ = ended.await;
            }
        }
    }
}
