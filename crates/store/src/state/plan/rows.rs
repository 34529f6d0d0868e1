//! Rows of small tables.

use super::super::keys::row;
use super::super::{Space, Staged, View};
use crate::port::{CommitError, RowOp};

pub(super) fn apply(staged: &mut Staged<'_>, op: &RowOp) -> Result<(), CommitError> {
    match op {
        RowOp::Put { table, key, value, must_be_new } => {
            let key = row::key(*table, key);
            if *must_be_new && staged.get(Space::Meta, &key)?.is_some() {
                return Err(CommitError::RowExists);
            }
            staged.put(Space::Meta, key, value.clone());
        }
        RowOp::Delete { table, key } => staged.delete(Space::Meta, row::key(*table, key)),
    }
    Ok(())
}
