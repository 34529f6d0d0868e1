//! Events of a batch: first each is judged, then the new ones are appended.

use std::collections::HashMap;

use promethean_model::{EventId, Offset, TopicName};

use super::topic::{MemoryTopic, content};
use super::{MemoryInner, MemoryOptions};
use crate::port::{AppendEvent, Batch, CommitError, EventBody, EventIdSource, Placed, StoredEvent};

/// What happens to one event of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) enum EventOutcome {
    /// It is appended; the hash of its content.
    Fresh(u128),
    /// The topic has it already.
    Duplicate(Placed),
    /// It repeats the event at this index of the batch.
    Repeats(usize),
}

/// Refuses the batch, or decides what happens to each event. Changes nothing.
pub(super) fn decide(
    inner: &MemoryInner,
    options: &MemoryOptions,
    batch: &Batch,
) -> Result<Vec<EventOutcome>, CommitError> {
    for event in &batch.events {
        let compacted = inner.settings_of(&event.topic)?.compacted;
        if compacted && event.key.is_none() {
            return Err(CommitError::KeyRequired { topic: event.topic.clone() });
        }
    }
    let mut first: HashMap<(&TopicName, EventId), usize> = HashMap::new();
    let mut outcomes: Vec<EventOutcome> = Vec::with_capacity(batch.events.len());
    for (index, event) in batch.events.iter().enumerate() {
        outcomes.push(decide_event(inner, batch, event, &mut first, index)?);
    }
    let is_retry =
        !outcomes.is_empty() && outcomes.iter().all(|outcome| matches!(outcome, EventOutcome::Duplicate(_)));
    if !is_retry {
        check_expectations(inner, batch)?;
    }
    check_room(inner, options, batch)?;
    Ok(outcomes)
}

fn decide_event<'a>(
    inner: &MemoryInner,
    batch: &'a Batch,
    event: &'a AppendEvent,
    first: &mut HashMap<(&'a TopicName, EventId), usize>,
    index: usize,
) -> Result<EventOutcome, CommitError> {
    let content_hash = content(event);
    let EventIdSource::Given(id) = event.id else { return Ok(EventOutcome::Fresh(content_hash)) };
    let topic = inner.topics.get(&event.topic);
    let conflict =
        |offset| CommitError::IdConflict { topic: event.topic.clone(), id, offset: Offset(offset) };
    if let Some(known) = topic.and_then(|topic| topic.known(id)) {
        if known.content != content_hash {
            return Err(conflict(known.offset));
        }
        return Ok(EventOutcome::Duplicate(Placed {
            offset: Offset(known.offset),
            ts: known.ts,
            duplicate: true,
        }));
    }
    if let Some(earlier) = first.get(&(&event.topic, id)) {
        if batch.events.get(*earlier).map(content) != Some(content_hash) {
            return Err(conflict(topic.map_or(0, |topic| topic.next)));
        }
        return Ok(EventOutcome::Repeats(*earlier));
    }
    first.insert((&event.topic, id), index);
    Ok(EventOutcome::Fresh(content_hash))
}

fn check_expectations(inner: &MemoryInner, batch: &Batch) -> Result<(), CommitError> {
    for (topic, expected) in &batch.expected_ends {
        let actual = Offset(inner.topics.get(topic).map_or(0, |topic| topic.next));
        if actual != *expected {
            return Err(CommitError::Conflict { topic: topic.clone(), expected: *expected, actual });
        }
    }
    for (topic, key, expected) in &batch.expected_keys {
        let actual = inner.topics.get(topic).and_then(|topic| topic.latest_of_key(key)).map(Offset);
        if actual != *expected {
            return Err(CommitError::KeyConflict { topic: topic.clone(), expected: *expected, actual });
        }
    }
    Ok(())
}

fn check_room(inner: &MemoryInner, options: &MemoryOptions, batch: &Batch) -> Result<(), CommitError> {
    let used = inner.event_bytes;
    if !batch.events.is_empty() && used + batch.bytes() as u64 > options.event_bytes_max {
        return Err(CommitError::StorageFull { reason: super::full(inner, options) });
    }
    let mut new: Vec<_> = batch
        .events
        .iter()
        .map(|event| &event.topic)
        .filter(|topic| !inner.topics.contains_key(*topic))
        .collect();
    new.sort_unstable();
    new.dedup();
    if inner.topics.len() + new.len() > options.topics_max {
        return Err(CommitError::TooManyTopics { max: options.topics_max as u64 });
    }
    Ok(())
}

/// Appends the events that were judged fresh.
pub(super) fn place(
    inner: &mut MemoryInner,
    events: Vec<AppendEvent>,
    outcomes: &[EventOutcome],
    now_ms: i64,
) -> Vec<Placed> {
    let mut placed: Vec<Placed> = Vec::with_capacity(events.len());
    for (event, outcome) in events.into_iter().zip(outcomes) {
        let at = match outcome {
            EventOutcome::Duplicate(there) => *there,
            EventOutcome::Repeats(earlier) => {
                let there = placed.get(*earlier).copied();
                there.map_or(Placed { offset: Offset::ZERO, ts: 0, duplicate: true }, |there| Placed {
                    duplicate: true,
                    ..there
                })
            }
            EventOutcome::Fresh(content) => {
                let topic = inner.topic_mut(&event.topic);
                let before = topic.bytes;
                let at = append(topic, event, *content, now_ms);
                let added = topic.bytes - before;
                inner.event_bytes += added;
                at
            }
        };
        placed.push(at);
    }
    placed
}

fn append(topic: &mut MemoryTopic, event: AppendEvent, content: u128, now_ms: i64) -> Placed {
    let ts = topic.stamp(event.ts, now_ms);
    let offset = Offset(topic.next);
    let mut stored = StoredEvent::new(event.topic, offset, event.id.id(), ts).with_body(EventBody {
        key: event.key.as_deref().map(str::as_bytes),
        meta: &event.meta,
        payload: event.payload.as_bytes(),
    });
    stored.server_stamped = event.ts.is_none();
    topic.append(stored, content, now_ms);
    Placed { offset, ts, duplicate: false }
}
