//! What a publisher asks for.

use std::borrow::Cow;
use std::collections::BTreeMap;

use promethean_model::{EventId, EventMeta, Offset, TopicName};
use serde::Serialize;
use serde_json::value::RawValue;

/// The payload as it came. It is checked when the request is, whatever it came from.
#[derive(Debug, Clone)]
pub enum Payload<'a> {
    /// JSON text.
    Text(Cow<'a, str>),
    /// JSON text in bytes that may not even be text.
    Bytes(&'a [u8]),
}

/// An event to publish. Everything but topic and payload is optional.
///
/// Expectations say how topic and key are before the commit; in a batch, before the whole batch.
#[derive(Debug, Clone)]
pub struct Publish<'a> {
    pub(super) topic: TopicName,
    pub(super) payload: Payload<'a>,
    pub(super) id: Option<EventId>,
    pub(super) ts: Option<i64>,
    pub(super) key: Option<String>,
    pub(super) meta: EventMeta,
    pub(super) expected_end: Option<Offset>,
    pub(super) expected_key: Option<Option<Offset>>,
}

impl<'a> Publish<'a> {
    /// An event with a payload: `&str`, `String`, `&[u8]`, `&RawValue`, or [`Payload::of`] a value.
    pub fn new(topic: TopicName, payload: impl Into<Payload<'a>>) -> Self {
        Self {
            topic,
            payload: payload.into(),
            id: None,
            ts: None,
            key: None,
            meta: EventMeta::default(),
            expected_end: None,
            expected_key: None,
        }
    }

    /// With an id, by which the event is recognised when it is sent again. Without one, it gets a new one.
    #[must_use]
    pub fn id(mut self, id: EventId) -> Self {
        self.id = Some(id);
        self
    }

    /// With a time, epoch ms; without one, the server's.
    #[must_use]
    pub fn ts(mut self, ts: i64) -> Self {
        self.ts = Some(ts);
        self
    }

    /// With a key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// With headers.
    #[must_use]
    pub fn headers(mut self, headers: BTreeMap<String, String>) -> Self {
        self.meta.headers = Some(headers);
        self
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.meta.headers.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// With tags.
    #[must_use]
    pub fn tags(mut self, tags: Vec<String>) -> Self {
        self.meta.tags = Some(tags);
        self
    }

    /// With the events that led to this one.
    #[must_use]
    pub fn caused_by(mut self, ids: Vec<EventId>) -> Self {
        self.meta.caused_by = Some(ids);
        self
    }

    /// With a session.
    #[must_use]
    pub fn sid(mut self, sid: impl Into<String>) -> Self {
        self.meta.sid = Some(sid.into());
        self
    }

    /// With a partition label of the publisher's choice.
    #[must_use]
    pub fn partition(mut self, partition: u32) -> Self {
        self.meta.partition = Some(partition);
        self
    }

    /// Only if the topic's next offset is this one.
    #[must_use]
    pub fn expected_offset(mut self, offset: Offset) -> Self {
        self.expected_end = Some(offset);
        self
    }

    /// Only if the latest event of the key is at this offset; `None`: only if the key has none.
    #[must_use]
    pub fn expected_key_offset(mut self, offset: Option<Offset>) -> Self {
        self.expected_key = Some(offset);
        self
    }

    /// With an id and a cause, where none was given.
    pub(crate) fn derived(mut self, id: EventId, cause: EventId) -> Self {
        self.id.get_or_insert(id);
        self.meta.caused_by.get_or_insert_with(|| vec![cause]);
        self
    }

    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }
}

impl Payload<'static> {
    /// The JSON of a value. Fails as its `Serialize` does, or if a map in it has names that are not text.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_string(value).map(|text| Self::Text(Cow::Owned(text)))
    }

    /// `null`: the key is gone.
    pub const fn tombstone() -> Self {
        Self::Text(Cow::Borrowed("null"))
    }
}

impl<'a> From<&'a str> for Payload<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Payload<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a RawValue> for Payload<'a> {
    fn from(raw: &'a RawValue) -> Self {
        // Reading a `RawValue` checks neither depth nor surrogates, so it is scanned like any other text.
        Self::Text(Cow::Borrowed(raw.get()))
    }
}

impl From<Box<RawValue>> for Payload<'_> {
    fn from(raw: Box<RawValue>) -> Self {
        Self::Text(Cow::Owned(Box::<str>::from(raw).into_string()))
    }
}
