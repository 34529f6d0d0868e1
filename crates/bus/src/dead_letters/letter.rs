//! Letters: their payload, their ids and their topic.

use std::sync::Arc;

use promethean_delivery::{Attempts, DeliveryFailure, FailureNote};
use promethean_model::{Event, EventId, EventMeta, GroupName, SystemSuffix, TopicName};
use promethean_store::port::{AppendEvent, EventIdSource, StoredEvent};
use serde::{Deserialize, Serialize};

use super::row::{LetterRow, last_error_of, reason_of};
use crate::error::BusError;
use crate::user_event::user_event;

/// The payload of a letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// The original event, whole.
    pub event: Event,
    /// The group that gave it up.
    pub group: GroupName,
    /// Why the last attempt failed: what the one who gave the event back said, or else a word for how it failed.
    pub reason: String,
    /// How many attempts failed.
    pub attempts: u32,
    /// When the first attempt failed, epoch ms.
    pub first_ts: i64,
    /// When the last attempt failed, epoch ms.
    pub last_ts: i64,
    /// The name of the one who gave the reason or the last error, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What was said when an earlier attempt failed, if nothing was said for the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Makes the letter to append and the row of the open letter. `redrives` is how often the event was redriven
/// to the group before. There is only a row for an event of a dead-letter topic, and for a topic whose name
/// is too long to add `.dlq`. `note` is why the last attempt failed, where that was said.
pub fn post(
    group: &GroupName,
    event: &StoredEvent,
    attempts: &Attempts,
    redrives: u32,
    note: Option<&Arc<FailureNote>>,
) -> Result<(Option<AppendEvent>, LetterRow), BusError> {
    let letter = dead_letter_topic(&event.topic)
        .map(|topic| append(topic, group, event, (attempts, redrives), note.map(|note| &**note)))
        .transpose()?;
    let id = letter.as_ref().map(|letter| letter.id.id());
    Ok((letter, LetterRow::open(id, attempts, redrives, note.cloned())))
}

/// The id of a letter. It is computed from the event and from everything that can differ between two letters
/// of one event. So the same letter committed again is a duplicate, never a conflict, and an event that is
/// given up again gets a new letter.
pub fn letter_id(
    group: &GroupName,
    topic: &TopicName,
    event: EventId,
    attempts: &Attempts,
    redrives: u32,
    note: Option<&FailureNote>,
) -> EventId {
    let mut name = Vec::with_capacity(group.as_str().len() + topic.as_str().len() + 51);
    name.extend_from_slice(group.as_str().as_bytes());
    name.push(0);
    name.extend_from_slice(topic.as_str().as_bytes());
    name.push(0);
    name.extend_from_slice(&attempts.offset.get().to_be_bytes());
    // A topic that was deleted and created again has other events at the same offsets.
    name.extend_from_slice(event.as_bytes());
    name.extend_from_slice(&redrives.to_be_bytes());
    name.extend_from_slice(&attempts.failed.to_be_bytes());
    name.extend_from_slice(&attempts.first_ms.to_be_bytes());
    name.extend_from_slice(&attempts.last_ms.to_be_bytes());
    name.extend_from_slice(reason_word(attempts.last_failure).as_bytes());
    if let Some(note) = note {
        name.push(0);
        name.extend_from_slice(note.reason().as_bytes());
        name.push(0);
        name.extend_from_slice(note.by().unwrap_or_default().as_bytes());
    }
    EventId::derive(b"dead_letter", &name)
}

/// The id of the event that a redrive to the topic publishes. Every try for one letter gives the same id.
pub fn redrive_id(group: &GroupName, event: &StoredEvent, row: &LetterRow) -> EventId {
    let attempts = Attempts {
        offset: event.offset,
        failed: row.attempts,
        last_failure: row.reason,
        first_ms: row.first_ms,
        last_ms: row.last_ms,
        due_ms: 0,
    };
    let letter = letter_id(group, &event.topic, event.id, &attempts, row.redrives, row.note.as_deref());
    EventId::derive(b"redrive", letter.as_bytes())
}

/// The id of the event that a redrive to the topic publishes with another payload.
pub(super) fn edited_id(group: &GroupName, event: &StoredEvent, row: &LetterRow, payload: &str) -> EventId {
    let copy = redrive_id(group, event, row);
    EventId::derive(b"redrive_edited", &[copy.as_bytes().as_slice(), payload.as_bytes()].concat())
}

