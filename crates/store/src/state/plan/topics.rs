//! Topics: their creation and deletion in the state. A deletion removes settings and cursors too, so that a topic created
//! later under the same name starts afresh.

use promethean_model::{Offset, TopicName};

use super::super::keys::topic_intent::{self, TopicIntent};
use super::super::keys::{cursor, settings};
use super::super::{Flow, RowSpan, StagedState, StateSpace, View, read};
use super::TopicLookup;
use crate::port::{CommitError, TopicOp};

pub(super) fn apply(
    staged: &mut StagedState<'_>,
    op: &TopicOp,
    topics: &dyn TopicLookup,
) -> Result<(), CommitError> {
    match op {
        TopicOp::Create(topic) => intend(staged, topic, topics, |intent| intent.create = true),
        TopicOp::Delete(topic) => {
            let mut cursors = Vec::new();
            staged.scan(StateSpace::Meta, RowSpan::of(&cursor::topic_prefix(topic)), &mut |key, _| {
                cursors.push(key.to_vec());
                Ok(Flow::Continue(()))
            })?;
            cursors.into_iter().for_each(|key| staged.delete(StateSpace::Meta, key));
            staged.delete(StateSpace::Meta, settings::key(topic));
            let number = topics.number(topic);
            intend(staged, topic, topics, |intent| *intent = TopicIntent { delete: number, create: false })
        }
    }
}

/// Notes a change that the log must make, together with earlier notes of the same batch.
fn intend(
    staged: &mut StagedState<'_>,
    topic: &TopicName,
    topics: &dyn TopicLookup,
    change: impl FnOnce(&mut TopicIntent),
) -> Result<(), CommitError> {
    if !topics.change_in_two_steps() {
        return Ok(());
    }
    let mut intent = read::topic_intent(staged, topic)?.unwrap_or_default();
    change(&mut intent);
    staged.put(StateSpace::Meta, topic_intent::key(topic), topic_intent::value(intent));
    Ok(())
}

/// The end of a topic after the change that is noted for it: a topic whose deletion is noted counts as gone, though the
/// log may still have it. A cursor that is put between the two steps of a deletion would outlive its topic.
pub(super) fn coming_end(
    staged: &StagedState<'_>,
    topic: &TopicName,
    topics: &dyn TopicLookup,
) -> Result<Offset, CommitError> {
    let intent = match topics.change_in_two_steps() {
        true => read::topic_intent(staged, topic)?,
        false => None,
    };
    let is_leaving = intent.is_some_and(|intent| match intent.delete {
        // The log may have made the second step already, and even have another topic of this name. The number is read
        // before the end: the log deletes only the topic that the note names.
        Some(noted) => topics.number(topic).is_none_or(|number| number == noted),
        None => !intent.create,
    });
    Ok(if is_leaving { Offset::ZERO } else { topics.end(topic) })
}
