//! Reads of events.
//!
//! They run on the blocking pool, because any of them may meet cold files; handing a read over costs some 20 us. The
//! exceptions are reads of what the log still has in memory, and short reads at the end of a topic: those decide how soon
//! a consumer hears of an event, and what they want was written a moment ago.

use std::sync::Arc;

use async_trait::async_trait;
use promethean_log::{ReadError as LogReadError, ReadLimit, Record, RecordView, Topic};
use promethean_model::{EventId, Offset, OffsetRange, TopicName};

use super::error::read_error;
use super::parts::Parts;
use super::{EmbeddedStore, blocking};
use crate::port::{EventPage, EventReads, PageLimit, ReadError, StoredEvent, TopicInfo, TopicPage};

/// Reads of at most so many events at the end are done where they are asked for, wherever the events are.
const INLINE_EVENTS_MAX: u64 = 64;

#[async_trait]
impl EventReads for EmbeddedStore {
    async fn topic_info(&self, topic: &TopicName) -> Result<Option<TopicInfo>, ReadError> {
        Ok(self.parts()?.log.topic(topic).map(|topic| info(&topic)))
    }

    /// Sorts all names for each page, some milliseconds for 100,000 topics.
    async fn topics(&self, after: Option<&TopicName>, limit: usize) -> Result<TopicPage, ReadError> {
        let (parts, after) = (self.parts()?, after.cloned());
        Ok(blocking(move || {
            let mut topics = parts.log.topics();
            topics.retain(|topic| after.as_ref().is_none_or(|after| topic.name() > after));
            topics.sort_unstable_by(|a, b| a.name().cmp(b.name()));
            let more = topics.len() > limit;
            topics.truncate(limit);
            let topics: Vec<_> = topics.iter().map(info).collect();
            let next = topics.last().filter(|_| more).map(|last| last.name.clone());
            TopicPage { topics, next }
        })
        .await?)
    }

    async fn read(&self, topic: &TopicName, from: Offset, limit: PageLimit) -> Result<EventPage, ReadError> {
        let parts = self.parts()?;
        let Some(topic) = parts.log.topic(topic) else {
            return Ok(EventPage { events: Vec::new(), next: from, expired: 0 });
        };
        let is_short = topic.end().saturating_sub(from.get()) <= INLINE_EVENTS_MAX;
        if is_short || topic.is_in_memory(from.get()) {
            return read(&parts, &topic, from, limit);
        }
        blocking(move || read(&parts, &topic, from, limit)).await?
    }

    async fn by_id(&self, topic: &TopicName, id: EventId) -> Result<Option<StoredEvent>, ReadError> {
        self.look_up(topic, None, move |parts, topic| {
            let record = parts.log.find_id(topic, id)?;
            Ok(record.map(|record| owned(topic, &record)))
        })
        .await
    }

    async fn latest_by_keys(
        &self,
        topic: &TopicName,
        keys: &[String],
    ) -> Result<Vec<Option<StoredEvent>>, ReadError> {
        let none = vec![None; keys.len()];
        let keys = keys.to_vec();
        self.look_up(topic, none, move |parts, topic| {
            let latest = |key: &String| {
                let record = parts.log.latest_by_key(topic, key.as_bytes())?;
                Ok(record.map(|record| owned(topic, &record)))
            };
            keys.iter().map(latest).collect()
        })
        .await
    }

    async fn key_history(
        &self,
        topic: &TopicName,
        key: &str,
        range: OffsetRange,
        limit: usize,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        let key = key.to_owned();
        self.look_up(topic, Vec::new(), move |parts, topic| {
            let range = range.start.get()..range.end.get();
            let records = parts.log.key_history(topic, key.as_bytes(), range, limit)?;
            Ok(records.iter().map(|record| owned(topic, record)).collect())
        })
        .await
    }

    async fn offset_at(&self, topic: &TopicName, ts_ms: i64) -> Result<Option<Offset>, ReadError> {
        self.look_up(topic, None, move |parts, topic| Ok(parts.log.offset_at(topic, ts_ms)?.map(Offset)))
            .await
    }
}

impl EmbeddedStore {
    async fn look_up<T: Send + 'static>(
        &self,
        topic: &TopicName,
        unknown: T,
        find: impl FnOnce(&Parts, &Topic) -> Result<T, LogReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let parts = self.parts()?;
        let Some(topic) = parts.log.topic(topic) else { return Ok(unknown) };
        blocking(move || find(&parts, &topic).map_err(read_error)).await?
    }
}

fn read(parts: &Arc<Parts>, topic: &Topic, from: Offset, limit: PageLimit) -> Result<EventPage, ReadError> {
    let wanted = ReadLimit { events: limit.events, bytes: limit.bytes };
    let mut at = from.get();
    loop {
        match parts.log.read(topic, at, wanted) {
            Ok(page) => {
                let (next, expired) = (Offset(page.next), at - from.get());
                let events = page.iter().map(|view| stored(topic, &view)).collect();
                let mut page = EventPage { events, next, expired };
                read_on(parts, topic, limit, &mut page);
                return Ok(page);
            }
            // Retention can move on while we look, but never back: each round begins higher.
            Err(LogReadError::OutOfRange { earliest, .. }) if earliest > at => at = earliest,
            Err(error) => return Err(read_error(error)),
        }
    }
}

/// Adds what follows in memory: the log keeps it in pieces and reads one at a time.
fn read_on(parts: &Arc<Parts>, topic: &Topic, limit: PageLimit, page: &mut EventPage) {
    let mut bytes: usize = page.events.iter().map(StoredEvent::bytes).sum();
    while page.events.len() < limit.events
        && bytes < limit.bytes
        && page.next.get() < topic.end()
        && topic.is_in_memory(page.next.get())
    {
        let left = ReadLimit { events: limit.events - page.events.len(), bytes: limit.bytes - bytes };
        // Whatever is wrong there is said to whoever reads from there.
        let Ok(more) = parts.log.read(topic, page.next.get(), left) else { return };
        if more.next <= page.next.get() {
            return;
        }
        page.next = Offset(more.next);
        let first = page.events.len();
        page.events.extend(more.iter().map(|view| stored(topic, &view)));
        bytes += page.events.iter().skip(first).map(StoredEvent::bytes).sum::<usize>();
    }
}

fn info(topic: &Topic) -> TopicInfo {
    let info = topic.info();
    TopicInfo {
        name: topic.name().clone(),
        earliest: Offset(info.earliest),
        end: Offset(info.end),
        bytes: info.bytes,
        held: info.held,
    }
}

fn owned(topic: &Topic, record: &Record) -> StoredEvent {
    stored(topic, &record.view())
}

fn stored(topic: &Topic, view: &RecordView<'_>) -> StoredEvent {
    let mut event = StoredEvent::new(topic.name().clone(), Offset(view.offset), view.id, view.ts)
        .with_joined(view.key.map(<[u8]>::len), view.meta.len(), view.body);
    event.server_stamped = view.server_stamped;
    event
}
