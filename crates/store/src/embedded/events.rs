//! Reads of events.
//!
//! They run on the blocking pool, because any read may meet cold files; handing a read over costs some 20 us. Two kinds
//! of reads run on the caller's thread: reads of events that the log still has in memory, and short reads at the end of
//! a topic. These decide how soon a consumer gets an event, and their events were written a moment ago.

use std::sync::Arc;

use async_trait::async_trait;
use promethean_log::{LogReadError, ReadLimit, Record, RecordPage, RecordView, Topic};
use promethean_model::{EventId, Offset, OffsetRange, TopicName};

use super::error::read_error;
use super::open_store::OpenStore;
use super::{EmbeddedStore, blocking};
use crate::port::{
    EventBody, EventPage, EventReads, EventRef, PageLimit, ReadError, Render, RenderedPage, StoredEvent,
    TopicInfo, TopicPage,
};

/// Reads of at most this many events at the end of a topic run on the caller's thread.
const INLINE_EVENTS_MAX: u64 = 64;

#[async_trait]
impl EventReads for EmbeddedStore {
    async fn topic_info(&self, topic: &TopicName) -> Result<Option<TopicInfo>, ReadError> {
        Ok(self.opened()?.log.topic(topic).map(|topic| info(&topic)))
    }

    async fn topics(&self, after: Option<&TopicName>, limit: usize) -> Result<TopicPage, ReadError> {
        let (store, after) = (self.opened()?, after.cloned());
        Ok(blocking(move || {
            let mut topics = store.log.topics_after(after.as_ref(), limit.saturating_add(1));
            let more = topics.len() > limit;
            topics.truncate(limit);
            let topics: Vec<_> = topics.iter().map(info).collect();
            let next = topics.last().filter(|_| more).map(|last| last.name.clone());
            TopicPage { topics, next }
        })
        .await?)
    }

    async fn read(&self, topic: &TopicName, from: Offset, limit: PageLimit) -> Result<EventPage, ReadError> {
        let store = self.opened()?;
        let Some(topic) = store.log.topic(topic) else {
            return Ok(EventPage { events: Vec::new(), next: from, expired: 0 });
        };
        if is_near(&topic, from) {
            return read(&store, &topic, from, limit);
        }
        blocking(move || read(&store, &topic, from, limit)).await?
    }

    async fn read_rendered(
        &self,
        topic: &TopicName,
        from: Offset,
        limit: PageLimit,
        out: Vec<u8>,
        write: Arc<Render>,
    ) -> Result<RenderedPage, ReadError> {
        let store = self.opened()?;
        let Some(topic) = store.log.topic(topic) else {
            return Ok(RenderedPage { out, next: from, expired: 0 });
        };
        if is_near(&topic, from) {
            return render(&store, &topic, from, limit, out, &*write);
        }
        blocking(move || render(&store, &topic, from, limit, out, &*write)).await?
    }

    async fn by_id(&self, topic: &TopicName, id: EventId) -> Result<Option<StoredEvent>, ReadError> {
        self.look_up(topic, None, move |store, topic| {
            let record = store.log.find_id(topic, id)?;
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
        self.look_up(topic, none, move |store, topic| {
            let latest = |key: &String| {
                let record = store.log.latest_by_key(topic, key.as_bytes())?;
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
        self.look_up(topic, Vec::new(), move |store, topic| {
            let range = range.start.get()..range.end.get();
            let records = store.log.key_history(topic, key.as_bytes(), range, limit)?;
            Ok(records.iter().map(|record| owned(topic, record)).collect())
        })
        .await
    }

    async fn offset_at(&self, topic: &TopicName, ts_ms: i64) -> Result<Option<Offset>, ReadError> {
        self.look_up(topic, None, move |store, topic| Ok(store.log.offset_at(topic, ts_ms)?.map(Offset)))
            .await
    }
}

impl EmbeddedStore {
    /// Looks for events of a topic on the blocking pool; returns `unknown` for an unknown topic.
    async fn look_up<T: Send + 'static>(
        &self,
        topic: &TopicName,
        unknown: T,
        find: impl FnOnce(&OpenStore, &Topic) -> Result<T, LogReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let store = self.opened()?;
        let Some(topic) = store.log.topic(topic) else { return Ok(unknown) };
        blocking(move || find(&store, &topic).map_err(read_error)).await?
    }
}

/// Whether a read from this offset waits for no disk, or too short to matter.
fn is_near(topic: &Topic, from: Offset) -> bool {
    let is_short = topic.end().saturating_sub(from.get()) <= INLINE_EVENTS_MAX;
    is_short || topic.is_in_memory(from.get())
}

fn read(store: &OpenStore, topic: &Topic, from: Offset, limit: PageLimit) -> Result<EventPage, ReadError> {
    let mut events = Vec::new();
    let (next, expired) = visit(store, topic, from, limit, |page| {
        events.extend(page.iter().map(|view| stored(topic, &view)));
        Ok(())
    })?;
    Ok(EventPage { events, next, expired })
}

fn render(
    store: &OpenStore,
    topic: &Topic,
    from: Offset,
    limit: PageLimit,
    mut out: Vec<u8>,
    render: &Render,
) -> Result<RenderedPage, ReadError> {
    let (next, expired) = visit(store, topic, from, limit, |page| {
        Ok(page.iter().try_for_each(|view| render(&mut out, &event_ref(topic, &view)))?)
    })?;
    Ok(RenderedPage { out, next, expired })
}

/// Hands over the events of a page, piece by piece. Returns where the next page begins, and how many offsets had
/// expired.
fn visit(
    store: &OpenStore,
    topic: &Topic,
    from: Offset,
    limit: PageLimit,
    mut take: impl FnMut(&RecordPage) -> Result<(), ReadError>,
) -> Result<(Offset, u64), ReadError> {
    let mut left = ReadLimit { events: limit.events, bytes: limit.bytes };
    let mut at = from.get();
    let mut page = loop {
        match store.log.read(topic, at, left) {
            Ok(page) => break page,
            // Retention can move on during the loop, but never back: each round begins higher.
            Err(LogReadError::OutOfRange { earliest, .. }) if earliest > at => at = earliest,
            Err(error) => return Err(read_error(error)),
        }
    };
    let expired = at - from.get();
    loop {
        take(&page)?;
        at = page.next;
        // The log keeps its tail in memory in pieces and reads one piece at a time; the next piece belongs to this page too.
        if at >= topic.end() || !topic.is_in_memory(at) {
            return Ok((Offset(at), expired));
        }
        left.events = left.events.saturating_sub(page.len());
        left.bytes = left.bytes.saturating_sub(page.iter().map(|view| view.body.len()).sum());
        let more = left.events > 0 && left.bytes > 0;
        // An error there is reported to the read that begins there.
        match more.then(|| store.log.read(topic, at, left)) {
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

fn event_ref<'a>(topic: &'a Topic, view: &RecordView<'a>) -> EventRef<'a> {
    let body = EventBody { key: view.key, meta: view.meta, payload: view.payload };
    EventRef { topic: topic.name(), offset: Offset(view.offset), ts: view.ts, id: view.id, body }
}

fn stored(topic: &Topic, view: &RecordView<'_>) -> StoredEvent {
    let mut event = StoredEvent::new(topic.name().clone(), Offset(view.offset), view.id, view.ts)
        .with_joined(view.key.map(<[u8]>::len), view.meta.len(), view.body);
    event.server_stamped = view.server_stamped;
    event
}
