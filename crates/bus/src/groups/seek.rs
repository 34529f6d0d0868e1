//! Pausing and seeking groups.

use std::sync::Arc;

use promethean_delivery::{Input, Subject, decode_finished};
use promethean_model::{GroupName, Offset, OffsetRange, TopicName};
use promethean_store::port::{Batch, RowOp, Table};
use serde::Serialize;

use super::Groups;
use super::lookup::{ask_owner, group_on, require_group};
use super::message::{OwnerMessage, OwnerRequest};
use super::owner::WantedOwner;
use crate::error::BusError;
use crate::rows::{GroupKey, GroupRow, StartPosition};
use crate::topics::floor_of;

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

impl Groups {
    /// Moves a group to another place of a topic. Everything below is finished, nothing above; what is in flight is
    /// taken back. Open dead letters of events that are delivered again are closed; those below, and those whose event
    /// the topic no longer has, stay open. A dry run only says what would happen.
    pub(crate) async fn seek(
        self: &Arc<Self>,
        topic: &TopicName,
        group: &GroupName,
        to: StartPosition,
        dry_run: bool,
    ) -> Result<SeekReport, BusError> {
        let groups = self;
        let (_, row) = group_on(groups, group, topic).await?;
        row.open_to_consumers(group)?;
        let to = floor_of(&groups.topics, group, topic, to).await?;
        let report = self.seek_report(topic, group, to).await?;
        if dry_run {
            return Ok(report);
        }
        let wanted = WantedOwner { topic: topic.clone(), group: group.clone(), row };
        ask_owner(groups, &wanted, |answer| OwnerMessage::Request(OwnerRequest::Seek(to), answer)).await?;
        Ok(SeekReport { applied: true, ..report })
    }

    async fn seek_report(
        &self,
        topic: &TopicName,
        group: &GroupName,
        to: Offset,
    ) -> Result<SeekReport, BusError> {
        let cursor = self.base.store.cursor(group, topic).await?.unwrap_or_default();
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

    /// Pauses or resumes a group, also over restarts.
    pub(crate) async fn set_paused(
        self: &Arc<Self>,
        subject: &Subject,
        group: &GroupName,
        paused: bool,
    ) -> Result<(), BusError> {
        let (groups, subject, group) = (Arc::clone(self), subject.clone(), group.clone());
        let set = async move {
            let _lock = groups.locks.lock(&group).await;
            let row = require_group(&groups, &group, &subject).await?;
            row.open_to_consumers(&group)?;
            let row = GroupRow { paused, ..row };
            let key = GroupKey::encode(&group, &subject);
            let op = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: false };
            groups.base.store.commit(Batch::new().with(op)).await?;
            for owner in groups.owners.all() {
                if owner.group == group && subject.matches(&owner.topic) {
                    let input = if paused { Input::Pause(None) } else { Input::Resume(None) };
                    // One that has ended reads the row when it starts again.
                    let _ = owner.mailbox.send_now(OwnerMessage::Tell(input));
                }
            }
            Ok(())
        };
        self.base.run_to_end(set).await
    }
}
