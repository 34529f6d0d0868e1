//! The checks of a publish, and the event to append.

use std::borrow::Cow;

use promethean_model::json::{JsonError, JsonFault, minify};
use promethean_model::limits::{EventParts, PARTITIONS_MAX};
use promethean_model::{EventId, EventMeta, IdMint, Limits, Offset, TopicName, TopicSettings, partition_of};
use promethean_store::port::{AppendEvent, Batch, EventIdSource};

use super::request::{Payload, Publish};
use crate::error::BusError;
use crate::schemas::{SchemaVersion, Schemas};

/// The origin of a publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishedBy {
    /// A user. Topics of the system are refused.
    User,
    /// The server itself. It may write to any topic, and payloads of any length.
    System,
}

/// An event that is ready to be committed, with the conditions of its commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// The event.
    pub(crate) event: AppendEvent,
    /// Its partition label.
    pub(crate) partition: Option<u32>,
    /// The topic's next offset must be this one.
    pub(crate) expected_end: Option<Offset>,
    /// The latest event of the key must be at this offset. Only with a key.
    pub(crate) expected_key: Option<Option<Offset>>,
    /// The schema version that the payload fits.
    pub(crate) version: Option<SchemaVersion>,
}

/// The parts of a reply that the store does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingReply {
    /// The event's id.
    pub(crate) id: EventId,
    /// Its topic.
    pub(crate) topic: TopicName,
    /// Its partition label.
    pub(crate) partition: Option<u32>,
}

/// Checks one event as far as that can be done at once, and encodes it.
pub(crate) fn prepare(
    schemas: &Schemas,
    mut request: Publish<'_>,
    settings: &TopicSettings,
    writer: PublishedBy,
) -> Result<Prepared, BusError> {
    let base = &schemas.base;
    if base.is_closed() {
        return Err(BusError::Closed);
    }
    let payload = check(&mut request, writer, &base.options.limits)?;
    let version = schemas.gate(&request.topic, &payload, &mut request.meta, settings)?;
    let prepared = encode(request, payload, settings, &base.mint, base.clock.wall_ms())?;
    Ok(Prepared { version, ..prepared })
}

impl Publish<'_> {
    /// Checks everything about the request of a user that needs no setting of its topic.
    pub fn check(mut self, limits: &Limits) -> Result<(), BusError> {
        check(&mut self, PublishedBy::User, limits).map(drop)
    }
}

/// The payload of a user's request as it is stored, if nothing about the request is refused.
pub(crate) fn checked_payload(mut request: Publish<'_>, limits: &Limits) -> Result<String, BusError> {
    check(&mut request, PublishedBy::User, limits)
}

/// Checks everything about a request that needs no setting of its topic, and gives the payload as it will be stored.
fn check(request: &mut Publish<'_>, writer: PublishedBy, limits: &Limits) -> Result<String, BusError> {
    if writer == PublishedBy::User && request.topic.is_system() {
        // Parsing again tells which rule the name breaks.
        TopicName::parse_user(request.topic.as_str())?;
    }
    if request.expected_key.is_some() && request.key.is_none() {
        return Err(BusError::ExpectationWithoutKey);
    }
    let payload = minimal(std::mem::replace(&mut request.payload, Payload::tombstone()))?;
    let payload_bytes = if writer == PublishedBy::User { payload.len() } else { 0 };
    let parts = EventParts { key: request.key.as_deref(), payload_bytes, meta: &request.meta };
    limits.check_event(&parts)?;
    check_lines(&request.meta)?;
    Ok(payload)
}

