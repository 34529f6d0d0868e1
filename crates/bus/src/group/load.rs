//! From what the store keeps of a group to a machine that goes on from there.

use promethean_delivery::{
    Attempts, Machine, MachineBounds, MachineConfig, SavedProgress, Scope, decode_finished,
};
use promethean_model::{Offset, OffsetRange, SystemSuffix};
use promethean_store::port::{Batch, Cursor, CursorOp, Table};

use super::Owner;
use super::letters::existing;
use crate::admin::group_on;
use crate::core::Core;
use crate::error::BusError;
use crate::rows::{EventKey, GroupRow, LetterRow, decode_attempts, topic_prefix};

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
pub(super) async fn load(core: &Core, owner: &Owner, row: &GroupRow) -> Result<Loaded, BusError> {
    let (topic, group) = (&owner.topic, &owner.group);
    let cursor = match core.store.cursor(group, topic).await? {
        Some(cursor) => cursor,
        None => {
            // A group that is there begins a topic it has no cursor on at its beginning.
            group_on(core, group, topic).await?;
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
    core.store.commit(Batch::new().with(take_over)).await?;
    // Read now that owners are told of changes: the row at hand may be older than a pause.
    let paused = group_on(core, group, topic).await?.1.paused;
    let letters = letters(core, owner, cursor.floor, &finished).await?;
    let start = SavedProgress {
        floor: cursor.floor,
        attempts: attempts(core, owner).await?,
        redriven: letters.redriven,
        reopened: letters.reopened,
        finished,
        paused,
        first_serial: epoch << SERIALS_PER_EPOCH_BITS,
    };
    Ok(Loaded { machine: Machine::new(config(owner, row, epoch), start, core.now()), epoch, paused })
}

fn config(owner: &Owner, row: &GroupRow, seed: u64) -> MachineConfig {
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

async fn attempts(core: &Core, owner: &Owner) -> Result<Vec<Attempts>, BusError> {
    let mut found = Vec::new();
    each_row(core, owner, Table::Attempts, |key, value| {
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
    core: &Core,
    owner: &Owner,
    floor: Offset,
    finished: &[OffsetRange],
) -> Result<Letters, BusError> {
    // Whoever redrives holds it until the owner is told: what is read here it has been or will be told again, before
    // anything is delivered, and not once it is acked.
    let _changing = core.letters.lock(&owner.topic, &owner.group).await;
    let is_finished = |offset: Offset| {
        let next = finished.partition_point(|range| range.end <= offset);
        offset < floor || finished.get(next).is_some_and(|range| range.contains(offset))
    };
    let (mut letters, mut unfinished) = (Letters::default(), Vec::new());
    each_row(core, owner, Table::DeadLetters, |key, value| {
        let redriving = LetterRow::decode(value)?.redriving;
        match is_finished(key.offset) {
            true if redriving => letters.redriven.push(key.offset),
            true => {}
            false => unfinished.push((key.offset, redriving)),
        }
        Ok(())
    })
    .await?;
    let there = existing(core, owner, unfinished.iter().map(|(offset, _)| *offset).collect()).await?;
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
    core: &Core,
    owner: &Owner,
    table: Table,
    each: impl FnMut(&EventKey, &[u8]) -> Result<(), BusError>,
) -> Result<(), BusError> {
    each_row_from(core, owner, table, Offset::ZERO, each).await
}

/// The same from an offset on.
pub(super) async fn each_row_from(
    core: &Core,
    owner: &Owner,
    table: Table,
    from: Offset,
    mut each: impl FnMut(&EventKey, &[u8]) -> Result<(), BusError>,
) -> Result<(), BusError> {
    let prefix = topic_prefix(&owner.group, &owner.topic);
    let before = from.get().checked_sub(1).map(Offset);
    let mut after = before.map(|before| EventKey::encode(&owner.group, &owner.topic, before));
    loop {
        let rows = core.store.rows(table, &prefix, after.as_deref(), ROWS_PAGE).await?;
        for row in &rows {
            each(&EventKey::decode(&row.key, "rows of a group")?, &row.value)?;
        }
        match rows.into_iter().last() {
            Some(last) => after = Some(last.key),
            None => return Ok(()),
        }
    }
}
