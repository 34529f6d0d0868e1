//! Commits the progress of a machine as one batch.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use promethean_delivery::{DeadEvent, LetterRef, Progress, encode_finished};
use promethean_model::{EventId, Offset};
use promethean_store::port::{Batch, Cursor, CursorOp, PageLimit, RowOp, StateOp, StoredEvent, Table};
use tokio::time::Instant;

use super::load::each_row;
use super::{ClaimOwner, Groups, closed_letters};
use crate::dead_letters::{self, LetterRow};
use crate::error::BusError;
use crate::rows::{EventKey, encode_attempts};

/// The most bytes of dead letters in one commit, unless a single letter is larger. They are in memory together,
/// and a commit must fit into a file of the journal.
const LETTERS_BYTES_MAX: usize = 8 << 20;

/// The result of a commit.
#[derive(Debug)]
pub(super) struct CommitOutcome {
    pub(super) token: u64,
    pub(super) result: Result<Committed, BusError>,
}

/// How far a commit went.
#[derive(Debug)]
pub(super) enum Committed {
    /// It is durable. These letters must still be closed.
    All(Vec<LetterRef>),
    /// Nothing is durable: together its letters are too large. The next commit may have this many.
    Split(usize),
}

/// A commit in flight.
pub(super) type Committing = Pin<Box<dyn Future<Output = CommitOutcome> + Send>>;