/// Applies the topic's settings, gives an id and a partition label where there is none, and encodes the event.
fn encode(
    request: Publish<'_>,
    payload: String,
    settings: &TopicSettings,
    mint: &IdMint,
    wall_ms: i64,
) -> Result<Prepared, BusError> {
    let Publish { topic, payload: _, id, ts, key, mut meta, expected_end, expected_key } = request;
    if settings.compacted && key.is_none() {
        return Err(BusError::KeyRequired { topic });
    }
    let id = match id {
        Some(id) => EventIdSource::Given(id),
        None => EventIdSource::Minted(mint.mint(u64::try_from(wall_ms).unwrap_or(0))),
    };
    let computed = |n| partition_of(key.as_deref(), &id.id(), n);
    let partition = label(meta.partition, settings.partitions, computed)?;
    meta.partition = partition;
    let mut encoded = Vec::new();
    meta.encode(&mut encoded);
    let event = AppendEvent { topic, id, ts, key, meta: encoded, payload };
    Ok(Prepared { event, partition, expected_end, expected_key, version: None })
}

impl Prepared {
    /// Whether the event has no conditions.
    pub(crate) const fn expects_nothing(&self) -> bool {
        self.expected_end.is_none() && self.expected_key.is_none()
    }

    /// Adds the event and its conditions to a batch.
    pub(crate) fn add_to(self, batch: &mut Batch) -> PendingReply {
        let topic = &self.event.topic;
        if let Some(end) = self.expected_end {
            batch.expected_ends.push((topic.clone(), end));
        }
        if let (Some(latest), Some(key)) = (self.expected_key, &self.event.key) {
            batch.expected_keys.push((topic.clone(), key.clone(), latest));
        }
        let pending =
            PendingReply { id: self.event.id.id(), topic: topic.clone(), partition: self.partition };
        batch.events.push(self.event);
        pending
    }
}

fn minimal(payload: Payload<'_>) -> Result<String, BusError> {
    let text = match payload {
        Payload::Text(text) => text,
        Payload::Bytes(bytes) => Cow::Borrowed(
            str::from_utf8(bytes)
                .map_err(|error| JsonError { fault: JsonFault::Utf8, at: error.valid_up_to() })?,
        ),
    };
    match text {
        Cow::Borrowed(text) => Ok(minify(text)?.into_owned()),
        Cow::Owned(text) => {
            let small = match minify(&text)? {
                Cow::Borrowed(same) if same.len() == text.len() => None,
                small => Some(small.into_owned()),
            };
            Ok(small.unwrap_or(text))
        }
    }
}

fn label(
    given: Option<u32>,
    partitions: Option<u32>,
    computed: impl FnOnce(u32) -> u32,
) -> Result<Option<u32>, BusError> {
    let Some(given) = given else { return Ok(partitions.map(computed)) };
    let partitions = partitions.unwrap_or(PARTITIONS_MAX);
    if given < partitions { Ok(Some(given)) } else { Err(BusError::BadPartition { given, partitions }) }
}

