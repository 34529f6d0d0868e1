//! Reads of events.

use std::ops::Bound;

use async_trait::async_trait;
use promethean_model::{EventId, Offset, OffsetRange, TopicName};

use super::MemoryStore;
use super::topic::MemoryTopic;
use crate::port::{EventPage, EventReads, PageLimit, ReadError, StoredEvent, TopicInfo, TopicPage};

#[async_trait]
impl EventReads for MemoryStore {
    async fn topic_info(&self, topic: &TopicName) -> Result<Option<TopicInfo>, ReadError> {
        Ok(self.lock().topics.get(topic).map(|found| info(topic, found)))
    }

    async fn topics(&self, after: Option<&TopicName>, limit: usize) -> Result<TopicPage, ReadError> {
        let inner = self.lock();
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = inner.topics.range::<TopicName, _>((start, Bound::Unbounded));
        let topics: Vec<_> = rest.by_ref().take(limit).map(|(name, topic)| info(name, topic)).collect();
        let more = rest.next().is_some();
        let next = topics.last().filter(|_| more).map(|last| last.name.clone());
        Ok(TopicPage { topics, next })
    }

    async fn read(&self, topic: &TopicName, from: Offset, limit: PageLimit) -> Result<EventPage, ReadError> {
        let inner = self.lock();
        let Some(topic) = inner.topics.get(topic) else {
            return Ok(EventPage { events: Vec::new(), next: from, expired: 0 });
        };
        let expired = topic.earliest.saturating_sub(from.get());
        let from = Offset(from.get().max(topic.earliest));
        let mut events = Vec::new();
        let mut bytes = 0;
        let mut rest = topic.range(from.get()).peekable();
        while let Some(event) =
            rest.next_if(|_| events.len() < limit.events.max(1) && bytes < limit.bytes.max(1))
        {
            bytes += event.bytes();
            events.push(event.clone());
        }
        // After the last event of the page, or after the hole at the end of the topic.
        let next = match (rest.peek(), events.last()) {
            (Some(_), Some(last)) => last.offset.next(),
            (Some(event), None) => event.offset,
            (None, _) => Offset(topic.next).max(from),
        };
        Ok(EventPage { events, next, expired })
    }

    async fn by_id(&self, topic: &TopicName, id: EventId) -> Result<Option<StoredEvent>, ReadError> {
        Ok(self.lock().topics.get(topic).and_then(|topic| topic.by_id(id)).cloned())
    }

    async fn latest_by_keys(
        &self,
        topic: &TopicName,
        keys: &[String],
    ) -> Result<Vec<Option<StoredEvent>>, ReadError> {
        let inner = self.lock();
        let latest = |topic: &MemoryTopic, key: &String| topic.get(topic.latest_of_key(key)?).cloned();
        let topic = inner.topics.get(topic);
        Ok(keys.iter().map(|key| latest(topic?, key)).collect())
    }

    async fn key_history(
        &self,
        topic: &TopicName,
        key: &str,
        range: OffsetRange,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        let inner = self.lock();
        let Some(topic) = inner.topics.get(topic) else { return Ok(Vec::new()) };
        let newest_first = topic.key_range(key, range.start.get()..range.end.get()).rev();
        let mut history: Vec<_> = newest_first.take(limit).cloned().collect();
        history.reverse();
        Ok(history)
    }

    async fn offset_at(&self, topic: &TopicName, ts_ms: i64) -> Result<Option<Offset>, ReadError> {
        Ok(self.lock().topics.get(topic).and_then(|topic| topic.offset_at(ts_ms)))
    }
}

fn info(name: &TopicName, topic: &MemoryTopic) -> TopicInfo {
    TopicInfo {
        name: name.clone(),
        earliest: Offset(topic.earliest),
        end: Offset(topic.next),
        bytes: topic.bytes,
        held: topic.held,
    }
}