/// Commits progress under the epoch: all of it, or nothing if a later owner has taken the group over.
pub(super) fn commit(
    groups: &Arc<Groups>,
    owner: &Arc<ClaimOwner>,
    epoch: u64,
    progress: Progress,
) -> Committing {
    let groups = Arc::clone(groups);
    if is_cursor_only(&progress) {
        let cursor = cursor(owner, epoch, &progress);
        // Nearly all commits are of this kind, so their future is kept small.
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
    let began = Instant::now();
    let result = groups.committer.commit(Batch::new().with(cursor)).await.map_err(BusError::from);
    groups.base.metrics.committed(began);
    CommitOutcome { token, result: result.map(|()| Committed::All(Vec::new())) }
}

async fn commit_all(
    groups: Arc<Groups>,
    owner: Arc<ClaimOwner>,
    epoch: u64,
    progress: Progress,
) -> CommitOutcome {
    let token = progress.token;
    let began = Instant::now();
    let mut result = commit_batch(&groups, &owner, epoch, &progress, true).await;
    let half = progress.dead.len() / 2;
    match &result {
        // The store refuses one of the letters, or all of them together. In smaller commits only the letter
        // that cannot be stored loses its copy.
        Err(BusError::TooLarge { .. } | BusError::KeyRequired { .. }) if half > 0 => {
            result = Ok(Committed::Split(half));
        }
        // The dead-letter topic refuses the letter. The group must not wait for it forever, so only the row
        // is written.
        Err(BusError::TooLarge { .. } | BusError::TooManyTopics { .. } | BusError::KeyRequired { .. }) => {
            result = commit_batch(&groups, &owner, epoch, &progress, false).await;
        }
        _ => {}
    }
    groups.base.metrics.committed(began);
    CommitOutcome { token, result }
}

/// About the most rows in one commit of a seek.
pub(super) const STEP: usize = 500;

/// Commits progress, with letters to the dead-letter topic only if `post`.
async fn commit_batch(
    groups: &Groups,
    owner: &ClaimOwner,
    epoch: u64,
    progress: &Progress,
    post: bool,
) -> Result<Committed, BusError> {
    let mut batch = Batch::new();
    let cursor = cursor(owner, epoch, progress);
    let _changing = match closed_letters::are_changed(progress) {
        true => Some(groups.dead_letters.lock(&owner.topic, &owner.group).await),
        false => None,
    };
    let (mut opened, mut buried, mut expired) = (0, 0, 0);
    let mut rows = Rows { owner, ops: Vec::new() };
    let settled = closed_letters::close_settled(groups, owner, epoch, progress).await?;
    let closed_by_seek = closed_letters::closed_by_seek(groups, owner, progress.seek, &mut rows).await?;
    if progress.seek.is_some() {
        forget_attempts(groups, owner, epoch, &mut rows).await?;
    }
    for attempts in &progress.failed {
        rows.put(Table::Attempts, attempts.offset, encode_attempts(attempts));
    }
    progress.forget.iter().for_each(|offset| rows.delete(Table::Attempts, *offset));
    let (first, later) = closed_by_seek.split_at(closed_by_seek.len().min(STEP));
    let first = first.iter().map(|letter| letter.offset);
    let closed: Vec<Offset> = settled.into_iter().chain(first).collect();
    closed.iter().for_each(|offset| rows.delete(Table::DeadLetters, *offset));
    opened -= closed.len() as i64;
    for offset in &progress.reopened {
        if let Some(row) = letter_at(groups, owner, *offset).await? {
            rows.put(Table::DeadLetters, *offset, row.reopened().encode());
        }
    }
    for (n, dead) in progress.dead.iter().enumerate() {
        let before = letter_at(groups, owner, dead.attempts.offset).await?;
        let had_letter = before.is_some();
        let (is_buried, is_gone) = if post {
            bury(groups, owner, dead, before, &mut batch, &mut rows).await?
        } else {
            rows.delete(Table::Attempts, dead.attempts.offset);
            rows.bury(dead, before, None);
            (true, false)
        };
        if n > 0 && batch.bytes() > LETTERS_BYTES_MAX {
            return Ok(Committed::Split(n));
        }
        expired += u64::from(is_gone);
        buried += u64::from(is_buried);
        opened += i64::from(is_buried) - i64::from(had_letter);
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
    closed_letters::close_later(groups, owner, later, &cursor).await.map(Committed::All)
}

/// Adds the deletion of every stored attempt to `rows`. These changes, and the ones already in `rows`, may be
/// durable before the seek is: at worst the counts of failed attempts are lost early. So changes that do not
/// fit into the commit of the seek are committed here.
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

/// Commits changes a step at a time, each step with the cursor given, so that it is refused if a later owner
/// has taken the group over.
pub(super) async fn in_steps(groups: &Groups, ops: &[StateOp], cursor: &StateOp) -> Result<(), BusError> {
    for step in ops.chunks(STEP) {
        let batch = Batch { state: step.to_vec(), ..Batch::new() };
        groups.committer.commit(batch.with(cursor.clone())).await?;
    }
    Ok(())
}

/// An operation that writes the stored cursor again under the owner's epoch.
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

/// Adds a dead letter to the batch. Returns whether the event has a letter, and whether the event is gone. An
/// event that retention has removed gets no new letter; it keeps the one that it had before.
async fn bury(
    groups: &Groups,
    owner: &ClaimOwner,
    dead: &DeadEvent,
    before: Option<LetterRow>,
    batch: &mut Batch,
    rows: &mut Rows<'_>,
) -> Result<(bool, bool), BusError> {
    let offset = dead.attempts.offset;
    rows.delete(Table::Attempts, offset);
    match event_at(groups, owner, offset).await {
        // Other events must not wait for an unreadable event. Its row in the table of dead letters keeps it
        // visible.
        Err(BusError::CorruptRange { .. }) => {
            rows.bury(dead, before, None);
            Ok((true, false))
        }
        Err(error) => Err(error),
        Ok(Some(event)) => {
            let (letter, row) =
                dead_letters::post(&owner.group, &event, &dead.attempts, dead.redrives, dead.note.as_ref())?;
            batch.events.extend(letter);
            rows.bury(dead, before, row.letter);
            Ok((true, false))
        }
        Ok(None) => {
            let had_letter = before.is_some();
            if let Some(before) = before {
                let letter = before.letter;
                rows.bury(dead, Some(before), letter);
            }
            Ok((had_letter, true))
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

/// Collects changes of rows of the owner's group and topic.
pub(super) struct Rows<'a> {
    pub(super) owner: &'a ClaimOwner,
    pub(super) ops: Vec<StateOp>,
}

impl Rows<'_> {
    pub(super) fn put(&mut self, table: Table, offset: Offset, value: Vec<u8>) {
        let key = EventKey::encode(&self.owner.group, &self.owner.topic, offset);
        self.ops.push(RowOp::Put { table, key, value, must_be_new: false }.into());
    }

    /// Puts the row of an event that died. A redrive that came after the death goes on: the owner has the
    /// message about it, or finds it in the row after a crash.
    fn bury(&mut self, dead: &DeadEvent, before: Option<LetterRow>, letter: Option<EventId>) {
        let redrives = before.as_ref().map_or(dead.redrives, |row| row.redrives);
        let row = LetterRow::open(letter, &dead.attempts, redrives, dead.note.clone());
        let goes_on = before.is_some_and(|row| row.redriving && row.redrives > dead.redrives);
        let row = if goes_on { row.kept_redriving() } else { row };
        self.put(Table::DeadLetters, dead.attempts.offset, row.encode());
    }

    pub(super) fn delete(&mut self, table: Table, offset: Offset) {
        let key = EventKey::encode(&self.owner.group, &self.owner.topic, offset);
        self.ops.push(RowOp::Delete { table, key }.into());
    }
}
