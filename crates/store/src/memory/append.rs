//! Deciding what becomes of a batch's events before anything is changed.

use std::collections::HashMap;

use promethean_model::{EventId, Offset, TopicName};

use super::topic::{Topic, content};
use super::{Inner, Options};
use crate::port::{AppendEvent, Batch, CommitError, EventBody, EventIdSource, Placed, StoredEvent};

/// What becomes of one event.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    Fresh(u128),
    /// It is there already.
    Duplicate(Placed),
    /// It repeats an earlier one of the batch.
    Repeats(usize),
}

/// Refuses the batch, or says what becomes of each event.
pub(super) fn decide(inner: &Inner, options: &Options, batch: &Batch) -> Result<Vec<Outcome>, CommitError> {
    for event in &batch.events {
        let compacted = inner.settings_of(&event.topic)?.compacted;
        if compacted && event.key.is_none() {
            return Err(CommitError::KeyRequired { topic: event.topic.clone() });
        }
    }
    let mut first: HashMap<(&TopicName, EventId), usize> = HashMap::new();
    let mut outcomes: Vec<Outcome> = Vec::with_capacity(batch.events.len());
    for (index, event) in batch.events.iter().enumerate() {
        outcomes.push(decide_event(inner, batch, event, &mut first, index)?);
    }
    let is_retry =
        !outcomes.is_empty() && outcomes.iter().all(|outcome| matches!(outcome, Outcome::Duplicate(_)));
    if !is_retry {
        check_expectations(inner, batch)?;
    }
    check_room(inner, options, batch)?;
    Ok(outcomes)
}

fn decide_event<'a>(
    inner: &Inner,
    batch: &'a Batch,
    event: &'a AppendEvent,
    first: &mut HashMap<(&'a TopicName, EventId), usize>,
    index: usize,
) -> Result<Outcome, CommitError> {
    let content_hash = content(event);
    let EventIdSource::Given(id) = event.id else { return Ok(Outcome::Fresh(content_hash)) };
    let topic = inner.topics.get(&event.topic);
    let conflict =
        |offset| CommitError::IdConflict { topic: event.topic.clone(), id, offset: Offset(offset) };
    if let Some(known) = topic.and_then(|topic| topic.known(id)) {
        if known.content != content_hash {
            return Err(conflict(known.offset));
        }
        return Ok(Outcome::Duplicate(Placed {
            offset: Offset(known.offset),
            ts: known.ts,
            duplicate: true,
        }));
    }
    if let Some(earlier) = first.get(&(&event.topic, id)) {
        if batch.events.get(*earlier).map(content) != Some(content_hash) {
            return Err(conflict(topic.map_or(0, |topic| topic.next)));
        }
        return Ok(Outcome::Repeats(*earlier));
    }
    first.insert((&event.topic, id), index);
    Ok(Outcome::Fresh(content_hash))
}

fn check_expectations(inner: &Inner, batch: &Batch) -> Result<(), CommitError> {
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

fn check_room(inner: &Inner, options: &Options, batch: &Batch) -> Result<(), CommitError> {
    let used = inner.event_bytes;
    if !batch.events.is_empty() && used + batch.bytes() as u64 > options.event_bytes_max {
        let free = options.event_bytes_max.saturating_sub(used);
        return Err(CommitError::StorageFull { free, reserve: 0 });
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

/// Appends what was decided to be fresh.
pub(super) fn place(
    inner: &mut Inner,
    events: Vec<AppendEvent>,
    outcomes: &[Outcome],
    now_ms: i64,
) -> Vec<Placed> {
    let mut placed: Vec<Placed> = Vec::with_capacity(events.len());
    for (event, outcome) in events.into_iter().zip(outcomes) {
        let at = match outcome {
            Outcome::Duplicate(there) => *there,
            Outcome::Repeats(earlier) => {
                let there = placed.get(*earlier).copied();
                there.map_or(Placed { offset: Offset::ZERO, ts: 0, duplicate: true }, |there| Placed {
                    duplicate: true,
                    ..there
                })
            }
            Outcome::Fresh(content) => {
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

fn append(topic: &mut Topic, event: AppendEvent, content: u128, now_ms: i64) -> Placed {
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
