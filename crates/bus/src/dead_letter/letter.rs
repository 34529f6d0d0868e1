//! Letters, their ids, and where they go.

use promethean_model::{Event, EventId, EventMeta, GroupName, SystemSuffix, TopicName};
use promethean_store::port::{AppendEvent, EventIdSource, StoredEvent};
use serde::{Deserialize, Serialize};

use super::event::user_event;
use crate::delivery::types::{Attempts, Failure};
use crate::error::BusError;
use crate::rows::LetterRow;

#[cfg(test)]
mod tests;

/// The payload of a letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// The original event, whole.
    pub event: Event,
    /// The group that gave it up.
    pub group: GroupName,
    /// Why the last attempt failed.
    pub reason: String,
    /// How many attempts failed.
    pub attempts: u32,
    /// When the first one did, epoch ms.
    pub first_ts: i64,
    /// When the last one did, epoch ms.
    pub last_ts: i64,
}

/// Makes the letter to append and the row that says it is open. `redrives` is how often the event was redriven to the
/// group before. A dead-letter topic has no dead letters of its own, nor has a topic whose name leaves no room for
/// `.dlq`: then there is a row only.
pub fn post(
    group: &GroupName,
    event: &StoredEvent,
    attempts: &Attempts,
    redrives: u32,
) -> Result<(Option<AppendEvent>, LetterRow), BusError> {
    post_because(group, event, attempts, redrives, reason_word(attempts.last_failure))
}

/// As [`post`], with a reason in more than a word.
pub(crate) fn post_because(
    group: &GroupName,
    event: &StoredEvent,
    attempts: &Attempts,
    redrives: u32,
    reason: &str,
) -> Result<(Option<AppendEvent>, LetterRow), BusError> {
    let letter = dead_letter_topic(&event.topic)
        .map(|topic| append(topic, group, event, attempts, redrives, reason))
        .transpose()?;
    let row = LetterRow::open(letter.as_ref().map(|letter| letter.id.id()), attempts, redrives);
    Ok((letter, row))
}

/// The id of a letter. It follows from the event and everything in the letter that can differ between two letters about
/// it, so the same letter committed again is a duplicate and never a conflict, and an event that dies again is a new letter.
pub fn letter_id(
    group: &GroupName,
    topic: &TopicName,
    event: EventId,
    attempts: &Attempts,
    redrives: u32,
) -> EventId {
    let mut name = Vec::with_capacity(group.as_str().len() + topic.as_str().len() + 51);
    name.extend_from_slice(group.as_str().as_bytes());
    name.push(0);
    name.extend_from_slice(topic.as_str().as_bytes());
    name.push(0);
    name.extend_from_slice(&attempts.offset.get().to_be_bytes());
    // A topic that was deleted and born again has other events at its offsets.
    name.extend_from_slice(event.as_bytes());
    name.extend_from_slice(&redrives.to_be_bytes());
    name.extend_from_slice(&attempts.failed.to_be_bytes());
    name.extend_from_slice(&attempts.first_ms.to_be_bytes());
    name.extend_from_slice(&attempts.last_ms.to_be_bytes());
    name.extend_from_slice(reason_word(attempts.last_failure).as_bytes());
    EventId::derive(b"dead_letter", &name)
}

/// The id of the event that a redrive to the topic publishes: the same for the same letter, however often it is tried.
pub fn redrive_id(group: &GroupName, event: &StoredEvent, row: &LetterRow) -> EventId {
    let attempts = Attempts {
        offset: event.offset,
        failed: row.attempts,
        last_failure: row.reason,
        first_ms: row.first_ms,
        last_ms: row.last_ms,
        due_ms: 0,
    };
    EventId::derive(b"redrive", letter_id(group, &event.topic, event.id, &attempts, row.redrives).as_bytes())
}

/// The word users see.
pub const fn reason_word(failure: Failure) -> &'static str {
    match failure {
        Failure::Nack => "nack",
        Failure::Expired => "expired",
        Failure::MemberLost => "member_lost",
        Failure::Projection => "projection",
    }
}

fn dead_letter_topic(topic: &TopicName) -> Option<TopicName> {
    let is_dlq = topic.system_suffix() == Some(SystemSuffix::Dlq);
    if is_dlq { None } else { topic.dlq().ok() }
}

fn append(
    topic: TopicName,
    group: &GroupName,
    event: &StoredEvent,
    attempts: &Attempts,
    redrives: u32,
    reason: &str,
) -> Result<AppendEvent, BusError> {
    let letter = Letter {
        event: user_event(event)?,
        group: group.clone(),
        reason: reason.to_owned(),
        attempts: attempts.failed,
        first_ts: attempts.first_ms,
        last_ts: attempts.last_ms,
    };
    let payload = serde_json::to_string(&letter)
        .map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
    let mut meta = Vec::new();
    EventMeta { caused_by: Some(vec![event.id]), ..EventMeta::default() }.encode(&mut meta);
    Ok(AppendEvent {
        id: EventIdSource::Given(letter_id(group, &event.topic, event.id, attempts, redrives)),
        topic,
        ts: None,
        key: event.key().map(str::to_owned),
        meta,
        payload,
    })
}
