//! Deleting a topic with its events, settings, schemas and groups, a bounded step at a time.
//!
//! The topic itself goes last, after all that its groups noted. So a crash or a failure between two steps leaves a topic
//! that can be deleted again.

use std::sync::Arc;

use promethean_delivery::Subject;
use promethean_model::{Offset, TopicName};
use promethean_store::port::{Batch, CursorOp, Row, RowOp, SettingsOp, StateOp, Table, TopicOp};
use tokio::sync::oneshot;
use tracing::warn;

use crate::bus::Bus;
use crate::error::BusError;
use crate::groups::{Groups, OwnerMessage, clear_notes, stored_row, topics_alone};
use crate::rows::{GroupKey, SchemaKey, SchemaRow};
use crate::schemas::VERSIONS_MAX;
use crate::topics::ClosedGate;

impl Bus {
    /// Deletes a topic with its events, settings, schemas, and groups with all they noted.
    ///
    /// Schemas of the configuration stay, for another topic of this name. Subscriptions of the topic end with
    /// `topic_deleted`, and so does subscribing to it meanwhile. Groups of patterns stay, and begin anew should the topic be
    /// born again. Done to the end even if the caller stops waiting; if it fails half-way the topic is still there.
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<(), BusError> {
        let (groups, topic) = (Arc::clone(&self.groups), topic.clone());
        let delete = async move {
            let topics = &groups.topics;
            let _lock = topics.locks.lock(&topic).await;
            topics.require(&topic).await?;
            let closed = ClosedGate::new(topics, &topic, None).await;
            let result = delete_topic(&groups, &topic).await;
            drop(closed);
            // Members of patterns have forgotten the topic. If it is still there, or there again, they must hear of it, but
            // not before they may enter.
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
    // Before the look at cursors: what owners write meanwhile would stay.
    end_owners(groups, topic).await;
    for cursor in groups.base.store.cursors_of_topic(topic).await? {
        let group = &cursor.group;
        let _lock = groups.locks.lock(group).await;
        // Another topic of this name would inherit the notes.
        clear_notes(groups, topic, group).await?;
        let subject = Subject::Topic(topic.clone());
        // The row of a follower stays: it keeps consumers out also while the topic is away.
        if stored_row(groups, group, &subject).await?.is_some_and(|row| !row.follower) {
            let key = GroupKey::encode(group, &subject);
            let mut batch = Batch::new().with(RowOp::Delete { table: Table::Groups, key });
            if topics_alone(groups, &subject, group).await?.contains(topic) {
                // Otherwise the topic's own commit would remove the cursors of all its groups.
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
    // With its schemas, in one commit: half of the versions would be another history.
    state.push(TopicOp::Delete(topic.clone()).into());
    // Before the commit: an event must not be stamped with a version that is gone.
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

/// What the configuration says of a topic is true also of the next one of its name. If the store cannot be told now, it is
/// at the next start: the topic is deleted all the same.
async fn configure(groups: &Groups, topic: &TopicName) {
    let Some(settings) = groups.base.options.topics.get(topic) else { return };
    groups.topics.settings.put(topic, Some(settings.clone()));
    let put = SettingsOp::Put(topic.clone(), settings.clone());
    if let Err(error) = groups.base.store.commit(Batch::new().with(put)).await {
        warn!(%topic, %error, "the configured settings of a deleted topic are not stored");
    }
}

/// Notes that any event of the topic may be of this version, as is true of a topic that begins anew. Said of one that
/// stays after all it does no harm.
async fn from_the_beginning(groups: &Groups, row: Row) -> Result<(), BusError> {
    let mut schema = SchemaRow::decode(&row.value)?;
    schema.end = Offset::ZERO;
    let value = schema.encode()?;
    let op = RowOp::Put { table: Table::Schemas, key: row.key, value, must_be_new: false };
    groups.base.store.commit(Batch::new().with(op)).await?;
    Ok(())
}

/// Ends the subscriptions to a topic. Until its owners have ended, they are in the way of another of its name.
async fn end_owners(groups: &Groups, topic: &TopicName) {
    for owner in groups.owners.all().into_iter().filter(|owner| owner.topic == *topic) {
        let (answer, ended) = oneshot::channel();
        if owner.mailbox.send_now(OwnerMessage::TopicDeleted(answer)).is_ok() {
            // Whatever the answer, it has ended.
            let _ = ended.await;
        }
    }
}
