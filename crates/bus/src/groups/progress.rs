//! What a machine wants committed, as one batch.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use promethean_delivery::{Attempts, Progress, encode_finished};
use promethean_model::Offset;
use promethean_store::port::{Batch, Cursor, CursorOp, PageLimit, RowOp, StateOp, StoredEvent, Table};

use super::load::each_row;
use super::{ClaimOwner, Groups, closed_letters};
use crate::dead_letters::{self, LetterRow};
use crate::error::BusError;
use crate::rows::{EventKey, encode_attempts};

/// What a commit came to.
#[derive(Debug)]
pub(super) struct CommitOutcome {
    pub(super) token: u64,
    /// If it is durable: letters that are to be closed, and are not yet.
    pub(super) result: Result<Vec<Offset>, BusError>,
}

/// A commit on its way.
pub(super) type Committing = Pin<Box<dyn Future<Output = CommitOutcome> + Send>>;

/// Commits progress under the epoch: all of it, or nothing if the group has another owner.
pub(super) fn commit(
    groups: &Arc<Groups>,
    owner: &Arc<ClaimOwner>,
    epoch: u64,
    progress: Progress,
) -> Committing {
    let groups = Arc::clone(groups);
    if is_cursor_only(&progress) {
        let cursor = cursor(owner, epoch, &progress);
        // By far the most, so it takes no more memory than it needs.
        return Box::pin(commit_cursor(groups, cursor, progress.token));
    }
    Box::pin(commit_all(groups, Arc::clone(owner), epoch, progress))
}

fn is_cursor_only(progress: &Progress) -> bool {
    // Every field is named, so that a new one cannot be forgotten.
    let Progress { token: _, floor: _, finished: _, failed, forget, dead, redriven, reopened, seek } =
        progress;
    let no_rows = failed.is_empty() && forget.is_empty() && dead.is_empty();
    no_rows && redriven.is_empty() && reopened.is_empty() && seek.is_none()
}

async fn commit_cursor(groups: Arc<Groups>, cursor: StateOp, token: u64) -> CommitOutcome {
    let began = groups.base.clock.monotonic_ms();
    let result = groups.committer.commit(Batch::new().with(cursor)).await.map_err(BusError::from);
    observe(&groups, began);
    CommitOutcome { token, result: result.map(|()| Vec::new()) }
}

fn observe(groups: &Groups, began: u64) {
    let took_ms = groups.base.clock.monotonic_ms().saturating_sub(began);
    groups.base.metrics.server().commit_us.observe(took_ms.saturating_mul(1000));
}

async fn commit_all(
    groups: Arc<Groups>,
    owner: Arc<ClaimOwner>,
    epoch: u64,
    progress: Progress,
) -> CommitOutcome {
    let token = progress.token;
    let began = groups.base.clock.monotonic_ms();
    let mut result = commit_batch(&groups, &owner, epoch, &progress, true).await;
    if let Err(BusError::TooLarge { .. } | BusError::TooManyTopics { .. } | BusError::KeyRequired { .. }) =
        &result
    {
        // The dead-letter topic takes no letter; the group must not wait for that for ever.
        result = commit_batch(&groups, &owner, epoch, &progress, false).await;
    }
    observe(&groups, began);
    CommitOutcome { token, result }
}

/// Rows of one commit of a seek, about.
pub(super) const STEP: usize = 500;

/// The letters that are left to be closed.
async fn commit_batch(
    groups: &Groups,
    owner: &ClaimOwner,
    epoch: u64,
    progress: &Progress,
    post: bool,
) -> Result<Vec<Offset>, BusError> {
    let mut batch = Batch::new();
    let cursor = cursor(owner, epoch, progress);
    let _changing = match closed_letters::are_changed(progress) {
        true => Some(groups.dead_letters.lock(&owner.topic, &owner.group).await),
        false => None,
    };
    let (mut opened, mut buried, mut expired) = (0, 0, 0);
    let mut rows = Rows { owner, ops: Vec::new() };
    let settled = closed_letters::close_settled(groups, owner, epoch, progress).await?;
    let sought = closed_letters::sought(groups, owner, progress.seek, &mut rows).await?;
    if progress.seek.is_some() {
        forget_attempts(groups, owner, epoch, &mut rows).await?;
    }
    for attempts in &progress.failed {
        rows.put(Table::Attempts, attempts.offset, encode_attempts(attempts));
    }
    progress.forget.iter().for_each(|offset| rows.delete(Table::Attempts, *offset));
    let (first, later) = sought.split_at(sought.len().min(STEP));
    settled.iter().chain(first).for_each(|offset| rows.delete(Table::DeadLetters, *offset));
    opened -= (settled.len() + first.len()) as i64;
    for offset in &progress.reopened {
        if let Some(row) = letter_at(groups, owner, *offset).await? {
            rows.put(Table::DeadLetters, *offset, row.reopened().encode());
        }
    }
    for attempts in &progress.dead {
        let before = letter_at(groups, owner, attempts.offset).await?;
        let redrives = before.map_or(0, |row| row.redrives);
        let (is_buried, is_gone) = if post {
            bury(groups, owner, attempts, before, &mut batch, &mut rows).await?
        } else {
            rows.delete(Table::Attempts, attempts.offset);
            rows.put(Table::DeadLetters, attempts.offset, LetterRow::open(None, attempts, redrives).encode());
            (true, false)
        };
        expired += u64::from(is_gone);
        buried += u64::from(is_buried);
        opened += i64::from(is_buried) - i64::from(before.is_some());
    }
    batch.state = rows.ops;
    batch.state.push(cursor.clone());
    match batch.events.is_empty() {
        true => groups.committer.commit(batch).await?,
        false => _ = groups.base.store.commit(batch).await?,
    }
    groups.dead_letters.add(&owner.topic, &owner.group, opened);
    owner.metrics.dead_lettered.add(buried);
    owner.metrics.expired.add(expired);
    closed_letters::close_later(groups, owner, later, &cursor).await
}

