//! Deleting a group, a bounded step at a time.
//!
//! The first commit marks the group's row as being deleted, and the last removes the row, after all other
//! rows of the group. So after a crash or a failure between two steps the row is still there, and the
//! deletion is finished later: see `unfinished`.

use std::sync::Arc;

use promethean_delivery::Subject;
use promethean_model::{GroupName, TopicName};
use promethean_store::port::{Batch, CursorOp, DedupeForget, Row, RowOp, StateOp, Table};
use tokio::sync::oneshot;

use super::Groups;
use super::lookup::{group_rows, stored_row};
use super::message::OwnerMessage;
use crate::error::BusError;
use crate::rows::{GroupKey, GroupRow, dedupe_scope, group_prefix, topic_prefix};
use crate::topics::ClosedGate;

/// The most changes in one commit.
const CHANGES_MAX: usize = 500;

impl Groups {
    /// Deletes a group without members. Runs to its end even if the caller stops waiting.
    pub(crate) async fn delete(
        self: &Arc<Self>,
        subject: &Subject,
        group: &GroupName,
    ) -> Result<(), BusError> {
        let (groups, subject, group) = (Arc::clone(self), subject.clone(), group.clone());
        let delete = async move {
            let _lock = groups.locks.lock(&group).await;
            delete_group(&groups, &subject, &group).await
        };
        self.base.run_to_end(delete).await
    }
}

/// Called under the group's lock.
async fn delete_group(groups: &Arc<Groups>, subject: &Subject, group: &GroupName) -> Result<(), BusError> {
    let unknown = || BusError::UnknownGroup { group: group.clone(), subject: subject.to_string() };
    let row = stored_row(groups, group, subject).await?.ok_or_else(unknown)?;
    if let Subject::Topic(topic) = subject
        && groups.followers.get(group, topic).is_some()
    {
        return Err(BusError::ProjectorGroup { group: group.clone() });
    }
    let members = groups.entries.count(&(group.clone(), subject.clone()));
    if members > 0 {
        return Err(BusError::GroupBusy { group: group.clone(), members });
    }
    if let Subject::Topic(topic) = subject {
        groups.base.store.hold(topic, group, None);
    }
    if !row.deleting {
        let mut gates = Vec::new();
        for topic in topics_alone(groups, subject, group).await? {
            gates.push(ClosedGate::new(&groups.topics, &topic, Some(group)).await);
            retire(groups, &topic, group).await?;
        }
        let (key, row) = (GroupKey::encode(group, subject), GroupRow { deleting: true, ..row });
        let op = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: false };
        groups.base.store.commit(Batch::new().with(op)).await?;
    }
    finish_group(groups, subject, group).await
}

/// Deletes the rest of a group whose row is marked as being deleted. Called under the group's lock. No owner
/// runs, because lookups hide the row.
pub(super) async fn finish_group(
    groups: &Arc<Groups>,
    subject: &Subject,
    group: &GroupName,
) -> Result<(), BusError> {
    let mut cursors = Batch::new();
    for topic in topics_alone(groups, subject, group).await? {
        clear_notes(groups, &topic, group).await?;
        groups.dead_letters.forget(&topic, Some(group));
        groups.base.metrics.forget_group(&topic, group);
        cursors = cursors.with(CursorOp::Delete { group: group.clone(), topic, expected_epoch: None });
        if cursors.state.len() >= CHANGES_MAX {
            groups.base.store.commit(std::mem::take(&mut cursors)).await?;
        }
    }
    let key = GroupKey::encode(group, subject);
    groups.base.store.commit(cursors.with(RowOp::Delete { table: Table::Groups, key })).await?;
    Ok(())
}

/// The topics that the group reaches by this subject only. A topic that it also reaches by another subject
/// stays with that subject.
pub(crate) async fn topics_alone(
    groups: &Groups,
    subject: &Subject,
    group: &GroupName,
) -> Result<Vec<TopicName>, BusError> {
    let others = group_rows(groups, &group_prefix(group)).await?.into_iter().map(|(key, _)| key.subject);
    let others: Vec<Subject> = others.filter(|other| other != subject).collect();
    let alone =
        |topic: &TopicName| subject.matches(topic) && !others.iter().any(|other| other.matches(topic));
    let topics = match subject {
        Subject::Topic(topic) => vec![topic.clone()],
        Subject::Pattern(pattern) => groups.topics.matching(pattern).await?,
    };
    let mut found = Vec::new();
    for topic in topics.into_iter().filter(alone) {
        if groups.base.store.cursor(group, &topic).await?.is_some() {
            found.push(topic);
        }
    }
    Ok(found)
}

/// Removes a group's attempts, dead letters (open and closed) and dedupe marks on a topic. The cursor stays.
pub(crate) async fn clear_notes(
    groups: &Groups,
    topic: &TopicName,
    group: &GroupName,
) -> Result<(), BusError> {
    let prefix = topic_prefix(group, topic);
    for table in [Table::Attempts, Table::DeadLetters, Table::ClosedLetters] {
        loop {
            let _changing = groups.dead_letters.lock(topic, group).await;
            // Always from the first row: the rows before were deleted.
            let rows = groups.base.store.rows(table, &prefix, None, CHANGES_MAX).await?;
            if rows.is_empty() {
                break;
            }
            let count = rows.len() as i64;
            let delete = |row: Row| StateOp::from(RowOp::Delete { table, key: row.key });
            let batch = Batch { state: rows.into_iter().map(delete).collect(), ..Batch::new() };
            groups.base.store.commit(batch).await?;
            if table == Table::DeadLetters {
                groups.dead_letters.add(topic, group, -count);
            }
        }
    }
    let scope = dedupe_scope(topic, group);
    loop {
        let ids = groups.base.store.marks(&scope, CHANGES_MAX).await?;
        if ids.is_empty() {
            return Ok(());
        }
        let forget = |id: String| StateOp::from(DedupeForget { scope: scope.clone(), id });
        let batch = Batch { state: ids.into_iter().map(forget).collect(), ..Batch::new() };
        groups.base.store.commit(batch).await?;
    }
}

/// Ends the owner of a group without members.
async fn retire(groups: &Groups, topic: &TopicName, group: &GroupName) -> Result<(), BusError> {
    let Some(owner) = groups.owners.get(topic, group) else { return Ok(()) };
    let (answer, answered) = oneshot::channel();
    if owner.mailbox.send_now(OwnerMessage::Retire(answer)).is_err() {
        return Ok(());
    }
    match answered.await {
        // The owner ended by itself.
        Err(_) | Ok(Err(BusError::Closed)) => Ok(()),
        Ok(result) => result,
    }
}
