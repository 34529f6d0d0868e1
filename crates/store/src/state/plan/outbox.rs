//! Outbox rows.

use promethean_model::EventId;

use super::super::keys::counter::Counter;
use super::super::keys::outbox;
use super::super::{Space, Staged};
use super::take_number;
use crate::port::{CommitError, OutboxOp, OutboxRow, OutboxStatus};

/// What is kept of an error text.
const ERROR_CHARS_MAX: usize = 1000;

pub(super) fn apply(staged: &mut Staged<'_>, op: &OutboxOp) -> Result<(), CommitError> {
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
            add(staged, row)
        }
        OutboxOp::Status { id, status, error } => {
            let row = find(staged, *id)?.ok_or(CommitError::UnknownOutboxRow { id: *id })?;
            let error = error.as_ref().map(|error| error.chars().take(ERROR_CHARS_MAX).collect());
            staged.delete(Space::Meta, outbox::status_key(row.status, row.seq));
            write(staged, &OutboxRow { status: *status, error, ..row });
            Ok(())
        }
        OutboxOp::Delete { id } => {
            if let Some(row) = find(staged, *id)? {
                staged.delete(Space::Meta, outbox::key(row.seq));
                staged.delete(Space::Meta, outbox::status_key(row.status, row.seq));
                staged.delete(Space::Meta, outbox::id_key(*id));
            }
            Ok(())
        }
    }
}

fn add(staged: &mut Staged<'_>, row: OutboxRow) -> Result<(), CommitError> {
    if let Some(there) = find(staged, row.id)? {
        let same = there.topic == row.topic
            && there.key == row.key
            && there.meta == row.meta
            && there.payload == row.payload;
        return if same { Ok(()) } else { Err(CommitError::OutboxConflict { id: row.id }) };
    }
    let seq = take_number(staged, Counter::NextOutbox)?;
    staged.put(Space::Meta, outbox::id_key(row.id), outbox::id_value(seq));
    write(staged, &OutboxRow { seq, ..row });
    Ok(())
}

fn write(staged: &mut Staged<'_>, row: &OutboxRow) {
    staged.put(Space::Meta, outbox::key(row.seq), outbox::value(row));
    staged.put(Space::Meta, outbox::status_key(row.status, row.seq), Vec::new());
}

fn find(staged: &Staged<'_>, id: EventId) -> Result<Option<OutboxRow>, CommitError> {
    Ok(super::super::read::outbox_row(staged, id)?)
}
