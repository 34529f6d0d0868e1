//! Pausing and seeking groups.

use std::sync::Arc;

use promethean_delivery::{Input, Subject, decode_finished};
use promethean_model::{GroupName, Offset, OffsetRange, TopicName};
use promethean_store::port::{Batch, RowOp, Table};
use serde::Serialize;

use super::find::{ask_owner, group_on};
use crate::bus::Bus;
use crate::changing::to_the_end;
use crate::error::BusError;
use crate::group::{Ask, Command, Wanted};
use crate::rows::{GroupKey, GroupRow, Start};
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
    /// taken back. Open dead letters of events that are delivered again are closed; those below, and those whose event
    /// the topic no longer has, stay open. A dry run only says what would happen.
    pub async fn seek(
        &self,
        topic: &TopicName,
        group: &GroupName,
        to: Start,
        dry_run: bool,
    ) -> Result<SeekReport, BusError> {
        let core = &self.core;
        let (_, row) = group_on(core, group, topic).await?;
        row.open_to_consumers(group)?;
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
        let (core, subject, group) = (Arc::clone(&self.core), subject.clone(), group.clone());
        to_the_end(&self.core, async move {
            let _lock = core.members.lock(&group).await;
            let row = require_group(&core, &group, &subject).await?;
            row.open_to_consumers(&group)?;
            let row = GroupRow { paused, ..row };
            let key = GroupKey::encode(&group, &subject);
            let op = RowOp::Put { table: Table::Groups, key, value: row.encode()?, must_be_new: false };
            core.store.commit(Batch::new().with(op)).await?;
            for owner in core.owners.all() {
                if owner.group == group && subject.matches(&owner.topic) {
                    let input = if paused { Input::Pause(None) } else { Input::Resume(None) };
                    // One that has ended reads the row when it starts again.
                    let _ = owner.mailbox.send_now(Command::Tell(input));
                }
            }
            Ok(())
        })
        .await
    }
}
