//! From what the store keeps of a group to a machine that goes on from there.

use promethean_model::{Offset, OffsetRange, SystemSuffix};
use promethean_store::port::{Batch, Cursor, CursorOp, Table};

use super::Owner;
use super::progress::is_there;
use crate::admin::group_on;
use crate::core::Core;
use crate::delivery::codec::decode_finished;
use crate::delivery::types::{Attempts, Scope};
use crate::delivery::{Bounds, Config, Machine, Start};
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
    let start = Start {
        floor: cursor.floor,
        attempts: attempts(core, owner).await?,
        redriven: redriven(core, owner, cursor.floor, &finished).await?,
        finished,
        paused,
        first_serial: epoch << SERIALS_PER_EPOCH_BITS,
    };
    Ok(Loaded { machine: Machine::new(config(owner, row, epoch), start, core.now()), epoch, paused })
}

fn config(owner: &Owner, row: &GroupRow, seed: u64) -> Config {
    let filter = row.options.filter.clone();
    Config {
        scope: Scope::everything(),
        filter: (!filter.is_empty()).then(|| Box::new(move |event: &_| filter.matches(event)) as _),
        order: row.options.order,
        partitions: row.options.partitions,
        max_attempts: row.options.max_attempts,
        dead_letters: owner.topic.system_suffix() != Some(SystemSuffix::Dlq),
        seed,
        commit_every_ms: COMMIT_EVERY_MS,
        bounds: Bounds::default(),
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

/// Events with a letter that are to be delivered: redriven ones, and those that a seek delivers again and whose letter it
/// could not close any more.
async fn redriven(
    core: &Core,
    owner: &Owner,
    floor: Offset,
    finished: &[OffsetRange],
) -> Result<Vec<Offset>, BusError> {
    // Whoever redrives holds it until the owner is told: what is read here it has been or will be told again, before
    // anything is delivered, and not once it is acked.
    let _changing = core.letters.lock(&owner.topic, &owner.group).await;
    let (mut found, mut unfinished) = (Vec::new(), Vec::new());
    each_row(core, owner, Table::DeadLetters, |key, value| {
        let is_finished = key.offset < floor || finished.iter().any(|range| range.contains(key.offset));
        if LetterRow::decode(value)?.redriving {
            found.push(key.offset);
        } else if !is_finished {
            unfinished.push(key.offset);
        }
        Ok(())
    })
    .await?;
    for offset in unfinished {
        // If it is gone, the letter is all that is left of it.
        if is_there(core, owner, offset).await? {
            found.push(offset);
        }
    }
    Ok(found)
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
