//! Small families of keys: settings of topics, dedupe marks, rows of small tables, the outbox.

use promethean_model::EventId;

use super::super::keys::counter::StateCounter;
use super::super::keys::{dedupe, outbox, row, settings};
use super::super::{StagedState, StateSpace, View, read};
use super::take_number;
use crate::port::{
    CommitError, DedupeForget, DedupeMark, OutboxOp, OutboxRow, OutboxStatus, RowOp, SettingsOp,
};

/// The longest error text that an outbox row keeps.
const ERROR_CHARS_MAX: usize = 1000;

/// Replaces or removes the settings of a topic.
pub(super) fn apply_settings(staged: &mut StagedState<'_>, op: &SettingsOp) -> Result<(), CommitError> {
    match op {
        SettingsOp::Put(topic, value) => {
            staged.put(StateSpace::Meta, settings::key(topic), settings::value(value)?);
        }
        SettingsOp::Delete(topic) => staged.delete(StateSpace::Meta, settings::key(topic)),
    }
    Ok(())
}

/// Writes or removes a row of a small table.
pub(super) fn apply_row(staged: &mut StagedState<'_>, op: &RowOp) -> Result<(), CommitError> {
    match op {
        RowOp::Put { table, key, value, must_be_new } => {
            let key = row::key(*table, key);
            if *must_be_new && staged.get(StateSpace::Meta, &key)?.is_some() {
                return Err(CommitError::RowExists);
            }
            staged.put(StateSpace::Meta, key, value.clone());
        }
        RowOp::Delete { table, key } => staged.delete(StateSpace::Meta, row::key(*table, key)),
    }
    Ok(())
}

/// Marks an id as done, and replaces its earlier mark.
pub(super) fn mark(staged: &mut StagedState<'_>, mark: &DedupeMark) -> Result<(), CommitError> {
    let name = dedupe::name(&mark.scope, &mark.id);
    let key = dedupe::key(&name);
    let stored = staged.get(StateSpace::Dedupe, &key)?.map(|value| dedupe::decode(&value)).transpose()?;
    if let (Some(expires_at), Some(now)) = (stored, mark.unless_seen_at)
        && expires_at > now
    {
        return Err(CommitError::AlreadySeen { scope: mark.scope.clone(), id: mark.id.clone() });
    }
    if let Some(expires_at) = stored {
        staged.delete(StateSpace::Dedupe, dedupe::expiry_key(expires_at, &name));
    }
    staged.put(StateSpace::Dedupe, dedupe::expiry_key(mark.expires_at, &name), Vec::new());
    staged.put(StateSpace::Dedupe, key, dedupe::value(mark.expires_at));
    Ok(())
}

/// Removes the mark of an id.
pub(super) fn forget(staged: &mut StagedState<'_>, mark: &DedupeForget) -> Result<(), CommitError> {
    let name = dedupe::name(&mark.scope, &mark.id);
    let key = dedupe::key(&name);
    if let Some(value) = staged.get(StateSpace::Dedupe, &key)? {
        staged.delete(StateSpace::Dedupe, dedupe::expiry_key(dedupe::decode(&value)?, &name));
        staged.delete(StateSpace::Dedupe, key);
    }
    Ok(())
}

/// Adds, changes or removes a row of the outbox.
pub(super) fn apply_outbox(staged: &mut StagedState<'_>, op: &OutboxOp) -> Result<(), CommitError> {
    match op {
        OutboxOp::Add { id, ts, topic, key, meta, payload } => {
            let row = OutboxRow {
                seq: 0,
                id: *id,
                status: OutboxStatus::Pending,
                ts: *ts,
                topic: topic.clone(),
                key: key.clone(),
                meta: meta.clone(),
                payload: payload.clone(),
                error: None,
            };
            add_to_outbox(staged, row)
        }
        OutboxOp::Status { id, status, error } => {
            let row = outbox_row(staged, *id)?.ok_or(CommitError::UnknownOutboxRow { id: *id })?;
            let error = error.as_ref().map(|error| error.chars().take(ERROR_CHARS_MAX).collect());
            staged.delete(StateSpace::Meta, outbox::status_key(row.status, row.seq));
            write_to_outbox(staged, &OutboxRow { status: *status, error, ..row });
            Ok(())
        }
        OutboxOp::Delete { id } => {
            if let Some(row) = outbox_row(staged, *id)? {
                staged.delete(StateSpace::Meta, outbox::key(row.seq));
                staged.delete(StateSpace::Meta, outbox::status_key(row.status, row.seq));
                staged.delete(StateSpace::Meta, outbox::id_key(*id));
            }
            Ok(())
        }
    }
}

fn add_to_outbox(staged: &mut StagedState<'_>, row: OutboxRow) -> Result<(), CommitError> {
    if let Some(there) = outbox_row(staged, row.id)? {
        let same = there.topic == row.topic
            && there.key == row.key
            && there.meta == row.meta
            && there.payload == row.payload;
        return if same { Ok(()) } else { Err(CommitError::OutboxConflict { id: row.id }) };
    }
    let seq = take_number(staged, StateCounter::NextOutbox)?;
    staged.put(StateSpace::Meta, outbox::id_key(row.id), outbox::id_value(seq));
    write_to_outbox(staged, &OutboxRow { seq, ..row });
    Ok(())
}

fn write_to_outbox(staged: &mut StagedState<'_>, row: &OutboxRow) {
    staged.put(StateSpace::Meta, outbox::key(row.seq), outbox::value(row));
    staged.put(StateSpace::Meta, outbox::status_key(row.status, row.seq), Vec::new());
}

fn outbox_row(staged: &StagedState<'_>, id: EventId) -> Result<Option<OutboxRow>, CommitError> {
    Ok(read::outbox_row(staged, id)?)
}
