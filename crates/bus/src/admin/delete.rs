//! Deleting topics and groups, a bounded step at a time.
//!
//! What can be deleted again comes last: a group's row says first that it is being deleted, and goes when all it noted has
//! gone; a topic goes after all that its groups noted. So a crash or a failure between two steps leaves something that
//! doing it again, or whoever comes next to a group, finishes.

use std::sync::Arc;

use promethean_delivery::Subject;
use promethean_model::{GroupName, Offset, TopicName};
use promethean_store::port::{
    Batch, CursorOp, DedupeForget, Row, RowOp, SettingsOp, StateOp, Table, TopicOp,
};
use tokio::sync::oneshot;
use tracing::warn;

use super::find::group_rows;
use crate::bus::Bus;
use crate::changing::{Closed, to_the_end};
use crate::core::Core;
use crate::error::BusError;
use crate::exactly_once::dedupe_scope;
use crate::group::Command;
use crate::rows::{GroupKey, GroupRow, SchemaKey, SchemaRow, group_prefix, topic_prefix};
use crate::schema::VERSIONS_MAX;
use crate::subscribe::stored_row;

/// Changes of one commit.
const STEP: usize = 500;

impl Bus {
    /// Deletes a group that nobody is a member of: options, cursors, attempts, marks of handled events and open dead
    /// letters. Letters in the dead-letter topic stay. Done to the end even if the caller stops waiting; if it fails
    /// half-way the group is gone for its users, and deleting it again removes the rest.
    pub async fn delete_group(&self, subject: &Subject, group: &GroupName) -> Result<(), BusError> {
        let (core, subject, group) = (Arc::clone(&self.core), subject.clone(), group.clone());
        to_the_end(&self.core, async move {
            let _lock = core.members.lock(&group).await;
            delete_group(&core, &subject, &group).await
        })
        .await
    }

    /// Deletes a topic with its events, settings, schemas, and groups with all they noted. Schemas that the configuration
    /// has stay, for the topic that may be born again. Its subscriptions end with `topic_deleted`, and so does subscribing
    /// to it meanwhile. Groups of patterns stay, and begin anew should the topic
    /// be born again. Done to the end even if the caller stops waiting; if it fails half-way the topic is there still.
    pub async fn delete_topic(&self, topic: &TopicName) -> Result<(), BusError> {
        let (bus, topic) = (self.clone(), topic.clone());
        to_the_end(&self.core, async move {
            let core = &bus.core;
            let _lock = core.changing.lock(&topic).await;
            bus.topic(&topic).await?;
            let closed = Closed::new(core, &topic, None).await;
            let result = delete_topic(core, &topic).await;
            drop(closed);
            // Members of patterns have forgotten it. If it is there still, or again, they must hear of it; not before
            // they may enter.
            if core.store.topic_info(&topic).await?.is_some() {
                // Nobody may be following patterns.
                let _ = core.births.send(topic.clone());
            }
            result
        })
        .await
    }
}

/// With the topic's gate closed.
async fn delete_topic(core: &Arc<Core>, topic: &TopicName) -> Result<(), BusError> {
    // Before we look: what they write while we look would stay.
    end_owners(core, topic).await;
    for cursor in core.store.cursors_of_topic(topic).await? {
        let group = &cursor.group;
        let _lock = core.members.lock(group).await;
        // Another topic of this name would inherit them.
        clear(core, topic, group).await?;
        let subject = Subject::Topic(topic.clone());
        // The row of a follower stays: it keeps consumers out also while the topic is away.
        if stored_row(core, group, &subject).await?.is_some_and(|row| !row.follower) {
            let key = GroupKey::encode(group, &subject);
            let mut batch = Batch::new().with(RowOp::Delete { table: Table::Groups, key });
            if topics_alone(core, &subject, group).await?.contains(topic) {
                // Or the topic's own commit would remove the cursors of all its groups.
                let (group, topic) = (group.clone(), topic.clone());
                batch = batch.with(CursorOp::Delete { group, topic, expected_epoch: None });
            }
            core.store.commit(batch).await?;
        }
    }
    let configured = core.schemas.configured(topic);
    let mut state: Vec<StateOp> = Vec::new();
    for row in core.store.rows(Table::Schemas, &SchemaKey::prefix(topic), None, VERSIONS_MAX).await? {
        if configured.contains(&SchemaKey::decode(&row.key)?.version) {
            from_the_beginning(core, row).await?;
        } else {
            state.push(RowOp::Delete { table: Table::Schemas, key: row.key }.into());
        }
    }
    // With its schemas, in one commit: half of the versions would be another history.
    state.push(TopicOp::Delete(topic.clone()).into());
    // Before the commit: what is stamped with a version that is gone would say something untrue.
    let known = core.schemas.get(topic);
    core.schemas.begin_anew(topic);
    if let Err(error) = core.store.commit(Batch { state, ..Batch::new() }).await {
        core.schemas.restore(topic, known);
        return Err(error.into());
    }
    core.letters.forget(topic, None);
    core.settings.put(topic, None);
    core.metrics.forget_topic(topic);
    configure(core, topic).await;
    Ok(())
}

/// What the configuration says of a topic is true also of the next one of its name. If the store cannot be told now, it is
/// at the next start: the topic is deleted all the same.
async fn configure(core: &Core, topic: &TopicName) {
    let Some(settings) = core.options.topics.get(topic) else { return };
    core.settings.put(topic, Some(settings.clone()));
    let put = SettingsOp::Put(topic.clone(), settings.clone());
    if let Err(error) = core.store.commit(Batch::new().with(put)).await {
        warn!(%topic, %error, "the configured settings of a deleted topic are not stored");
    }
}