/// The word for a failure that users see.
pub const fn reason_word(failure: DeliveryFailure) -> &'static str {
    match failure {
        DeliveryFailure::Nack => "nack",
        DeliveryFailure::Expired => "expired",
        DeliveryFailure::MemberLost => "member_lost",
        DeliveryFailure::Projection => "projection",
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
    (attempts, redrives): (&Attempts, u32),
    note: Option<&FailureNote>,
) -> Result<AppendEvent, BusError> {
    let letter = Letter {
        event: user_event(event)?,
        group: group.clone(),
        reason: reason_of(attempts.last_failure, note).to_owned(),
        attempts: attempts.failed,
        first_ts: attempts.first_ms,
        last_ts: attempts.last_ms,
        by: note.and_then(FailureNote::by).map(str::to_owned),
        last_error: last_error_of(attempts.last_failure, note).map(str::to_owned),
    };
    let payload = serde_json::to_string(&letter)
        .map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
    let mut meta = Vec::new();
    EventMeta { caused_by: Some(vec![event.id]), ..EventMeta::default() }.encode(&mut meta);
    Ok(AppendEvent {
        id: EventIdSource::Given(letter_id(group, &event.topic, event.id, attempts, redrives, note)),
        topic,
        ts: None,
        key: event.key().map(str::to_owned),
        meta,
        payload,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use promethean_model::Offset;
    use promethean_model::SystemClock;
    use promethean_model::json::minify;
    use promethean_store::memory::{MemoryOptions, MemoryStore};
    use promethean_store::port::{Batch, EventBody, Store};

    use super::*;

    fn attempts() -> Attempts {
        Attempts {
            offset: Offset(7),
            failed: 5,
            last_failure: DeliveryFailure::Nack,
            first_ms: 100,
            last_ms: 200,
            due_ms: 300,
        }
    }

    fn event(topic: &str, payload: &str) -> StoredEvent {
        let mut meta = Vec::new();
        EventMeta { sid: Some("s".into()), partition: Some(2), ..EventMeta::default() }.encode(&mut meta);
        let body = EventBody { key: Some(b"k"), meta: &meta, payload: payload.as_bytes() };
        StoredEvent::new(topic.parse().unwrap(), Offset(7), EventId::from_bytes([9; 16]), 50).with_body(body)
    }

    fn group() -> GroupName {
        "g".parse().unwrap()
    }

    #[test]
    fn a_letter_holds_the_whole_original_event() {
        let (letter, row) =
            post(&group(), &event("a", "{\"n\":1.50,\"m\":2}"), &attempts(), 0, None).unwrap();
        let letter = letter.unwrap();
        assert_eq!(letter.topic.as_str(), "a.dlq");
        assert_eq!(
            letter.payload,
            r#"{"event":{"id":"09090909-0909-0909-0909-090909090909","ts":50,"topic":"a","offset":7,"key":"k","partition":2,"payload":{"n":1.50,"m":2},"sid":"s"},"group":"g","reason":"nack","attempts":5,"first_ts":100,"last_ts":200}"#
        );
        assert_eq!(minify(&letter.payload).unwrap(), letter.payload);
        assert_eq!(letter.key.as_deref(), Some("k"));
        let meta = EventMeta::decode(&letter.meta).unwrap();
        assert_eq!(meta.caused_by, Some(vec![EventId::from_bytes([9; 16])]));
        assert_eq!(row.letter, Some(letter.id.id()));
        assert_eq!((row.attempts, row.redrives, row.redriving), (5, 0, false));
        let read: Letter = serde_json::from_str(&letter.payload).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), letter.payload);
    }

    #[test]
    fn a_letter_says_what_the_last_member_said() {
        let note = FailureNote::new("no \"stock\"", Some("worker-1")).map(Arc::new);
        let (letter, row) = post(&group(), &event("a", "1"), &attempts(), 0, note.as_ref()).unwrap();
        let letter = letter.unwrap();
        let end = r#""reason":"no \"stock\"","attempts":5,"first_ts":100,"last_ts":200,"by":"worker-1"}"#;
        assert!(letter.payload.ends_with(end), "{}", letter.payload);
        assert_eq!((row.reason_text(), row.letter), ("no \"stock\"", Some(letter.id.id())));
        // What is said is a part of the letter, so two letters that differ in it have two ids.
        let other = FailureNote::new("no stock", Some("worker-1")).map(Arc::new);
        let other = post(&group(), &event("a", "1"), &attempts(), 0, other.as_ref()).unwrap().1;
        let without = post(&group(), &event("a", "1"), &attempts(), 0, None).unwrap().1;
        assert!(row.letter != other.letter && row.letter != without.letter);
        let expired = Attempts { last_failure: DeliveryFailure::Expired, ..attempts() };
        let letter = post(&group(), &event("a", "1"), &expired, 0, note.as_ref()).unwrap().0.unwrap();
        let end = r#""by":"worker-1","last_error":"no \"stock\""}"#;
        assert!(
            letter.payload.contains(r#""reason":"expired""#) && letter.payload.ends_with(end),
            "{}",
            letter.payload
        );
        let long = FailureNote::new(&"\u{e4}".repeat(5_000), Some(&"b".repeat(5_000))).unwrap();
        assert_eq!((long.reason().len(), long.by().map(str::len)), (1024, Some(255)));
    }

    #[test]
    fn no_letters_for_dead_letter_topics_or_names_without_room() {
        for topic in ["a.dlq".to_owned(), "x".repeat(178)] {
            let (letter, row) = post(&group(), &event(&topic, "1"), &attempts(), 0, None).unwrap();
            assert_eq!((letter, row.letter), (None, None));
        }
        let (letter, _) = post(&group(), &event("a.snapshot", "1"), &attempts(), 0, None).unwrap();
        assert_eq!(letter.unwrap().topic.as_str(), "a.snapshot.dlq");
    }

    #[test]
    fn ids_depend_on_all_parts_of_the_letter() {
        let topic: TopicName = "a".parse().unwrap();
        let event = EventId::from_bytes([9; 16]);
        let id = |group: &str, attempts: Attempts, redrives| {
            letter_id(&group.parse().unwrap(), &topic, event, &attempts, redrives, None)
        };
        let first = id("g", attempts(), 0);
        assert_eq!(first.to_string(), "888c3304-0043-8ff5-a218-c5e3f0b5ac51");
        assert_eq!(id("g", Attempts { due_ms: 9, ..attempts() }, 0), first);
        let others = [
            id("h", attempts(), 0),
            letter_id(&group(), &topic, EventId::from_bytes([8; 16]), &attempts(), 0, None),
            id("g", attempts(), 1),
            id("g", Attempts { offset: Offset(8), ..attempts() }, 0),
            id("g", Attempts { first_ms: 101, ..attempts() }, 0),
            id("g", Attempts { last_ms: 201, ..attempts() }, 0),
            id("g", Attempts { failed: 6, ..attempts() }, 0),
            id("g", Attempts { last_failure: DeliveryFailure::Expired, ..attempts() }, 0),
        ];
        for (n, other) in others.iter().enumerate() {
            assert!(*other != first && !others[..n].contains(other), "{n}");
        }
    }

    #[test]
    fn a_redrive_has_one_id_for_each_letter() {
        let event = event("a", "1");
        let row = post(&group(), &event, &attempts(), 0, None).unwrap().1;
        let id = redrive_id(&group(), &event, &row);
        assert_eq!(id, redrive_id(&group(), &event, &row));
        assert_ne!(Some(id), row.letter);
        assert_ne!(id, redrive_id(&group(), &event, &row.clone().redriven()));
        let other =
            StoredEvent::new(event.topic.clone(), event.offset, EventId::from_bytes([8; 16]), event.ts);
        assert_ne!(id, redrive_id(&group(), &other, &row));
    }

    #[test]
    fn an_unreadable_event_is_an_error_that_names_it() {
        let body = EventBody { key: None, meta: &[9, 9], payload: b"1" };
        let event = StoredEvent::new("a".parse().unwrap(), Offset(7), EventId::from_bytes([9; 16]), 0)
            .with_body(body);
        let error = post(&group(), &event, &attempts(), 0, None).unwrap_err();
        assert_eq!(error.code(), "storage_failed");
        assert!(error.to_string().contains("event 7 of topic `a`"), "{error}");
    }

    #[tokio::test]
    async fn a_letter_is_stored_once_and_a_second_failure_is_a_new_letter() {
        let store = MemoryStore::new(Arc::new(SystemClock::new()), MemoryOptions::default());
        let event = event("a", "{\"n\":1}");
        let commit = async |attempts: Attempts, redrives| {
            let (letter, _) = post(&group(), &event, &attempts, redrives, None).unwrap();
            let placed = store.commit(Batch::new().event(letter.unwrap())).await.unwrap().events[0];
            (placed.offset, placed.duplicate)
        };
        assert_eq!(commit(attempts(), 0).await, (Offset(0), false));
        assert_eq!(commit(attempts(), 0).await, (Offset(0), true));
        assert_eq!(commit(attempts(), 1).await, (Offset(1), false));
        // After a seek back the event can be given up again without a redrive.
        assert_eq!(
            commit(Attempts { first_ms: 900, last_ms: 950, ..attempts() }, 0).await,
            (Offset(2), false)
        );
    }
}
