//! Reads from the store for the machine: the state of a group when an owner takes it over, and pages of
//! events.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use promethean_delivery::{
    Attempts, Input, LetterRef, Machine, MachineBounds, MachineConfig, SavedProgress, Scope, decode_finished,
};
use promethean_model::{Offset, OffsetRange, SystemSuffix};
use promethean_store::port::{Batch, Cursor, CursorOp, PageLimit, Table};

use super::closed_letters::existing;
use super::lookup::group_on;
use super::page_budget::{PagePermit, memory_max, memory_of};
use super::{ClaimOwner, Groups};
use crate::dead_letters::LetterRow;
use crate::error::BusError;
use crate::rows::{EventKey, GroupRow, decode_attempts, topic_prefix};

/// Rows read at once.
const ROWS_PAGE: usize = 1000;
/// How long acks may wait to be committed when their sender does not wait for an answer. So a stream of such
/// acks takes few commits instead of one for each.
const COMMIT_EVERY_MS: u64 = 5;
/// The bits of a first epoch. Together with [`SERIALS_PER_EPOCH_BITS`] they leave room for millions of later epochs.
const FIRST_EPOCH_MASK: u64 = (1 << 23) - 1;
/// The bits of a lease serial that count leases within one epoch.
const SERIALS_PER_EPOCH_BITS: u32 = 40;

/// The state of a group on a topic after it was taken over.
pub(super) struct Loaded {
    pub(super) machine: Machine,
    /// The cursor's epoch from now on; every write names it.
    pub(super) epoch: u64,
    pub(super) paused: bool,
}

/// Takes the group over on the owner's topic: from now on, the store refuses the writes of earlier owners.
pub(super) async fn load(groups: &Groups, owner: &ClaimOwner, row: &GroupRow) -> Result<Loaded, BusError> {
    let (topic, group) = (&owner.topic, &owner.group);
    let cursor = match groups.base.store.cursor(group, topic).await? {
        Some(cursor) => cursor,
        None => {
            // An existing group starts at offset 0 of a topic on which it has no cursor.
            group_on(groups, group, topic).await?;
            Cursor::default()
        }
    };
    let finished = decode_finished(&cursor.data, cursor.floor)
        .map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
    let epoch = if cursor.epoch == 0 { first_epoch() } else { cursor.epoch + 1 };
    let taken = Cursor { epoch, ..cursor.clone() };
    let take_over = CursorOp::Put {
        group: group.clone(),
        topic: topic.clone(),
        cursor: taken,
        expected_epoch: cursor.epoch,
    };
    groups.base.store.commit(Batch::new().with(take_over)).await?;
    // Read again, because the row given may be older than a pause. Every later pause reaches this owner as a
    // message.
    let paused = group_on(groups, group, topic).await?.1.paused;
    let letters = letters(groups, owner, cursor.floor, &finished).await?;
    let start = SavedProgress {
        floor: cursor.floor,
        attempts: attempts(groups, owner).await?,
        redriven: letters.redriven,
        unclosed: letters.unclosed,
        reopened: letters.reopened,
        finished,
        paused,
        first_serial: epoch << SERIALS_PER_EPOCH_BITS,
    };
    Ok(Loaded { machine: Machine::new(config(owner, row), start, groups.base.now()), epoch, paused })
}

/// The first epoch of a new cursor, drawn at random. A group that was deleted and created again so has other epochs
/// than before: the store refuses an owner of the deleted group that does not know of the deletion.
fn first_epoch() -> u64 {
    // The standard library draws the keys of its hash maps at random.
    1 + (RandomState::new().hash_one(0_u64) & FIRST_EPOCH_MASK)
}

