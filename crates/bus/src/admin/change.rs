//! Pausing, seeking and deleting groups.

use promethean_model::{GroupName, Offset, OffsetRange, TopicName};
use promethean_store::port::{Batch, CursorOp, RowOp, StateOp, Table};
use serde::Serialize;
use tokio::sync::oneshot;

use super::find::{ROWS_PAGE, ask_owner, group_on, group_rows};
use crate::bus::Bus;
use crate::delivery::codec::decode_finished;
use crate::delivery::types::Input;
use crate::error::BusError;
use crate::group::{Ask, Command, Wanted};
use crate::pattern::Subject;
use crate::rows::{GroupKey, GroupRow, Start, group_prefix, topic_prefix};
use crate::subscribe::{floor_of, require_group};

/// What a seek does, or would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SeekReport {
    /// The floor before.
    pub from: Offset,
    /// The floor after.
    pub to: Offset,
    /// Events that are finished and will be delivered again.
    pub replayed: u64,
    /// Events that are not finished and will not be delivered.
    pub skipped: u64,
    /// Whether it was done.
    pub applied: bool,
}

impl Bus {
    /// Moves a group to another place of a topic. Everything below is finished, nothing above; what is in flight is
    /// taken back. A dry run only says what would happen.
    pub async fn seek(
        &self,
        topic: &TopicName,
        group: &GroupName,
        to: Start,
        dry_run: bool,
    ) -> Result<SeekReport, BusError> {
        let core = &self.core;
        let (_, row) = group_on(core, group, topic).await?;
        let to = floor_of(core, group, topic, to).await?;
        let report = self.seek_report(topic, group, to).await?;
        if dry_run {
            return Ok(report);
        }
        let wanted = Wanted { topic: topic.clone(), group: group.clone(), row };
        ask_owner(core, &wanted, |answer| Command::Ask(Ask::Seek(to), answer)).await?;
        Ok(SeekReport { applied: true, ..report })
    }

    async fn seek_report(
        &self,
        topic: &TopicName,
        group: &GroupName,
        to: Offset,
    ) -> Result<SeekReport, BusError> {
        let cursor = self.core.store.cursor(group, topic).await?.unwrap_or_default();
        let mut finished = decode_finished(&cursor.data, cursor.floor)
            .map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
        finished.push(OffsetRange::new(Offset::ZERO, cursor.floor));
        let count = |part: OffsetRange| -> u64 {
            finished.iter().map(|range| range.intersect(&part)).map(|both| both.len()).sum()
        };
        let replayed = count(OffsetRange::new(to, Offset::MAX));
        let below = OffsetRange::new(Offset::ZERO, to);
        let skipped = below.len() - count(below);
        Ok(SeekReport { from: cursor.floor, to, replayed, skipped, applied: false })
    }

    /// Delivers nothing to a group until it is resumed, also over restarts.
    pub async fn pause_group(&self, subject: &Subject, group: &GroupName) -> Result<(), BusError> {
        self.set_paused(subject, group, true).await
    }

    /// Delivers to a group again.
    pub async fn resume_group(&self, subject: &Subject, group: &GroupName) -> Result<(), BusError> {
        self.set_paused(subject, group, false).await
    }

    async fn set_paused(&self, subject: &Subject, group: &GroupName, paused: bool) -> Result<(), BusError> {
        let core = &self.core;
        let _lock = core.members.lock(group).await;
        let row = GroupRow { paused, ..require_group(core, group, subject).await? };
        let key = GroupKey::encode(group, subject);
        let op = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: false };
        core.store.commit(Batch::new().with(op)).await?;
        for owner in core.owners.all() {
            if owner.group == *group && subject.matches(&owner.topic) {
                let input = if paused { Input::Pause(None) } else { Input::Resume(None) };
                // One that has ended reads the row when it starts again.
                let _ = owner.mailbox.send_now(Command::Tell(input));
            }
        }
        Ok(())
    }

    /// Deletes a group that nobody is a member of: options, cursors, attempts and open dead letters. Letters in the
    /// dead-letter topic stay.
    pub async fn delete_group(&self, subject: &Subject, group: &GroupName) -> Result<(), BusError> {
        let core = &self.core;
        let _lock = core.members.lock(group).await;
        require_group(core, group, subject).await?;
        let members = core.members.count(&(group.clone(), subject.clone()));
        if members > 0 {
            return Err(BusError::GroupBusy { group: group.clone(), members });
        }
        let cursors = core.store.cursors_of_group(group).await?;
        // A topic that the group reaches by another name or pattern too stays that one's.
        let others: Vec<Subject> = group_rows(core, &group_prefix(group))
            .await?
            .into_iter()
            .map(|(key, _)| key.subject)
            .filter(|other| other != subject)
            .collect();
        let alone =
            |topic: &TopicName| subject.matches(topic) && !others.iter().any(|other| other.matches(topic));
        let topics: Vec<TopicName> = cursors.into_iter().map(|cursor| cursor.topic).filter(alone).collect();
        for topic in &topics {
            self.retire(topic, group).await?;
        }
        let mut batch = Batch::new();
        let key = GroupKey::encode(group, subject);
        batch.state.push(RowOp::Delete { table: Table::Groups, key }.into());
        for topic in topics {
            for table in [Table::Attempts, Table::DeadLetters] {
                self.add_row_deletes(table, &topic_prefix(group, &topic), &mut batch).await?;
            }
            core.letters.forget(&topic, Some(group));
            core.metrics.forget_group(&topic, group);
            batch.state.push(CursorOp::Delete { group: group.clone(), topic, expected_epoch: None }.into());
        }
        core.store.commit(batch).await?;
        Ok(())
    }

    /// Ends the owner of a group without members.
    async fn retire(&self, topic: &TopicName, group: &GroupName) -> Result<(), BusError> {
        let Some(owner) = self.core.owners.get(topic, group) else { return Ok(()) };
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

    pub(super) async fn add_row_deletes(
        &self,
        table: Table,
        prefix: &[u8],
        batch: &mut Batch,
    ) -> Result<(), BusError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let rows = self.core.store.rows(table, prefix, after.as_deref(), ROWS_PAGE).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = Some(last.key.clone());
            let delete =
                |row: promethean_store::port::Row| StateOp::from(RowOp::Delete { table, key: row.key });
            batch.state.extend(rows.into_iter().map(delete));
        }
    }
}
