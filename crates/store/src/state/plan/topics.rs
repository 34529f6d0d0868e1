//! What a topic's deletion means for the state: its settings and cursors go, so that a topic created later under the
//! same name starts afresh.

use super::super::keys::{cursor, settings, topic_drop};
use super::super::{Flow, Space, Span, Staged, View};
use super::Topics;
use crate::port::{CommitError, TopicOp};

pub(super) fn apply(staged: &mut Staged<'_>, op: &TopicOp, topics: &dyn Topics) -> Result<(), CommitError> {
    let TopicOp::Delete(topic) = op else { return Ok(()) };
    let mut cursors = Vec::new();
    staged.scan(Space::Meta, Span::of(&cursor::topic_prefix(topic)), &mut |key, _| {
        cursors.push(key.to_vec());
        Ok(Flow::Continue(()))
    })?;
    cursors.into_iter().for_each(|key| staged.delete(Space::Meta, key));
    staged.delete(Space::Meta, settings::key(topic));
    if let Some(number) = topics.number(topic) {
        staged.put(Space::Meta, topic_drop::key(topic), topic_drop::value(number));
    }
    Ok(())
}
