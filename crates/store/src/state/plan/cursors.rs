//! Cursors: the epoch decides which owner may write.

use promethean_model::{GroupName, TopicName};

use super::super::keys::cursor;
use super::super::{StagedState, StateSpace, View};
use super::TopicLookup;
use super::topics::coming_end;
use crate::port::{CommitError, CursorOp};

pub(super) fn apply(
    staged: &mut StagedState<'_>,
    op: &CursorOp,
    topics: &dyn TopicLookup,
) -> Result<(), CommitError> {
    match op {
        CursorOp::Put { group, topic, cursor, expected_epoch } => {
            fence(staged, group, topic, *expected_epoch)?;
            let end = coming_end(staged, topic, topics)?;
            if cursor.floor > end {
                let (group, topic) = (group.clone(), topic.clone());
                return Err(CommitError::BeyondEnd { group, topic, floor: cursor.floor, end });
            }
            if cursor.epoch < *expected_epoch {
                // A lower epoch would let earlier owners write again.
                return Err(fenced(group, topic, cursor.epoch, *expected_epoch));
            }
            staged.put(StateSpace::Meta, cursor::key(group, topic), cursor::value(cursor));
        }
        CursorOp::Delete { group, topic, expected_epoch } => {
            if let Some(expected) = expected_epoch {
                fence(staged, group, topic, *expected)?;
            }
            staged.delete(StateSpace::Meta, cursor::key(group, topic));
        }
    }
    Ok(())
}

fn fence(
    staged: &StagedState<'_>,
    group: &GroupName,
    topic: &TopicName,
    expected: u64,
) -> Result<(), CommitError> {
    let stored = staged.get(StateSpace::Meta, &cursor::key(group, topic))?;
    let actual = stored.map_or(Ok(0), |value| cursor::decode(&value).map(|cursor| cursor.epoch))?;
    if actual == expected { Ok(()) } else { Err(fenced(group, topic, expected, actual)) }
}

fn fenced(group: &GroupName, topic: &TopicName, expected: u64, actual: u64) -> CommitError {
    CommitError::Fenced { group: group.clone(), topic: topic.clone(), expected, actual }
}
