//! Events and topics.

use std::sync::Arc;

use async_trait::async_trait;
use promethean_model::{EventId, MetaError, Offset, OffsetRange, TopicName};

use super::ReadError;

/// One event as stored. Cloning is cheap; the bytes are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its topic.
    pub topic: TopicName,
    /// Its place in the topic.
    pub offset: Offset,
    /// Its time, epoch ms.
    pub ts: i64,
    /// Its id.
    pub id: EventId,
    /// Whether the store's clock gave `ts`, not the publisher.
    pub server_stamped: bool,
    key_len: Option<usize>,
    meta_len: usize,
    /// key, meta, payload, one after the other: one allocation per event, so that holding one event of a page does
    /// not hold the page.
    body: Arc<[u8]>,
}

/// An event borrowed from the page that holds it.
#[derive(Debug, Clone, Copy)]
pub struct EventRef<'a> {
    /// Its topic.
    pub topic: &'a TopicName,
    /// Its place in the topic.
    pub offset: Offset,
    /// Its time, epoch ms.
    pub ts: i64,
    /// Its id.
    pub id: EventId,
    /// Key, meta and payload.
    pub body: EventBody<'a>,
}

/// A function that appends an event to a buffer in the form that its reader wants.
pub type Render = dyn Fn(&mut Vec<u8>, &EventRef<'_>) -> Result<(), MetaError> + Send + Sync;

/// The parts of an event that are bytes.
#[derive(Debug, Clone, Copy)]
pub struct EventBody<'a> {
    /// The key's text.
    pub key: Option<&'a [u8]>,
    /// Encoded meta.
    pub meta: &'a [u8],
    /// JSON text.
    pub payload: &'a [u8],
}

impl StoredEvent {
    /// An event without key, meta and payload; [`StoredEvent::with_body`] adds them.
    pub fn new(topic: TopicName, offset: Offset, id: EventId, ts: i64) -> Self {
        Self {
            topic,
            offset,
            ts,
            id,
            server_stamped: false,
            key_len: None,
            meta_len: 0,
            body: Arc::default(),
        }
    }

    /// Copies the event's bytes in.
    #[must_use]
    pub fn with_body(self, parts: EventBody<'_>) -> Self {
        let body = [parts.key.unwrap_or_default(), parts.meta, parts.payload].concat();
        self.with_joined(parts.key.map(<[u8]>::len), parts.meta.len(), &body)
    }

    /// Copies the event's bytes in, from where key, meta and payload lie one after the other.
    #[must_use]
    pub(crate) fn with_joined(self, key_len: Option<usize>, meta_len: usize, body: &[u8]) -> Self {
        Self { key_len, meta_len, body: Arc::from(body), ..self }
    }

    /// The key. Adapters store only keys that were text, so the check here never fails.
    pub fn key(&self) -> Option<&str> {
        let bytes = self.body.get(..self.key_len?).unwrap_or_default();
        std::str::from_utf8(bytes).ok()
    }

    /// The key's bytes.
    pub fn key_bytes(&self) -> Option<&[u8]> {
        self.body.get(..self.key_len?)
    }

    /// Encoded meta.
    pub fn meta(&self) -> &[u8] {
        let start = self.key_len.unwrap_or(0);
        self.body.get(start..start + self.meta_len).unwrap_or_default()
    }

    /// The payload as it was stored: JSON text in UTF-8, to be passed through unchanged.
    pub fn payload(&self) -> &[u8] {
        self.body.get(self.key_len.unwrap_or(0) + self.meta_len..).unwrap_or_default()
    }

    /// The event, borrowed.
    pub fn as_ref(&self) -> EventRef<'_> {
        let body = EventBody { key: self.key_bytes(), meta: self.meta(), payload: self.payload() };
        EventRef { topic: &self.topic, offset: self.offset, ts: self.ts, id: self.id, body }
    }

    /// Whether the payload is `null`.
    pub fn is_tombstone(&self) -> bool {
        self.payload() == b"null"
    }

    /// Bytes of key, meta and payload.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }
}

/// How much a page may hold. A page has at least one event if the topic has one there, whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Events.
    pub events: usize,
    /// Bytes of key, meta and payload together.
    pub bytes: usize,
}

impl Default for PageLimit {
    fn default() -> Self {
        Self { events: 1000, bytes: 1 << 20 }
    }
}

/// Events in offset order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// The events. Holes left by retention and compaction are passed over.
    pub events: Vec<StoredEvent>,
    /// The offset at which the next page begins. Equal to the start of this page when there is no event yet.
    pub next: Offset,
    /// How many offsets from the requested offset on retention has dropped; the page begins after them.
    pub expired: u64,
}

/// Events in offset order, as [`Render`] wrote them one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedPage {
    /// The buffer: what it held before, followed by the events.
    pub out: Vec<u8>,
    /// As in [`EventPage`].
    pub next: Offset,
    /// As in [`EventPage`].
    pub expired: u64,
}

/// Figures of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicInfo {
    /// Its name.
    pub name: TopicName,
    /// No event below this offset is kept.
    pub earliest: Offset,
    /// The durable end: the offset after the last event that can be read.
    pub end: Offset,
    /// Bytes kept.
    pub bytes: u64,
    /// How many offsets the last retention would have dropped if no group held them.
    pub held: u64,
}

/// Topics by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPage {
    /// The topics.
    pub topics: Vec<TopicInfo>,
    /// The name after which the next page begins, if there are more topics.
    pub next: Option<TopicName>,
}

/// Reads of events. They never return an event at or above the durable end. A topic that does not exist reads as empty.
#[async_trait]
pub trait EventReads {
    /// The figures of a topic.
    async fn topic_info(&self, topic: &TopicName) -> Result<Option<TopicInfo>, ReadError>;
    /// Topics by name, after `after`, at most `limit`.
    async fn topics(&self, after: Option<&TopicName>, limit: usize) -> Result<TopicPage, ReadError>;
    /// Events from an offset on.
    async fn read(&self, topic: &TopicName, from: Offset, limit: PageLimit) -> Result<EventPage, ReadError>;
    /// As `read`, but `render` writes every event to `out`, and no memory is allocated for single events.
    async fn read_rendered(
        &self,
        topic: &TopicName,
        from: Offset,
        limit: PageLimit,
        mut out: Vec<u8>,
        render: Arc<Render>,
    ) -> Result<RenderedPage, ReadError> {
        let EventPage { events, next, expired } = self.read(topic, from, limit).await?;
        for event in &events {
            render(&mut out, &event.as_ref())?;
        }
        Ok(RenderedPage { out, next, expired })
    }
    /// The event with an id.
    async fn by_id(&self, topic: &TopicName, id: EventId) -> Result<Option<StoredEvent>, ReadError>;
    /// The latest event of each key, in the order of the keys; `None` for a key without one.
    async fn latest_by_keys(
        &self,
        topic: &TopicName,
        keys: &[String],
    ) -> Result<Vec<Option<StoredEvent>>, ReadError>;
    /// Events of one key within a range, in offset order; the newest `limit` of them if there are more. To read the others,
    /// ask again for the range below the first event.
    async fn key_history(
        &self,
        topic: &TopicName,
        key: &str,
        range: OffsetRange,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError>;
    /// The lowest durable offset whose event has `ts` at or after `ts_ms`.
    async fn offset_at(&self, topic: &TopicName, ts_ms: i64) -> Result<Option<Offset>, ReadError>;
}