/// Headers and sessions end up in lines of other protocols and of logs.
fn check_lines(meta: &EventMeta) -> Result<(), BusError> {
    let breaks = |text: &str| text.bytes().any(|byte| byte.is_ascii_control());
    let refuse = |what| Err(BusError::ControlCharacter { what });
    for (name, value) in meta.headers.iter().flatten() {
        if breaks(name) {
            return refuse("the name of a header".to_owned());
        }
        if breaks(value) {
            return refuse(format!("header `{name}`"));
        }
    }
    match &meta.sid {
        Some(sid) if breaks(sid) => refuse("`sid`".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use promethean_model::SystemClock;
    use promethean_store::memory::{MemoryOptions, MemoryStore};
    use promethean_store::port::{CommitError, Store};
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::publish::Published;

    const NOW: i64 = 1_700_000_000_000;

    fn topic(text: &str) -> TopicName {
        text.parse().unwrap()
    }

    fn user(mut request: Publish<'_>) -> Result<String, BusError> {
        check(&mut request, PublishedBy::User, &Limits::default())
    }

    fn prepare(mut request: Publish<'_>, settings: &TopicSettings) -> Result<Prepared, BusError> {
        let payload = check(&mut request, PublishedBy::User, &Limits::default())?;
        encode(request, payload, settings, &IdMint::with_seed(1), NOW)
    }

    fn code<T: std::fmt::Debug>(result: Result<T, BusError>) -> &'static str {
        result.unwrap_err().code()
    }

    #[test]
    fn the_least_event() {
        let prepared = prepare(Publish::new(topic("a"), "{ \"n\": 1 }"), &TopicSettings::default()).unwrap();
        assert_eq!(prepared.event.payload, "{\"n\":1}");
        assert!(prepared.event.meta.is_empty());
        assert_eq!((prepared.partition, prepared.event.ts, prepared.event.key.clone()), (None, None, None));
        let EventIdSource::Minted(id) = prepared.event.id else { panic!("not minted") };
        assert_eq!(id.unix_ms(), Some(NOW as u64));
    }

    #[test]
    fn everything_given_arrives() {
        let id = EventId::from_bytes([7; 16]);
        let request = Publish::new(topic("a.b"), &b"null"[..])
            .id(id)
            .ts(-5)
            .key("k")
            .header("x-a", "1")
            .tags(vec!["t".into()])
            .caused_by(vec![id])
            .sid("s")
            .partition(3)
            .expected_offset(Offset(4))
            .expected_key_offset(None);
        let prepared =
            prepare(request, &TopicSettings { partitions: Some(4), ..TopicSettings::default() }).unwrap();
        assert_eq!(prepared.event.id, EventIdSource::Given(id));
        let meta = EventMeta::decode(&prepared.event.meta).unwrap();
        assert_eq!((meta.partition, meta.sid.as_deref()), (Some(3), Some("s")));
        assert_eq!(meta.headers.unwrap().get("x-a").map(String::as_str), Some("1"));
        let mut batch = Batch::new();
        let pending = prepared.add_to(&mut batch);
        assert_eq!(pending, PendingReply { id, topic: topic("a.b"), partition: Some(3) });
        assert_eq!(batch.expected_ends, [(topic("a.b"), Offset(4))]);
        assert_eq!(batch.expected_keys, [(topic("a.b"), "k".to_owned(), None)]);
        assert_eq!(batch.events.len(), 1);
    }

    #[test]
    fn payloads_of_every_kind() {
        let stored = |payload: Payload<'_>| {
            prepare(Publish::new(topic("a"), payload), &TopicSettings::default()).map(|p| p.event.payload)
        };
        let raw: Box<RawValue> = serde_json::from_str("[ 1 ]").unwrap();
        assert_eq!(stored(raw.as_ref().into()).unwrap(), "[1]");
        assert_eq!(stored(raw.into()).unwrap(), "[1]");
        assert_eq!(stored(" 1 ".to_owned().into()).unwrap(), "1");
        assert_eq!(stored("1".to_owned().into()).unwrap(), "1");
        assert_eq!(stored(Payload::of(&vec![1, 2]).unwrap()).unwrap(), "[1,2]");
        assert_eq!(stored(Payload::tombstone()).unwrap(), "null");
        assert_eq!(code(stored((&b"\"\xff\""[..]).into())), "invalid_json");
        // Things that a raw value lets pass.
        let deep: Box<RawValue> =
            serde_json::from_str(&format!("{}{}", "[".repeat(1000), "]".repeat(1000))).unwrap();
        assert_eq!(code(stored(deep.into())), "invalid_json");
    }

    #[test]
    fn refusals() {
        let plain = TopicSettings::default();
        let one = |topic_name: &str| Publish::new(topic(topic_name), "1");
        for name in ["a.dlq", "_alarms", "a.v2", "a.snapshot"] {
            assert_eq!(code(user(one(name))), "reserved_name");
            assert!(check(&mut one(name), PublishedBy::System, &Limits::default()).is_ok());
        }
        assert_eq!(code(user(one("a").key("k".repeat(1025)))), "key_too_large");
        assert_eq!(code(user(one("a").header("a", "x".repeat(9000)))), "headers_too_large");
        assert_eq!(code(user(one("a").header("a", "b\r\nc"))), "control_character");
        assert_eq!(code(user(one("a").header("a\0", "b"))), "control_character");
        assert_eq!(code(user(one("a").sid("s\n"))), "control_character");
        assert_eq!(code(user(one("a").expected_key_offset(None))), "key_required");
        assert_eq!(code(user(Publish::new(topic("a"), "{"))), "invalid_json");
        let compacted = TopicSettings { compacted: true, ..plain.clone() };
        assert_eq!(code(prepare(one("a"), &compacted)), "key_required");
        assert!(prepare(one("a").key("k"), &compacted).is_ok());
        let parted = TopicSettings { partitions: Some(3), ..plain.clone() };
        assert_eq!(code(prepare(one("a").partition(3), &parted)), "bad_partition");
        assert_eq!(code(prepare(one("a").partition(PARTITIONS_MAX), &plain)), "bad_partition");
        assert_eq!(prepare(one("a").partition(9), &plain).unwrap().partition, Some(9));
    }

    #[test]
    fn the_cap_counts_what_is_stored() {
        let limits = Limits { payload_bytes_max: 7, ..Limits::default() };
        let check = |text: &str, writer| check(&mut Publish::new(topic("a"), text), writer, &limits);
        assert!(check("[1,   2,   3]", PublishedBy::User).is_ok());
        assert_eq!(code(check("[1,2,33]", PublishedBy::User)), "payload_too_large");
        assert!(check("[1,2,33]", PublishedBy::System).is_ok());
    }

    #[tokio::test]
    async fn the_store_answers_as_the_publisher_expects() {
        let store = MemoryStore::new(Arc::new(SystemClock::new()), MemoryOptions::default());
        let publish = async |request: Publish<'_>| -> Result<Published, BusError> {
            let mut batch = Batch::new();
            let pending = prepare(request, &TopicSettings::default())?.add_to(&mut batch);
            let receipt = store.commit(batch).await.map_err(|error: CommitError| BusError::from(error))?;
            Ok(Published::all(vec![pending], &receipt).remove(0))
        };
        let id = EventId::from_bytes([3; 16]);
        let keyed = |payload| Publish::new(topic("a"), payload).id(id).key("k");
        let first = publish(keyed("{\"n\": 1}").expected_key_offset(None)).await.unwrap();
        assert_eq!((first.id, first.offset, first.duplicate), (id, Offset(0), false));
        // Whitespace is no difference.
        let again = publish(keyed("{ \"n\":1 }")).await.unwrap();
        assert_eq!(again, Published { duplicate: true, ..first });
        assert_eq!(code(publish(keyed("2")).await), "id_conflict");
        let next = |offset| Publish::new(topic("a"), "2").expected_offset(Offset(offset));
        assert_eq!(code(publish(next(0)).await), "conflict");
        assert_eq!(publish(next(1)).await.unwrap().offset, Offset(1));
        let key = |latest| Publish::new(topic("a"), "3").key("k").expected_key_offset(latest);
        assert_eq!(code(publish(key(None)).await), "conflict");
        assert_eq!(publish(key(Some(Offset(0)))).await.unwrap().offset, Offset(2));
    }

    proptest! {
        #[test]
        fn labels_are_those_of_the_model(key in proptest::option::of(any::<String>()), n in 1..=PARTITIONS_MAX) {
            let settings = TopicSettings { partitions: Some(n), ..TopicSettings::default() };
            let mut request = Publish::new(topic("a"), "1");
            request.key = key.clone();
            let prepared = prepare(request, &settings).unwrap();
            let expected = partition_of(key.as_deref(), &prepared.event.id.id(), n);
            prop_assert_eq!(prepared.partition, Some(expected));
            prop_assert_eq!(EventMeta::decode(&prepared.event.meta).unwrap().partition, Some(expected));
        }
    }
}
