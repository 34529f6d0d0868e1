//! Letters that a commit closes.

use promethean_delivery::Progress;
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

/// Open letters that are settled: their redriven event is finished, or their event is delivered since a durable seek.
/// That is as true before the commit as after it. What is too much for it is closed here, before the cursor passes events
/// that would look like letters then; the rest is for the commit.
pub(super) async fn close_settled(
    groups: &Groups,
    owner: &ClaimOwner,
    epoch: u64,
    progress: &Progress,
) -> Result<Vec<Offset>, BusError> {
    let mut settled = Vec::new();
    // From a seek on, the seek closes them.
    for offset in progress.redriven.iter().filter(|offset| progress.seek.is_none_or(|to| **offset < to)) {
        if letter_at(groups, owner, *offset).await?.is_some() {
            settled.push(*offset);
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

/// Open letters whose event a seek delivers again. One whose event is gone is all that is left of it, and stays open, which
/// goes to `rows`.
pub(super) async fn sought(
    groups: &Groups,
    owner: &ClaimOwner,
    seek: Option<Offset>,
    rows: &mut Rows<'_>,
) -> Result<Vec<Offset>, BusError> {
    let Some(to) = seek else { return Ok(Vec::new()) };
    let mut above = Vec::new();
    each_row_from(groups, owner, Table::DeadLetters, to, |key, value| {
        above.push((key.offset, LetterRow::decode(value)?));
        Ok(())
    })
    .await?;
    let there = existing(groups, owner, above.iter().map(|(offset, _)| *offset).collect()).await?;
    let gone = above.iter().filter(|(offset, row)| row.redriving && there.binary_search(offset).is_err());
    gone.for_each(|(offset, row)| rows.put(Table::DeadLetters, *offset, row.reopened().encode()));
    Ok(there)
}

/// Closes letters beside a seek that is durable; those that are left. Whoever finds these open, after a crash, closes
/// them: their events are not finished.
pub(super) async fn close_later(
    groups: &Groups,
    owner: &ClaimOwner,
    mut later: &[Offset],
    cursor: &StateOp,
) -> Result<Vec<Offset>, BusError> {
    while !later.is_empty() {
        let (step, rest) = later.split_at(later.len().min(STEP));
        match close(groups, owner, step, cursor).await {
            Ok(()) => later = rest,
            Err(error) if error.is_final() => return Err(error),
            Err(error) => {
                warn!(topic = %owner.topic, group = %owner.group, %error, "dead letters are closed later");
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

/// Those of these ascending offsets whose event the topic has and can read.
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
