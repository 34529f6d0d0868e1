//! Closing the letters that a commit of progress settles.

use promethean_delivery::{LetterRef, Progress};
use promethean_model::Offset;
use promethean_store::port::{StateOp, Table};
use tracing::warn;

use super::load::each_row_from;
use super::progress::{Rows, STEP, in_steps, letter_at, stored_cursor};
use super::{ClaimOwner, Groups};
use crate::dead_letters::{LetterRow, Originals};
use crate::error::BusError;

pub(super) fn are_changed(progress: &Progress) -> bool {
    let Progress { dead, redriven, reopened, seek, .. } = progress;
    !(dead.is_empty() && redriven.is_empty() && reopened.is_empty() && seek.is_none())
}

/// Finds the open letters that are settled: their redriven event is finished, or an earlier durable seek
/// delivers their event again. They are settled before this commit as well as after it, so letters beyond the
/// bound of the commit are closed here at once, before the cursor passes their events: a finished event with
/// an open letter would count as dead. Returns the rest, for the commit to close. A letter that was redriven
/// since the machine decided on it stays open: its event is delivered once more.
pub(super) async fn close_settled(
    groups: &Groups,
    owner: &ClaimOwner,
    epoch: u64,
    progress: &Progress,
) -> Result<Vec<Offset>, BusError> {
    let mut settled = Vec::new();
    // Letters at or after the offset of a seek are closed by the seek.
    for known in progress.redriven.iter().filter(|known| progress.seek.is_none_or(|to| known.offset < to)) {
        let row = letter_at(groups, owner, known.offset).await?;
        if row.is_some_and(|row| row.redrives <= known.redrives) {
            settled.push(known.offset);
        }
    }
    let last = settled.split_off(settled.len().saturating_sub(STEP));
    if !settled.is_empty() {
        let cursor = stored_cursor(groups, owner, epoch).await?;
        for step in settled.chunks(STEP) {
            close(groups, owner, step, &cursor).await?;
        }
    }
    Ok(last)
}

/// Finds the open letters that a seek closes because it delivers their events again. A letter whose event is
/// gone stays open, as the only trace of it; if it was being redriven, `rows` gets the change that opens it
/// again.
pub(super) async fn closed_by_seek(
    groups: &Groups,
    owner: &ClaimOwner,
    seek: Option<Offset>,
    rows: &mut Rows<'_>,
) -> Result<Vec<LetterRef>, BusError> {
    let Some(to) = seek else { return Ok(Vec::new()) };
    let mut above = Vec::new();
    each_row_from(groups, owner, Table::DeadLetters, to, |key, value| {
        above.push((key.offset, LetterRow::decode(value)?));
        Ok(())
    })
    .await?;
    let there = existing(groups, owner, above.iter().map(|(offset, _)| *offset).collect()).await?;
    let gone = above.iter().filter(|(offset, row)| row.redriving && there.binary_search(offset).is_err());
    gone.for_each(|(offset, row)| rows.put(Table::DeadLetters, *offset, row.clone().reopened().encode()));
    above.retain(|(offset, _)| there.binary_search(offset).is_ok());
    Ok(above.into_iter().map(|(offset, row)| LetterRef { offset, redrives: row.redrives }).collect())
}

/// Closes letters after the commit of their seek, and returns the letters that it could not close. After a crash
/// the next owner finds these letters open, sees that their events are not finished, and closes them.
pub(super) async fn close_later(
    groups: &Groups,
    owner: &ClaimOwner,
    mut later: &[LetterRef],
    cursor: &StateOp,
) -> Result<Vec<LetterRef>, BusError> {
    while !later.is_empty() {
        let (step, rest) = later.split_at(later.len().min(STEP));
        let offsets: Vec<Offset> = step.iter().map(|letter| letter.offset).collect();
        match close(groups, owner, &offsets, cursor).await {
            Ok(()) => later = rest,
            Err(error) if error.is_final() => return Err(error),
            Err(error) => {
                let (topic, group) = (&owner.topic, &owner.group);
                warn!(%topic, %group, %error, "dead letters are not closed after a seek yet; trying again");
                break;
            }
        }
    }
    Ok(later.to_vec())
}

async fn close(
    groups: &Groups,
    owner: &ClaimOwner,
    step: &[Offset],
    cursor: &StateOp,
) -> Result<(), BusError> {
    let mut rows = Rows { owner, ops: Vec::new() };
    step.iter().for_each(|offset| rows.delete(Table::DeadLetters, *offset));
    in_steps(groups, &rows.ops, cursor).await?;
    groups.dead_letters.add(&owner.topic, &owner.group, -(step.len() as i64));
    Ok(())
}

/// Filters ascending offsets: keeps those whose event is in the topic and readable.
pub(super) async fn existing(
    groups: &Groups,
    owner: &ClaimOwner,
    offsets: Vec<Offset>,
) -> Result<Vec<Offset>, BusError> {
    let mut originals = Originals::new(&groups.base, &owner.topic, offsets.clone());
    let mut there = Vec::with_capacity(offsets.len());
    for offset in offsets {
        if originals.in_topic(offset).await?.is_some() {
            there.push(offset);
        }
    }
    Ok(there)
}
