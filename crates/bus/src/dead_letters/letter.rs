//! Letters, their ids, and where they go.

use promethean_delivery::{Attempts, Failure};
use promethean_model::{Event, EventId, EventMeta, GroupName, SystemSuffix, TopicName};
use promethean_store::port::{AppendEvent, EventIdSource, StoredEvent};
use serde::{Deserialize, Serialize};

use super::row::LetterRow;
use crate::error::BusError;
use crate::user_event::user_event;

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use promethean_model::Offset;
    use promethean_model::SystemClock;
    use promethean_model::json::minify;
    use promethean_store::memory::{MemoryStore, Options};
    use promethean_store::port::{Batch, EventBody, Store};

    use super::*;

    fn attempts() -> Attempts {
        Attempts {
            offset: Offset(7),
            failed: 5,
            last_failure: Failure::Nack,
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
    fn the_original_is_inside_whole() {
        let (letter, row) = post(&group(), &event("a", "{\"n\":1.50,\"m\":2}"), &attempts(), 0).unwrap();
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
    fn no_letters_about_letters_nor_without_room_for_the_name() {
        for topic in ["a.dlq".to_owned(), "x".repeat(178)] {
            let (letter, row) = post(&group(), &event(&topic, "1"), &attempts(), 0).unwrap();
            assert_eq!((letter, row.letter), (None, None));
        }
        let (letter, _) = post(&group(), &event("a.snapshot", "1"), &attempts(), 0).unwrap();
        assert_eq!(letter.unwrap().topic.as_str(), "a.snapshot.dlq");
    }

    #[test]
    fn ids_are_those_of_the_letter() {
        let topic: TopicName = "a".parse().unwrap();
        let event = EventId::from_bytes([9; 16]);
        let id = |group: &str, attempts: Attempts, redrives| {
            letter_id(&group.parse().unwrap(), &topic, event, &attempts, redrives)
        };
        let first = id("g", attempts(), 0);
        assert_eq!(first.to_string(), "888c3304-0043-8ff5-a218-c5e3f0b5ac51");
        assert_eq!(id("g", Attempts { due_ms: 9, ..attempts() }, 0), first);
        let others = [
            id("h", attempts(), 0),
            letter_id(&group(), &topic, EventId::from_bytes([8; 16]), &attempts(), 0),
            id("g", attempts(), 1),
            id("g", Attempts { offset: Offset(8), ..attempts() }, 0),
            id("g", Attempts { first_ms: 101, ..attempts() }, 0),
            id("g", Attempts { last_ms: 201, ..attempts() }, 0),
            id("g", Attempts { failed: 6, ..attempts() }, 0),
            id("g", Attempts { last_failure: Failure::Expired, ..attempts() }, 0),
        ];
        for (n, other) in others.iter().enumerate() {
            assert!(*other != first && !others[..n].contains(other), "{n}");
        }
    }

    #[test]
    fn a_redrive_has_one_id_for_each_letter() {
        let event = event("a", "1");
        let row = post(&group(), &event, &attempts(), 0).unwrap().1;
        let id = redrive_id(&group(), &event, &row);
        assert_eq!(id, redrive_id(&group(), &event, &row));
        assert_ne!(Some(id), row.letter);
        assert_ne!(id, redrive_id(&group(), &event, &row.redriven()));
        let other =
            StoredEvent::new(event.topic.clone(), event.offset, EventId::from_bytes([8; 16]), event.ts);
        assert_ne!(id, redrive_id(&group(), &other, &row));
    }

    #[test]
    fn an_unreadable_event_says_so() {
        let body = EventBody { key: None, meta: &[9, 9], payload: b"1" };
        let event = StoredEvent::new("a".parse().unwrap(), Offset(7), EventId::from_bytes([9; 16]), 0)
            .with_body(body);
        let error = post(&group(), &event, &attempts(), 0).unwrap_err();
        assert_eq!(error.code(), "storage_failed");
        assert!(error.to_string().contains("event 7 of topic `a`"), "{error}");
    }

    #[tokio::test]
    async fn the_store_takes_a_letter_once_and_a_second_death_as_another() {
        let store = MemoryStore::new(Arc::new(SystemClock::new()), Options::default());
        let event = event("a", "{\"n\":1}");
        let commit = async |attempts: Attempts, redrives| {
            let (letter, _) = post(&group(), &event, &attempts, redrives).unwrap();
            let placed = store.commit(Batch::new().event(letter.unwrap())).await.unwrap().events[0];
            (placed.offset, placed.duplicate)
        };
        assert_eq!(commit(attempts(), 0).await, (Offset(0), false));
        assert_eq!(commit(attempts(), 0).await, (Offset(0), true));
        assert_eq!(commit(attempts(), 1).await, (Offset(1), false));
        // A seek back lets it die again without a redrive.
        assert_eq!(
            commit(Attempts { first_ms: 900, last_ms: 950, ..attempts() }, 0).await,
            (Offset(2), false)
        );
    }
}
