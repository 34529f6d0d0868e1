//! Topics: their creation and deletion in the state. A deletion removes settings and cursors too, so that a topic created
//! later under the same name starts afresh.

use promethean_model::TopicName;

use super::super::keys::topic_intent::{self, TopicIntent};
use super::super::keys::{cursor, settings};
use super::super::{Flow, Space, Span, StagedState, View, read};
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
            staged.scan(Space::Meta, Span::of(&cursor::topic_prefix(topic)), &mut |key, _| {
                cursors.push(key.to_vec());
                Ok(Flow::Continue(()))
            })?;
            cursors.into_iter().for_each(|key| staged.delete(Space::Meta, key));
            staged.delete(Space::Meta, settings::key(topic));
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
    staged.put(Space::Meta, topic_intent::key(topic), topic_intent::value(intent));
    Ok(())
}