/// Forgets every noted attempt. All of it, and what is in `rows` already, is as true before the seek as after it, but for
/// failures that nobody will ask for any more; so what is too much for its commit is committed here.
async fn forget_attempts(
    groups: &Groups,
    owner: &ClaimOwner,
    epoch: u64,
    rows: &mut Rows<'_>,
) -> Result<(), BusError> {
    let mut noted = Vec::new();
    each_row(groups, owner, Table::Attempts, |key, _| {
        noted.push(key.offset);
        Ok(())
    })
    .await?;
    noted.into_iter().for_each(|offset| rows.delete(Table::Attempts, offset));
    let last = rows.ops.split_off(rows.ops.len().saturating_sub(STEP));
    let before = std::mem::replace(&mut rows.ops, last);
    in_steps(groups, &before, &stored_cursor(groups, owner, epoch).await?).await
}

/// Commits changes a step at a time, each with the cursor as it is then: refused if the group has another owner.
pub(super) async fn in_steps(groups: &Groups, ops: &[StateOp], cursor: &StateOp) -> Result<(), BusError> {
    for step in ops.chunks(STEP) {
        let batch = Batch { state: step.to_vec(), ..Batch::new() };
        groups.committer.commit(batch.with(cursor.clone())).await?;
    }
    Ok(())
}

/// The cursor as it is stored, put again under the owner's epoch.
pub(super) async fn stored_cursor(
    groups: &Groups,
    owner: &ClaimOwner,
    epoch: u64,
) -> Result<StateOp, BusError> {
    let (group, topic) = (owner.group.clone(), owner.topic.clone());
    let stored = groups.base.store.cursor(&group, &topic).await?.unwrap_or_default();
    let cursor = Cursor { epoch, ..stored };
    Ok(CursorOp::Put { group, topic, cursor, expected_epoch: epoch }.into())
}

fn cursor(owner: &ClaimOwner, epoch: u64, progress: &Progress) -> StateOp {
    let data = encode_finished(&progress.finished, progress.floor);
    CursorOp::Put {
        group: owner.group.clone(),
        topic: owner.topic.clone(),
        cursor: Cursor { floor: progress.floor, epoch, data },
        expected_epoch: epoch,
    }
    .into()
}

/// Adds a dead letter; whether there is one, and whether the event is gone. An event that retention took in the meantime
/// leaves none but the one it had before.
async fn bury(
    groups: &Groups,
    owner: &ClaimOwner,
    attempts: &Attempts,
    before: Option<LetterRow>,
    batch: &mut Batch,
    rows: &mut Rows<'_>,
) -> Result<(bool, bool), BusError> {
    let redrives = before.map_or(0, |row| row.redrives);
    rows.delete(Table::Attempts, attempts.offset);
    match event_at(groups, owner, attempts.offset).await {
        // Other events must not wait for one that cannot be read; what is known of it stays visible.
        Err(BusError::CorruptRange { .. }) => {
            rows.put(Table::DeadLetters, attempts.offset, LetterRow::open(None, attempts, redrives).encode());
            Ok((true, false))
        }
        Err(error) => Err(error),
        Ok(Some(event)) => {
            let (letter, row) = dead_letters::post(&owner.group, &event, attempts, redrives)?;
            batch.events.extend(letter);
            rows.put(Table::DeadLetters, attempts.offset, row.encode());
            Ok((true, false))
        }
        Ok(None) => {
            if let Some(before) = before {
                let row = LetterRow::open(before.letter, attempts, redrives);
                rows.put(Table::DeadLetters, attempts.offset, row.encode());
            }
            Ok((before.is_some(), true))
        }
    }
}

pub(super) async fn letter_at(
    groups: &Groups,
    owner: &ClaimOwner,
    offset: Offset,
) -> Result<Option<LetterRow>, BusError> {
    let key = EventKey::encode(&owner.group, &owner.topic, offset);
    let row = groups.base.store.row(Table::DeadLetters, &key).await?;
    Ok(row.map(|row| LetterRow::decode(&row)).transpose()?)
}

async fn event_at(
    groups: &Groups,
    owner: &ClaimOwner,
    offset: Offset,
) -> Result<Option<StoredEvent>, BusError> {
    let page = groups.base.store.read(&owner.topic, offset, PageLimit { events: 1, bytes: 1 }).await?;
    Ok(page.events.into_iter().next().filter(|event| event.offset == offset))
}

/// Changes of rows of the owner's group and topic.
pub(super) struct Rows<'a> {
    pub(super) owner: &'a ClaimOwner,
    pub(super) ops: Vec<StateOp>,
}

impl Rows<'_> {
    pub(super) fn put(&mut self, table: Table, offset: Offset, value: Vec<u8>) {
        let key = EventKey::encode(&self.owner.group, &self.owner.topic, offset);
        self.ops.push(RowOp::Put { table, key, value, must_be_new: false }.into());
    }

    pub(super) fn delete(&mut self, table: Table, offset: Offset) {
        let key = EventKey::encode(&self.owner.group, &self.owner.topic, offset);
        self.ops.push(RowOp::Delete { table, key }.into());
    }
}
