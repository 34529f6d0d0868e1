//! Cursors.

use promethean_model::{GroupName, TopicName};

use super::super::keys::cursor as keys;
use super::super::{Flow, RowSpan, StateFault, StateSpace, View};
use crate::port::{Cursor, GroupCursor};

pub(crate) fn cursor(
    view: &dyn View,
    group: &GroupName,
    topic: &TopicName,
) -> Result<Option<Cursor>, StateFault> {
    let value = view.get(StateSpace::Meta, &keys::key(group, topic))?;
    Ok(value.map(|value| keys::decode(&value)).transpose()?)
}

pub(crate) fn cursors_of_topic(view: &dyn View, topic: &TopicName) -> Result<Vec<GroupCursor>, StateFault> {
    collect(view, &keys::topic_prefix(topic), |_, _| true)
}

/// Passes over every cursor there is; groups are asked for all their topics only when they are deleted or shown.
pub(crate) fn cursors_of_group(view: &dyn View, group: &GroupName) -> Result<Vec<GroupCursor>, StateFault> {
    collect(view, &keys::PREFIX, |of_group, _| of_group == group)
}

pub(crate) fn all_cursors(view: &dyn View) -> Result<Vec<GroupCursor>, StateFault> {
    collect(view, &keys::PREFIX, |_, _| true)
}

fn collect(
    view: &dyn View,
    prefix: &[u8],
    wanted: impl Fn(&GroupName, &TopicName) -> bool,
) -> Result<Vec<GroupCursor>, StateFault> {
    let mut found = Vec::new();
    view.scan(StateSpace::Meta, RowSpan::of(prefix), &mut |key, value| {
        let (group, topic) = keys::decode_key(key)?;
        if wanted(&group, &topic) {
            found.push(GroupCursor { group, topic, cursor: keys::decode(value)? });
        }
        Ok(Flow::Continue(()))
    })?;
    Ok(found)
}