fn config(owner: &ClaimOwner, row: &GroupRow) -> MachineConfig {
    let filter = row.options.filter.clone();
    MachineConfig {
        scope: Scope::everything(),
        filter: (!filter.is_empty()).then(|| Box::new(move |event: &_| filter.matches(event)) as _),
        order: row.options.order,
        partitions: row.options.partitions,
        max_attempts: row.options.max_attempts,
        dead_letters: owner.topic.system_suffix() != Some(SystemSuffix::Dlq),
        seed: owner.number,
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

/// The events with open letters that an owner must handle at its start.
#[derive(Default)]
struct LoadedLetters {
    /// Letters whose events are redriven.
    redriven: Vec<LetterRef>,
    /// Letters whose events a seek delivers again, but that it did not get to close.
    unclosed: Vec<LetterRef>,
    /// Redriven letters whose event is gone: they become open again.
    reopened: Vec<LetterRef>,
}

async fn letters(
    groups: &Groups,
    owner: &ClaimOwner,
    floor: Offset,
    finished: &[OffsetRange],
) -> Result<LoadedLetters, BusError> {
    // A redrive holds this lock until the owner has its message. So a letter that is read here may also come
    // as a message, but only before the first delivery, never after the ack.
    let _changing = groups.dead_letters.lock(&owner.topic, &owner.group).await;
    let is_finished = |offset: Offset| {
        let next = finished.partition_point(|range| range.end <= offset);
        offset < floor || finished.get(next).is_some_and(|range| range.contains(offset))
    };
    let (mut letters, mut unfinished) = (LoadedLetters::default(), Vec::new());
    each_row(groups, owner, Table::DeadLetters, |key, value| {
        let row = LetterRow::decode(value)?;
        let letter = LetterRef { offset: key.offset, redrives: row.redrives };
        match is_finished(key.offset) {
            true if row.redriving => letters.redriven.push(letter),
            true => {}
            false => unfinished.push((letter, row.redriving)),
        }
        Ok(())
    })
    .await?;
    let there = existing(groups, owner, unfinished.iter().map(|(letter, _)| letter.offset).collect()).await?;
    for (letter, redriving) in unfinished {
        // If the event is gone, its letter stays, as the only trace of it.
        match (there.binary_search(&letter.offset), redriving) {
            (Ok(_), true) => letters.redriven.push(letter),
            (Ok(_), false) => letters.unclosed.push(letter),
            (Err(_), true) => letters.reopened.push(letter),
            (Err(_), false) => {}
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

/// Calls `each` for the rows of the owner's group and topic from an offset on, in offset order.
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
/// What an event may have beside its payload: its key, and its meta.
const KEY_AND_META_BYTES: usize = 64 << 10;

/// A page of events for the machine, and the permit for its memory. The permit is kept until the machine has taken
/// the page.
pub(super) struct PageRead {
    pub(super) input: Input,
    pub(super) permit: PagePermit,
}

/// A read of a page that failed.
pub(super) struct FailedRead {
    pub(super) request: u64,
    pub(super) error: BusError,
}

/// Reads a page of events for the machine. Waits until there is memory for it.
pub(super) async fn read_page(
    groups: Arc<Groups>,
    owner: Arc<ClaimOwner>,
    request: u64,
    from: Offset,
    limit: usize,
) -> Result<PageRead, FailedRead> {
    // A page holds one event at least, however large that is.
    let event_bytes = groups.base.options.limits.payload_bytes_max.saturating_add(KEY_AND_META_BYTES);
    let mut memory = memory_max(limit, event_bytes.max(PAGE_BYTES));
    loop {
        let mut permit = groups.pages.reserve(memory).await;
        let limit = PageLimit { events: limit, bytes: PAGE_BYTES };
        let page = groups.base.store.read(&owner.topic, from, limit).await;
        let page = page.map_err(|error| FailedRead { request, error: error.into() })?;
        memory = memory_of(&page.events);
        if permit.fit(memory) {
            let input = Input::Page { request, events: page.events, next: page.next, expired: page.expired };
            return Ok(PageRead { input, permit });
        }
        // An event that was published under a larger limit. The page is dropped, and read again when there is memory for
        // it.
    }
}
