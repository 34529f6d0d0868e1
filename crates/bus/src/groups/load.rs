//! From the store to the machine: the state of a group when it is taken over, and pages of events.

use std::sync::Arc;

use promethean_delivery::{
    Attempts, Input, Machine, MachineBounds, MachineConfig, SavedProgress, Scope, decode_finished,
};
use promethean_model::{Offset, OffsetRange, SystemSuffix};
use promethean_store::port::{Batch, Cursor, CursorOp, PageLimit, Table};

use super::closed_letters::existing;
use super::lookup::group_on;
use super::{ClaimOwner, Groups};
use crate::dead_letters::LetterRow;
use crate::error::BusError;
use crate::rows::{EventKey, GroupRow, decode_attempts, topic_prefix};

/// Rows read at once.
const ROWS_PAGE: usize = 1000;
/// How long acks that nobody waits for may wait to be committed: a stream of them takes a few commits, not one each.
const COMMIT_EVERY_MS: u64 = 5;
/// Lease numbers of one epoch.
const SERIALS_PER_EPOCH_BITS: u32 = 40;

/// A group taken over.
pub(super) struct Loaded {
    pub(super) machine: Machine,
    /// What the cursor's epoch is now; writes name it.
    pub(super) epoch: u64,
    pub(super) paused: bool,
}

/// Takes the group over on the owner's topic: from now on, what an earlier owner writes is refused.
pub(super) async fn load(groups: &Groups, owner: &ClaimOwner, row: &GroupRow) -> Result<Loaded, BusError> {
    let (topic, group) = (&owner.topic, &owner.group);
    let cursor = match groups.base.store.cursor(group, topic).await? {
        Some(cursor) => cursor,
        None => {
            // A group that is there begins a topic it has no cursor on at its beginning.
            group_on(groups, group, topic).await?;
            Cursor::default()
        }
    };
    let finished = decode_finished(&cursor.data, cursor.floor)
        .map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
    let taken = Cursor { epoch: cursor.epoch + 1, ..cursor.clone() };
    let epoch = taken.epoch;
    let take_over = CursorOp::Put {
        group: group.clone(),
        topic: topic.clone(),
        cursor: taken,
        expected_epoch: cursor.epoch,
    };
    groups.base.store.commit(Batch::new().with(take_over)).await?;
    // Read now that owners are told of changes: the row at hand may be older than a pause.
    let paused = group_on(groups, group, topic).await?.1.paused;
    let letters = letters(groups, owner, cursor.floor, &finished).await?;
    let start = SavedProgress {
        floor: cursor.floor,
        attempts: attempts(groups, owner).await?,
        redriven: letters.redriven,
        reopened: letters.reopened,
        finished,
        paused,
        first_serial: epoch << SERIALS_PER_EPOCH_BITS,
    };
    Ok(Loaded { machine: Machine::new(config(owner, row, epoch), start, groups.base.now()), epoch, paused })
}

fn config(owner: &ClaimOwner, row: &GroupRow, seed: u64) -> MachineConfig {
    let filter = row.options.filter.clone();
    MachineConfig {
        scope: Scope::everything(),
        filter: (!filter.is_empty()).then(|| Box::new(move |event: &_| filter.matches(event)) as _),
        order: row.options.order,
        partitions: row.options.partitions,
        max_attempts: row.options.max_attempts,
        dead_letters: owner.topic.system_suffix() != Some(SystemSuffix::Dlq),
        seed,
        commit_every_ms: COMMIT_EVERY_MS,
        bounds: MachineBounds::default(),
    }
}

async fn attempts(groups: &Groups, owner: &ClaimOwner) -> Result<Vec<Attempts>, BusError> {
    let mut found = Vec::new();
    each_row(groups, owner, Table::Attempts, |key, value| {
        found.push(decode_attempts(key.offset, value)?);
        Ok(())
    })
    .await?;
    Ok(found)
}

/// What an owner has to do about letters.
#[derive(Default)]
struct Letters {
    /// Their events are to be delivered: redriven ones, and those that a seek delivers again and whose letter it could not
    /// close any more.
    redriven: Vec<Offset>,
    /// Redriven ones whose event is gone.
    reopened: Vec<Offset>,
}

async fn letters(
    groups: &Groups,
    owner: &ClaimOwner,
    floor: Offset,
    finished: &[OffsetRange],
) -> Result<Letters, BusError> {
    // Whoever redrives holds it until the owner is told: what is read here it has been or will be told again, before
    // anything is delivered, and not once it is acked.
    let _changing = groups.dead_letters.lock(&owner.topic, &owner.group).await;
    let is_finished = |offset: Offset| {
        let next = finished.partition_point(|range| range.end <= offset);
        offset < floor || finished.get(next).is_some_and(|range| range.contains(offset))
    };
    let (mut letters, mut unfinished) = (Letters::default(), Vec::new());
    each_row(groups, owner, Table::DeadLetters, |key, value| {
        let redriving = LetterRow::decode(value)?.redriving;
        match is_finished(key.offset) {
            true if redriving => letters.redriven.push(key.offset),
            true => {}
            false => unfinished.push((key.offset, redriving)),
        }
        Ok(())
    })
    .await?;
    let there = existing(groups, owner, unfinished.iter().map(|(offset, _)| *offset).collect()).await?;
    for (offset, redriving) in unfinished {
        // If it is gone, the letter is all that is left of it.
        match there.binary_search(&offset) {
            Ok(_) => letters.redriven.push(offset),
            Err(_) if redriving => letters.reopened.push(offset),
            Err(_) => {}
        }
    }
    Ok(letters)
}

/// Calls `each` for the rows of the owner's group and topic, in offset order.
pub(super) async fn each_row(
    groups: &Groups,
    owner: &ClaimOwner,
    table: Table,
    each: impl FnMut(&EventKey, &[u8]) -> Result<(), BusError>,
) -> Result<(), BusError> {
    each_row_from(groups, owner, table, Offset::ZERO, each).await
}

/// The same from an offset on.
pub(super) async fn each_row_from(
    groups: &Groups,
    owner: &ClaimOwner,
    table: Table,
    from: Offset,
    mut each: impl FnMut(&EventKey, &[u8]) -> Result<(), BusError>,
) -> Result<(), BusError> {
    let prefix = topic_prefix(&owner.group, &owner.topic);
    let before = from.get().checked_sub(1).map(Offset);
    let mut after = before.map(|before| EventKey::encode(&owner.group, &owner.topic, before));
    loop {
        let rows = groups.base.store.rows(table, &prefix, after.as_deref(), ROWS_PAGE).await?;
        for row in &rows {
            each(&EventKey::decode(&row.key, "rows of a group")?, &row.value)?;
        }
        match rows.into_iter().last() {
            Some(last) => after = Some(last.key),
            None => return Ok(()),
        }
    }
}

/// Bytes of events read at once.
const PAGE_BYTES: usize = 1 << 20;

/// A read of a page that failed.
pub(super) struct FailedRead {
    pub(super) request: u64,
    pub(super) error: BusError,
}

/// Reads a page of events for the machine.
pub(super) async fn read_page(
    groups: Arc<Groups>,
    owner: Arc<ClaimOwner>,
    request: u64,
    from: Offset,
    limit: usize,
) -> Result<Input, FailedRead> {
    let limit = PageLimit { events: limit, bytes: PAGE_BYTES };
    let page = groups.base.store.read(&owner.topic, from, limit).await;
    let page = page.map_err(|error| FailedRead { request, error: error.into() })?;
    Ok(Input::Page { request, events: page.events, next: page.next, expired: page.expired })
}
