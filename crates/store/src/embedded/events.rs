//! Reads of events.
//!
//! They run on the blocking pool, because any of them may meet cold files; handing a read over costs some 20 us. The
//! exceptions are reads of what the log still has in memory, and short reads at the end of a topic: those decide how soon
//! a consumer hears of an event, and what they want was written a moment ago.

use std::sync::Arc;

use async_trait::async_trait;
use promethean_log::{LogReadError, ReadLimit, Record, RecordPage, RecordView, Topic};
use promethean_model::{EventId, Offset, OffsetRange, TopicName};

use super::error::read_error;
use super::parts::Parts;
use super::{EmbeddedStore, blocking};
use crate::port::{
    EventBody, EventPage, EventReads, EventRef, PageLimit, ReadError, Render, RenderedPage, StoredEvent,
    TopicInfo, TopicPage,
};

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
        if is_near(&topic, from) {
            return read(&parts, &topic, from, limit);
        }
        blocking(move || read(&parts, &topic, from, limit)).await?
    }

    async fn read_rendered(
        &self,
        topic: &TopicName,
        from: Offset,
        limit: PageLimit,
        out: Vec<u8>,
        write: Arc<Render>,
    ) -> Result<RenderedPage, ReadError> {
        let parts = self.parts()?;
        let Some(topic) = parts.log.topic(topic) else {
            return Ok(RenderedPage { out, next: from, expired: 0 });
        };
        if is_near(&topic, from) {
            return render(&parts, &topic, from, limit, out, &*write);
        }
        blocking(move || render(&parts, &topic, from, limit, out, &*write)).await?
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

/// Whether reading from there waits for no disk, or too short to matter.
fn is_near(topic: &Topic, from: Offset) -> bool {
    let is_short = topic.end().saturating_sub(from.get()) <= INLINE_EVENTS_MAX;
    is_short || topic.is_in_memory(from.get())
}

fn read(parts: &Parts, topic: &Topic, from: Offset, limit: PageLimit) -> Result<EventPage, ReadError> {
    let mut events = Vec::new();
    let (next, expired) = visit(parts, topic, from, limit, |page| {
        events.extend(page.iter().map(|view| stored(topic, &view)));
        Ok(())
    })?;
    Ok(EventPage { events, next, expired })
}

fn render(
    parts: &Parts,
    topic: &Topic,
    from: Offset,
    limit: PageLimit,
    mut out: Vec<u8>,
    render: &Render,
) -> Result<RenderedPage, ReadError> {
    let (next, expired) = visit(parts, topic, from, limit, |page| {
        Ok(page.iter().try_for_each(|view| render(&mut out, &lying(topic, &view)))?)
    })?;
    Ok(RenderedPage { out, next, expired })
}

/// Hands over the events of a page, piece by piece; says where to go on, and how many offsets had expired.
fn visit(
    parts: &Parts,
    topic: &Topic,
    from: Offset,
    limit: PageLimit,
    mut take: impl FnMut(&RecordPage) -> Result<(), ReadError>,
) -> Result<(Offset, u64), ReadError> {
    let mut left = ReadLimit { events: limit.events, bytes: limit.bytes };
    let mut at = from.get();
    let mut page = loop {
        match parts.log.read(topic, at, left) {
            Ok(page) => break page,
            // Retention can move on while we look, but never back: each round begins higher.
            Err(LogReadError::OutOfRange { earliest, .. }) if earliest > at => at = earliest,
            Err(error) => return Err(read_error(error)),
        }
    };
    let expired = at - from.get();
    loop {
        take(&page)?;
        at = page.next;
        // The log keeps what is in memory in pieces and reads one at a time; what follows there belongs to the page too.
        if at >= topic.end() || !topic.is_in_memory(at) {
            return Ok((Offset(at), expired));
        }
        left.events = left.events.saturating_sub(page.len());
        left.bytes = left.bytes.saturating_sub(page.iter().map(|view| view.body.len()).sum());
        let more = left.events > 0 && left.bytes > 0;
        // Whatever is wrong there is said to whoever reads from there.
        match more.then(|| parts.log.read(topic, at, left)) {
            Some(Ok(more)) if more.next > at => page = more,
            _ => return Ok((Offset(at), expired)),
        }
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

fn lying<'a>(topic: &'a Topic, view: &RecordView<'a>) -> EventRef<'a> {
    let body = EventBody { key: view.key, meta: view.meta, payload: view.payload };
    EventRef { topic: topic.name(), offset: Offset(view.offset), ts: view.ts, id: view.id, body }
}

fn stored(topic: &Topic, view: &RecordView<'_>) -> StoredEvent {
    let mut event = StoredEvent::new(topic.name().clone(), Offset(view.offset), view.id, view.ts)
        .with_joined(view.key.map(<[u8]>::len), view.meta.len(), view.body);
    event.server_stamped = view.server_stamped;
    event
}