/// Notes that any event of the topic may be of this version, as is true of a topic that begins anew. Said of one that
/// stays after all it does no harm.
async fn from_the_beginning(core: &Core, row: Row) -> Result<(), BusError> {
    let mut schema = SchemaRow::decode(&row.value)?;
    schema.end = Offset::ZERO;
    let value = schema.encode()?;
    let op = RowOp::Put { table: Table::Schemas, key: row.key, value, must_be_new: false };
    core.store.commit(Batch::new().with(op)).await?;
    Ok(())
}

/// Under the group's lock.
async fn delete_group(core: &Arc<Core>, subject: &Subject, group: &GroupName) -> Result<(), BusError> {
    let unknown = || BusError::UnknownGroup { group: group.clone(), subject: subject.to_string() };
    let row = stored_row(core, group, subject).await?.ok_or_else(unknown)?;
    if let Subject::Topic(topic) = subject
        && core.followers.get(group, topic).is_some()
    {
        return Err(BusError::ProjectorGroup { group: group.clone() });
    }
    let members = core.members.count(&(group.clone(), subject.clone()));
    if members > 0 {
        return Err(BusError::GroupBusy { group: group.clone(), members });
    }
    if let Subject::Topic(topic) = subject {
        core.store.hold(topic, group, None);
    }
    if !row.deleting {
        let mut gates = Vec::new();
        for topic in topics_alone(core, subject, group).await? {
            gates.push(Closed::new(core, &topic, Some(group)).await);
            retire(core, &topic, group).await?;
        }
        let (key, row) = (GroupKey::encode(group, subject), GroupRow { deleting: true, ..row });
        let op = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: false };
        core.store.commit(Batch::new().with(op)).await?;
    }
    finish_group(core, subject, group).await
}

/// Deletes what is left of a group whose row says that it is being deleted. Under the group's lock; there are no owners,
/// since nobody finds the row.
pub(super) async fn finish_group(
    core: &Arc<Core>,
    subject: &Subject,
    group: &GroupName,
) -> Result<(), BusError> {
    let mut cursors = Batch::new();
    for topic in topics_alone(core, subject, group).await? {
        clear(core, &topic, group).await?;
        core.letters.forget(&topic, Some(group));
        core.metrics.forget_group(&topic, group);
        cursors = cursors.with(CursorOp::Delete { group: group.clone(), topic, expected_epoch: None });
        if cursors.state.len() >= STEP {
            core.store.commit(std::mem::take(&mut cursors)).await?;
        }
    }
    let key = GroupKey::encode(group, subject);
    core.store.commit(cursors.with(RowOp::Delete { table: Table::Groups, key })).await?;
    Ok(())
}

/// The topics that the group has by this subject only: one that it reaches by another name or pattern too stays that
/// one's.
async fn topics_alone(core: &Core, subject: &Subject, group: &GroupName) -> Result<Vec<TopicName>, BusError> {
    let others = group_rows(core, &group_prefix(group)).await?.into_iter().map(|(key, _)| key.subject);
    let others: Vec<Subject> = others.filter(|other| other != subject).collect();
    let alone =
        |topic: &TopicName| subject.matches(topic) && !others.iter().any(|other| other.matches(topic));
    let cursors = core.store.cursors_of_group(group).await?;
    Ok(cursors.into_iter().map(|cursor| cursor.topic).filter(alone).collect())
}

/// Removes all that a group noted about the events of a topic, but for the cursor.
async fn clear(core: &Core, topic: &TopicName, group: &GroupName) -> Result<(), BusError> {
    let prefix = topic_prefix(group, topic);
    for table in [Table::Attempts, Table::DeadLetters] {
        loop {
            let _changing = core.letters.lock(topic, group).await;
            // From the first one each time: those before are gone.
            let rows = core.store.rows(table, &prefix, None, STEP).await?;
            if rows.is_empty() {
                break;
            }
            let count = rows.len() as i64;
            let delete = |row: Row| StateOp::from(RowOp::Delete { table, key: row.key });
            let batch = Batch { state: rows.into_iter().map(delete).collect(), ..Batch::new() };
            core.store.commit(batch).await?;
            if table == Table::DeadLetters {
                core.letters.add(&core.metrics, topic, group, -count);
            }
        }
    }
    let scope = dedupe_scope(topic, group);
    loop {
        let ids = core.store.marks(&scope, STEP).await?;
        if ids.is_empty() {
            return Ok(());
        }
        let forget = |id: String| StateOp::from(DedupeForget { scope: scope.clone(), id });
        let batch = Batch { state: ids.into_iter().map(forget).collect(), ..Batch::new() };
        core.store.commit(batch).await?;
    }
}

/// Ends the subscriptions to a topic. Until its owners have ended, they are in the way of another of its name.
async fn end_owners(core: &Core, topic: &TopicName) {
    for owner in core.owners.all().into_iter().filter(|owner| owner.topic == *topic) {
        let (answer, ended) = oneshot::channel();
        if owner.mailbox.send_now(Command::TopicDeleted(answer)).is_ok() {
            // Whatever the answer, it has ended.
            let _ = ended.await;
        }
    }
}

/// Ends the owner of a group without members.
async fn retire(core: &Core, topic: &TopicName, group: &GroupName) -> Result<(), BusError> {
    let Some(owner) = core.owners.get(topic, group) else { return Ok(()) };
    let (answer, answered) = oneshot::channel();
    if owner.mailbox.send_now(Command::Retire(answer)).is_err() {
        return Ok(());
    }
    match answered.await {
        // It ended by itself.
        Err(_) | Ok(Err(BusError::Closed)) => Ok(()),
        Ok(result) => result,
    }
}
