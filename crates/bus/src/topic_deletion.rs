//! Deleting a topic with its events, settings, schemas and groups, a bounded step at a time.
//!
//! The topic itself is deleted last, after the rows of its groups. So after a crash or a failure between two
//! steps the topic still exists and can be deleted again.

use std::sync::Arc;

use promethean_delivery::Subject;
use promethean_model::{Offset, TopicName};
use promethean_store::port::{Batch, CursorOp, Row, RowOp, SettingsOp, StateOp, Table, TopicOp};
use tokio::sync::oneshot;
use tracing::warn;

use crate::bus::Bus;
use crate::error::BusError;
use crate::groups::{Groups, OwnerMessage, clear_notes, stored_row, topics_alone};
use crate::rows::{GroupKey, SchemaKey, SchemaRow, feed_key};
use crate::schemas::VERSIONS_MAX;
use crate::topics::ClosedGate;

impl Bus {
    /// Deletes a topic with its events, settings, schemas and groups, and all rows of these groups.
    ///
    /// Schemas of the configuration stay, for the next topic of this name. Subscriptions to the topic end
    /// with `topic_deleted`, and new ones are refused with it meanwhile. Groups of patterns stay; if the
    /// topic is created again, they start at its beginning. The deletion runs to its end even if the caller stops
    /// waiting. If it fails half-way, the topic still exists.
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<(), BusError> {
        let (groups, topic) = (Arc::clone(&self.groups), topic.clone());
        let delete = async move {
            let topics = &groups.topics;
            let _lock = topics.locks.lock(&topic).await;
            topics.require(&topic).await?;
            let closed = ClosedGate::new(topics, &topic, None).await;
            let result = delete_topic(&groups, &topic).await;
            drop(closed);
            // Members of patterns have removed the topic. If it still exists, or exists again, it is
            // announced to them, after the gate is open so that they can join.
            if groups.base.store.topic_info(&topic).await?.is_some() {
                topics.announce(topic);
            }
            result
        };
        self.groups.base.run_to_end(delete).await
    }
}

/// Called with the topic's gate closed.
async fn delete_topic(groups: &Arc<Groups>, topic: &TopicName) -> Result<(), BusError> {
    // Before the cursors are read: rows that owners write after that would stay.
    end_owners(groups, topic).await;
    for cursor in groups.base.store.cursors_of_topic(topic).await? {
        let group = &cursor.group;
        let _lock = groups.locks.lock(group).await;
        // Else the next topic of this name would inherit these rows.
        clear_notes(groups, topic, group).await?;
        let subject = Subject::Topic(topic.clone());
        // The row of a follower stays: it keeps consumers out, even while the topic does not exist.
        if stored_row(groups, group, &subject).await?.is_some_and(|row| !row.follower) {
            let key = GroupKey::encode(group, &subject);
            let mut batch = Batch::new().with(RowOp::Delete { table: Table::Groups, key });
            if topics_alone(groups, &subject, group).await?.contains(topic) {
                // Deleted group by group: else the commit that deletes the topic would have to remove the
                // cursors of all its groups at once.
                let (group, topic) = (group.clone(), topic.clone());
                batch = batch.with(CursorOp::Delete { group, topic, expected_epoch: None });
            }
            groups.base.store.commit(batch).await?;
        }
    }
    let catalog = &groups.schemas.catalog;
    let configured = catalog.configured(topic);
    let mut state: Vec<StateOp> = Vec::new();
    for row in groups.base.store.rows(Table::Schemas, &SchemaKey::prefix(topic), None, VERSIONS_MAX).await? {
        if configured.contains(&SchemaKey::decode(&row.key)?.version) {
            from_the_beginning(groups, row).await?;
        } else {
            state.push(RowOp::Delete { table: Table::Schemas, key: row.key }.into());
        }
    }
    // If the topic is the feed of a collection, its history ends here.
    state.push(RowOp::Delete { table: Table::Snapshots, key: feed_key(topic) }.into());
    // The topic and its schemas are deleted in one commit: a part of the versions would be a wrong history.
    state.push(TopicOp::Delete(topic.clone()).into());
    // Before the commit: an event must not get a version that is deleted.
    let known = catalog.get(topic);
    catalog.begin_anew(topic);
    if let Err(error) = groups.base.store.commit(Batch { state, ..Batch::new() }).await {
        catalog.restore(topic, known);
        return Err(error.into());
    }
    groups.dead_letters.forget(topic, None);
    groups.topics.settings.put(topic, None);
    groups.base.metrics.forget_topic(topic);
    configure(groups, topic).await;
    Ok(())
}

/// Stores the configured settings again, for the next topic of this name. If that fails, the next start
/// stores them; the topic counts as deleted all the same.
async fn configure(groups: &Groups, topic: &TopicName) {
    let Some(settings) = groups.base.options.topics.get(topic) else { return };
    groups.topics.settings.put(topic, Some(settings.clone()));
    let put = SettingsOp::Put(topic.clone(), settings.clone());
    if let Err(error) = groups.base.store.commit(Batch::new().with(put)).await {
        warn!(%topic, %error, "the configured settings of a deleted topic are stored at the next start");
    }
}

/// Records that any event of the topic may have this version, which is true for a topic that starts again. It
/// does no harm if the deletion fails and the topic stays.
async fn from_the_beginning(groups: &Groups, row: Row) -> Result<(), BusError> {
    let mut schema = SchemaRow::decode(&row.value)?;
    schema.end = Offset::ZERO;
    let value = schema.encode()?;
    let op = RowOp::Put { table: Table::Schemas, key: row.key, value, must_be_new: false };
    groups.base.store.commit(Batch::new().with(op)).await?;
    Ok(())
}

/// Ends the owners of a topic, and with them its subscriptions. Owners that still run would block the next
/// topic of this name.
async fn end_owners(groups: &Groups, topic: &TopicName) {
    for owner in groups.owners.all().into_iter().filter(|owner| owner.topic == *topic) {
        let (answer, ended) = oneshot::channel();
        if owner.mailbox.send_now(OwnerMessage::TopicDeleted(answer)).is_ok() {
            // Every result means that the owner has ended.
            let _ = ended.await;
        }
    }
}
