//! Events and topics.

use std::sync::Arc;

use async_trait::async_trait;
use promethean_model::{EventId, EventRef, MetaError, Offset, OffsetRange, StoredEvent, TopicName};

use super::ReadError;

/// A function that appends an event to a buffer in the form that its reader wants.
pub type Render = dyn Fn(&mut Vec<u8>, &EventRef<'_>) -> Result<(), MetaError> + Send + Sync;

/// How much a page may hold. A page has at least one event where there is one, whatever its size.
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
