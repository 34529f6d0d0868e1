//! Checks of a batch that need no state.

use super::super::keys::dedupe::MARK_BYTES_MAX;
use super::super::keys::doc::DOC_KEY_BYTES_MAX;
use crate::port::{
    AppendEvent, Batch, Class, CommitError, DocOp, OutboxOp, ROW_KEY_BYTES_MAX, RowOp, StateOp,
};

/// The longest key of an event or outbox row: the log keeps its length in 16 bits.
const EVENT_KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Refuses a batch that is wrong for every state.
pub(crate) fn check(batch: &Batch) -> Result<(), CommitError> {
    if batch.class == Class::Derived {
        check_derived(batch)?;
    }
    batch.events.iter().try_for_each(check_event)?;
    batch.state.iter().try_for_each(check_op)
}

/// Refuses an event that is wrong for every topic.
pub(crate) fn check_event(event: &AppendEvent) -> Result<(), CommitError> {
    let key = event.key.as_ref().map_or(0, String::len);
    within("an event's key, in bytes,", key, EVENT_KEY_BYTES_MAX)
}

fn check_derived(batch: &Batch) -> Result<(), CommitError> {
    if !batch.events.is_empty() || batch.has_expectations() {
        return Err(CommitError::DerivedWithEvents);
    }
    batch.state.iter().try_for_each(|op| {
        let what = match op {
            StateOp::Cursor(_) | StateOp::Doc(_) | StateOp::Collection(_) | StateOp::Row(_) => return Ok(()),
            StateOp::Dedupe(_) | StateOp::Forget(_) => "dedupe marks",
            StateOp::Settings(_) => "topic settings",
            StateOp::Topic(_) => "topics",
            StateOp::Outbox(_) => "the outbox",
        };
        Err(CommitError::NotDerivable { what })
    })
}

fn check_op(op: &StateOp) -> Result<(), CommitError> {
    match op {
        StateOp::Doc(DocOp::Put(put)) => {
            if put.key.is_empty() {
                return Err(CommitError::BadDocument {
                    collection: put.collection.clone(),
                    key: String::new(),
                    reason: "has an empty key; give it one".to_owned(),
                });
            }
            within("a document's key, in bytes,", put.key.len(), DOC_KEY_BYTES_MAX)
        }
        StateOp::Dedupe(mark) => {
            within("a dedupe scope, in bytes,", mark.scope.len(), MARK_BYTES_MAX)?;
            within("a dedupe id, in bytes,", mark.id.len(), MARK_BYTES_MAX)
        }
        StateOp::Forget(mark) => {
            within("a dedupe scope, in bytes,", mark.scope.len(), MARK_BYTES_MAX)?;
            within("a dedupe id, in bytes,", mark.id.len(), MARK_BYTES_MAX)
        }
        StateOp::Outbox(OutboxOp::Add { key, .. }) => {
            within("an event's key, in bytes,", key.as_ref().map_or(0, String::len), EVENT_KEY_BYTES_MAX)
        }
        StateOp::Row(RowOp::Put { key, .. }) => {
            within("a row's key, in bytes,", key.len(), ROW_KEY_BYTES_MAX)
        }
        _ => Ok(()),
    }
}

fn within(what: &'static str, size: usize, max: usize) -> Result<(), CommitError> {
    if size <= max {
        return Ok(());
    }
    Err(CommitError::TooLarge { what, size: size as u64, max: max as u64 })
}
