//! From the ids of events to the offsets of their letters.

use std::collections::HashSet;

use promethean_model::{EventId, GroupName, Offset, TopicName};
use promethean_store::port::{StoredEvent, Table};

use super::decode;
use super::originals::{in_letter, read_letter};
use crate::base::Base;
use crate::error::BusError;
use crate::rows::topic_prefix;

/// Rows read at once.
const ROWS_PAGE: usize = 500;

/// What ids came to.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// Events that have these ids. Not all need to have a letter.
    pub(super) offsets: Vec<Offset>,
    /// Ids that neither the topic nor a letter of the group knows.
    pub(super) unknown: Vec<EventId>,
}

/// An id is that of an event in the topic, of a letter in the dead-letter topic, or of an event that is in a letter
/// only. To find the last kind every letter of the group is read, so it is tried last.
pub(super) async fn by_ids(
    base: &Base,
    topic: &TopicName,
    group: &GroupName,
    ids: Vec<EventId>,
) -> Result<Chosen, BusError> {
    let mut chosen = Chosen::default();
    let mut missing = HashSet::new();
    for id in ids {
        if let Some(event) = base.store.by_id(topic, id).await? {
            chosen.offsets.push(event.offset);
        } else if let Some(offset) = by_letter(base, topic, group, id).await? {
            chosen.offsets.push(offset);
        } else if missing.insert(id) {
            chosen.unknown.push(id);
        }
    }
    if missing.is_empty() {
        return Ok(chosen);
    }
    let prefix = topic_prefix(group, topic);
    let mut after: Option<Vec<u8>> = None;
    while !missing.is_empty() {
        let rows = base.store.rows(Table::DeadLetters, &prefix, after.as_deref(), ROWS_PAGE).await?;
        let Some(last) = rows.last() else { break };
        after = Some(last.key.clone());
        for (offset, row) in decode(rows)? {
            if let Some(letter) = in_letter(base, topic, &row).await?
                && missing.remove(&letter.event.id)
            {
                chosen.offsets.push(offset);
            }
        }
    }
    chosen.unknown.retain(|id| missing.contains(id));
    Ok(chosen)
}

async fn by_letter(
    base: &Base,
    topic: &TopicName,
    group: &GroupName,
    id: EventId,
) -> Result<Option<Offset>, BusError> {
    let Ok(dlq) = topic.dlq() else { return Ok(None) };
    let letter: Option<StoredEvent> = base.store.by_id(&dlq, id).await?;
    let ours = letter.and_then(|letter| read_letter(&letter)).filter(|letter| letter.group == *group);
    Ok(ours.map(|letter| letter.event.offset))
}
