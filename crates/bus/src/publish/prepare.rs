//! The checks of a publish, and the event to append.

use std::borrow::Cow;

use promethean_model::json::{JsonError, JsonFault, minify};
use promethean_model::limits::{EventParts, PARTITIONS_MAX};
use promethean_model::{EventId, EventMeta, IdMint, Limits, Offset, TopicName, TopicSettings, partition_of};
use promethean_store::port::{AppendEvent, Batch, EventIdSource};

use super::request::{Payload, Publish};
use crate::error::BusError;
use crate::schema::Stamp;

/// Who publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// A user: the system's topics are refused.
    User,
    /// The system itself: any topic, and a payload of any length.
    System,
}

/// A request that can be published as far as names, limits and JSON go. Between this and [`Checked::prepare`] there is
/// room for rules that need the payload, such as schemas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    topic: TopicName,
    payload: String,
    id: Option<EventId>,
    ts: Option<i64>,
    key: Option<String>,
    meta: EventMeta,
    expected_end: Option<Offset>,
    expected_key: Option<Option<Offset>>,
}

/// An event ready to be committed, and what must hold for that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// The event.
    pub event: AppendEvent,
    /// Its label.
    pub partition: Option<u32>,
    /// What the topic's next offset must be.
    pub expected_end: Option<Offset>,
    /// What the offset of the key's latest event must be. Only with a key.
    pub expected_key: Option<Option<Offset>>,
    /// The version of the schema it is stamped with.
    pub stamp: Option<Stamp>,
}

/// What the answer needs besides the receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The event's id.
    pub id: EventId,
    /// Its topic.
    pub topic: TopicName,
    /// Its label.
    pub partition: Option<u32>,
}

/// Checks everything about a request that needs no setting of its topic.
pub fn check(request: Publish<'_>, writer: Writer, limits: &Limits) -> Result<Checked, BusError> {
    let Publish { topic, payload, id, ts, key, meta, expected_end, expected_key } = request;
    if writer == Writer::User && topic.is_system() {
        // Parsing again is how the model says which rule the name breaks.
        TopicName::parse_user(topic.as_str())?;
    }
    if expected_key.is_some() && key.is_none() {
        return Err(BusError::ExpectationWithoutKey);
    }
    let payload = minimal(payload)?;
    let payload_bytes = if writer == Writer::User { payload.len() } else { 0 };
    limits.check_event(&EventParts { key: key.as_deref(), payload_bytes, meta: &meta })?;
    check_lines(&meta)?;
    Ok(Checked { topic, payload, id, ts, key, meta, expected_end, expected_key })
}

impl Checked {
    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The payload as it will be stored.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// Sets a header in the system's name; the caps on headers are for publishers.
    pub fn set_header(&mut self, name: &str, value: String) {
        self.meta.headers.get_or_insert_default().insert(name.to_owned(), value);
    }

    /// Takes a header out.
    pub fn take_header(&mut self, name: &str) -> Option<String> {
        let headers = self.meta.headers.as_mut()?;
        let value = headers.remove(name)?;
        if headers.is_empty() {
            self.meta.headers = None;
        }
        Some(value)
    }

    /// Applies the topic's settings, gives an id and a label where there is none, and encodes.
    pub fn prepare(
        mut self,
        settings: &TopicSettings,
        mint: &IdMint,
        wall_ms: i64,
    ) -> Result<Prepared, BusError> {
        if settings.compacted && self.key.is_none() {
            return Err(BusError::KeyRequired { topic: self.topic });
        }
        let id = match self.id {
            Some(id) => EventIdSource::Given(id),
            None => EventIdSource::Minted(mint.mint(u64::try_from(wall_ms).unwrap_or(0))),
        };
        let key = self.key.as_deref();
        let partition = label(self.meta.partition, settings.partitions, |n| partition_of(key, &id.id(), n))?;
        self.meta.partition = partition;
        let mut meta = Vec::new();
        self.meta.encode(&mut meta);
        let event =
            AppendEvent { topic: self.topic, id, ts: self.ts, key: self.key, meta, payload: self.payload };
        let Self { expected_end, expected_key, .. } = self;
        Ok(Prepared { event, partition, expected_end, expected_key, stamp: None })
    }
}

impl Prepared {
    /// Whether it can be appended whatever else is there.
    pub const fn expects_nothing(&self) -> bool {
        self.expected_end.is_none() && self.expected_key.is_none()
    }

    /// Adds event and expectations to a batch.
    pub fn add_to(self, batch: &mut Batch) -> Pending {
        let topic = &self.event.topic;
        if let Some(end) = self.expected_end {
            batch.expected_ends.push((topic.clone(), end));
        }
        if let (Some(latest), Some(key)) = (self.expected_key, &self.event.key) {
            batch.expected_keys.push((topic.clone(), key.clone(), latest));
        }
        let pending = Pending { id: self.event.id.id(), topic: topic.clone(), partition: self.partition };
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
    use promethean_store::memory::{MemoryStore, Options};
    use promethean_store::port::{CommitError, Store};
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::publish::Published;

    const NOW: i64 = 1_700_000_000_000;

    fn topic(text: &str) -> TopicName {
        text.parse().unwrap()
    }

    fn user(request: Publish<'_>) -> Result<Checked, BusError> {
        check(request, Writer::User, &Limits::default())
    }

    fn prepare(request: Publish<'_>, settings: &TopicSettings) -> Result<Prepared, BusError> {
        user(request)?.prepare(settings, &IdMint::with_seed(1), NOW)
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
        assert_eq!(pending, Pending { id, topic: topic("a.b"), partition: Some(3) });
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
            assert!(check(one(name), Writer::System, &Limits::default()).is_ok());
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
        let check = |text: &str, writer| check(Publish::new(topic("a"), text), writer, &limits);
        assert!(check("[1,   2,   3]", Writer::User).is_ok());
        assert_eq!(code(check("[1,2,33]", Writer::User)), "payload_too_large");
        assert!(check("[1,2,33]", Writer::System).is_ok());
    }

    #[test]
    fn a_schemas_stamp_is_stored() {
        let mut checked = user(Publish::new(topic("a"), "1")).unwrap();
        assert_eq!((checked.payload(), checked.topic().as_str()), ("1", "a"));
        checked.set_header("x-schema-version", "3".into());
        let prepared = checked.prepare(&TopicSettings::default(), &IdMint::with_seed(1), NOW).unwrap();
        let meta = EventMeta::decode(&prepared.event.meta).unwrap();
        assert_eq!(meta.headers.unwrap().get("x-schema-version").map(String::as_str), Some("3"));
    }

    #[tokio::test]
    async fn the_store_answers_as_the_publisher_expects() {
        let store = MemoryStore::new(Arc::new(SystemClock::new()), Options::default());
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
