//! A stored event: fixed parts beside one block of bytes.

use std::sync::Arc;

use crate::{EventId, Offset, TopicName};

/// An event as a store returns it. Clones share the bytes, so a clone is cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its topic.
    pub topic: TopicName,
    /// Its offset in the topic.
    pub offset: Offset,
    /// Its time, epoch ms.
    pub ts: i64,
    /// Its id.
    pub id: EventId,
    /// Whether the store set `ts` by its clock; `false` where the publisher gave it.
    pub server_stamped: bool,
    key_len: Option<usize>,
    meta_len: usize,
    /// Key, meta and payload, one after the other. One allocation per event, so that a reader that keeps one
    /// event of a page does not keep the memory of the whole page.
    body: Arc<[u8]>,
}

/// A borrowed view of an event, without a copy of its bytes.
#[derive(Debug, Clone, Copy)]
pub struct EventRef<'a> {
    /// Its topic.
    pub topic: &'a TopicName,
    /// Its offset in the topic.
    pub offset: Offset,
    /// Its time, epoch ms.
    pub ts: i64,
    /// Its id.
    pub id: EventId,
    /// Its key, meta and payload.
    pub body: EventBody<'a>,
}

/// The parts of an event that are stored as bytes.
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
    /// Makes an event without key, meta and payload; [`StoredEvent::with_body`] adds them.
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

    /// Copies key, meta and payload into the event.
    #[must_use]
    pub fn with_body(self, parts: EventBody<'_>) -> Self {
        let body = [parts.key.unwrap_or_default(), parts.meta, parts.payload].concat();
        self.with_joined(parts.key.map(<[u8]>::len), parts.meta.len(), &body)
    }

    /// Copies key, meta and payload into the event from one block that holds them one after the other.
    #[must_use]
    pub fn with_joined(self, key_len: Option<usize>, meta_len: usize, body: &[u8]) -> Self {
        Self { key_len, meta_len, body: Arc::from(body), ..self }
    }

    /// The key as text. Stores take keys as text only, so this is `None` only where the event has no key.
    #[inline]
    pub fn key(&self) -> Option<&str> {
        let bytes = self.body.get(..self.key_len?).unwrap_or_default();
        std::str::from_utf8(bytes).ok()
    }

    /// The key as bytes.
    #[inline]
    pub fn key_bytes(&self) -> Option<&[u8]> {
        self.body.get(..self.key_len?)
    }

    /// Encoded meta.
    #[inline]
    pub fn meta(&self) -> &[u8] {
        let start = self.key_len.unwrap_or(0);
        self.body.get(start..start + self.meta_len).unwrap_or_default()
    }

    /// The payload as it was stored: JSON text in UTF-8.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.body.get(self.key_len.unwrap_or(0) + self.meta_len..).unwrap_or_default()
    }

    /// A borrowed view of this event.
    #[inline]
    pub fn as_ref(&self) -> EventRef<'_> {
        let body = EventBody { key: self.key_bytes(), meta: self.meta(), payload: self.payload() };
        EventRef { topic: &self.topic, offset: self.offset, ts: self.ts, id: self.id, body }
    }

    /// Whether the event is a tombstone: its payload is `null`.
    #[inline]
    pub fn is_tombstone(&self) -> bool {
        self.payload() == b"null"
    }

    /// The bytes of key, meta and payload together.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.body.len()
    }
}
