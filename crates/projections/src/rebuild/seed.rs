//! Snapshots that stand for the beginning of a topic.
//!
//! Of each key the last snapshot counts, as if it were the key's last event that is in it; then come the events that are
//! in no snapshot. What is written after [`Seed::open`] does not count, so that the two fit together; whoever reads one
//! holds the snapshots meanwhile, so that compaction leaves them alone.
//!
//! Every event below the compactor's cursor is in a snapshot (C1 of [`crate::compactor`]), so that those may be gone.

use std::collections::HashMap;

use promethean_model::{EventId, Offset, OffsetRange, TopicName};
use promethean_store::port::{EventBody, PageLimit, ReadError, Store, StoredEvent};

use crate::definition::bad;
use crate::error::ProjectionError;
use crate::logic::Failed;
use crate::snapshot::{self, Snapshot, recreated};

/// Snapshots of a page, and their bytes.
const PAGE: PageLimit = PageLimit { events: 200, bytes: 1 << 20 };
/// Keys whose last snapshots are looked up at once.
const KEYS: usize = 50;

/// The snapshots there were at some moment.
pub(crate) struct Seed {
    topic: TopicName,
    snapshots: TopicName,
    /// The next one.
    at: Offset,
    /// Behind the last one.
    end: Offset,
    /// Every event below is in them.
    from: Offset,
    /// No event at or after this is in any of them.
    through: Offset,
}

/// The last snapshot of a key.
struct Last {
    /// Where it is.
    at: Offset,
    /// The offset after the last event in it.
    taken_at: Offset,
}

impl Seed {
    /// Looks whether there are snapshots and whether they will do; `None` if there are none.
    pub(crate) async fn open(
        store: &dyn Store,
        topic: &TopicName,
        snapshots: &TopicName,
        accept_loss: bool,
    ) -> Result<Option<Self>, ProjectionError> {
        // First: what is in snapshots then is in those below their end, which is looked up after.
        let compacted = store.cursor(&snapshot::group(topic, snapshots)?, topic).await?;
        let end = store.durable_end(snapshots);
        let Some(last) = snapshot::last(store, snapshots, end).await? else { return Ok(None) };
        if last.is_partial() {
            let reason = "they are of some keys only, or of keys other than the events' own; a projector cannot begin \
                          with them";
            return Err(bad(format!("the snapshots in `{snapshots}`"), reason.to_owned()));
        }
        let info = store.topic_info(topic).await?;
        let (earliest, topic_end) =
            info.map_or((Offset::ZERO, Offset::ZERO), |info| (info.earliest, info.end));
        if snapshot::is_of_another_topic(store, topic, &last, topic_end).await? {
            return Err(recreated(topic));
        }
        let from = compacted.map_or(last.resume_from(), |cursor| cursor.floor.max(last.resume_from()));
        if (last.since > Offset::ZERO || from < earliest) && !accept_loss {
            let limit = PageLimit { events: 1, ..PageLimit::default() };
            let first = store.read(topic, earliest, limit).await?;
            return Err(ProjectionError::HistoryGone {
                topic: topic.clone(),
                earliest: first.events.first().map(|event| event.ts),
                fix: "its snapshots miss events too; rebuild with `accept_loss` to do without them",
            });
        }
        let (topic, snapshots) = (topic.clone(), snapshots.clone());
        let through = last.offset.max(from);
        Ok(Some(Self { topic, snapshots, at: Offset::ZERO, end, from, through }))
    }

    /// The topic of the snapshots.
    pub(crate) const fn snapshots(&self) -> &TopicName {
        &self.snapshots
    }

    /// Where to go on in the topic.
    pub(crate) const fn from(&self) -> Offset {
        self.from
    }

    /// From here on no event is in a snapshot.
    pub(crate) const fn through(&self) -> Offset {
        self.through
    }

    /// Some more snapshots, as the events they stand for; `None` at the end. After a failure the same come again.
    pub(crate) async fn next_page(&mut self, store: &dyn Store) -> Result<Option<Vec<StoredEvent>>, Failed> {
        if self.at >= self.end {
            return Ok(None);
        }
        let page = store.read(&self.snapshots, self.at, PAGE).await;
        let page = page.map_err(|error| Failed::of_read(&error))?;
        if page.expired > 0 {
            let (expired, snapshots) = (page.expired, &self.snapshots);
            return Err(Failed::Halt(format!(
                "retention took {expired} of the snapshots in `{snapshots}`; set none for them, compact the topic instead"
            )));
        }
        if page.next <= self.at {
            return Err(Failed::Halt(format!("topic `{}` has nothing at {}", self.snapshots, self.at)));
        }
        let events = page.events.iter().filter(|event| event.offset < self.end);
        let read: Vec<(Offset, EventId, Snapshot)> =
            events.filter_map(|event| Some((event.offset, event.id, Snapshot::read(event)?))).collect();
        let last = self.last_of_keys(store, read.iter().map(|(.., snapshot)| snapshot.key.as_str())).await;
        let last = last.map_err(|error| Failed::of_read(&error))?;
        self.at = page.next;
        let mut found = Vec::new();
        for (at, id, snapshot) in read {
            self.from = self.from.max(snapshot.resume_from());
            self.through = self.through.max(snapshot.offset);
            if last.get(&snapshot.key).is_some_and(|last| last.at == at) {
                found.push(self.stands_for(id, &snapshot));
            }
        }
        Ok(Some(found))
    }

    /// Events that are in no snapshot, of those at or after [`Seed::from`].
    pub(crate) async fn without_known(
        &self,
        store: &dyn Store,
        mut events: Vec<StoredEvent>,
    ) -> Result<Vec<StoredEvent>, ReadError> {
        let below = events.iter().filter(|event| event.offset < self.through);
        let last = self.last_of_keys(store, below.filter_map(StoredEvent::key)).await?;
        let known = |event: &StoredEvent| {
            let last = event.key().and_then(|key| last.get(key));
            last.is_some_and(|last| event.offset < last.taken_at)
        };
        events.retain(|event| !known(event));
        Ok(events)
    }

    /// The last snapshot of each key there was at the moment that counts.
    async fn last_of_keys(
        &self,
        store: &dyn Store,
        keys: impl Iterator<Item = &str>,
    ) -> Result<HashMap<String, Last>, ReadError> {
        let mut keys: Vec<String> = keys.map(str::to_owned).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut last = HashMap::with_capacity(keys.len());
        // Some at a time: they are read whole.
        for keys in keys.chunks(KEYS) {
            let latest = store.latest_by_keys(&self.snapshots, keys).await?;
            for (key, latest) in keys.iter().zip(latest) {
                let latest = match latest {
                    Some(later) if later.offset >= self.end => {
                        let range = OffsetRange { start: Offset::ZERO, end: self.end };
                        store.key_history(&self.snapshots, key, range, 1).await?.pop()
                    }
                    latest => latest,
                };
                if let Some(latest) = latest
                    && let Some(Snapshot { offset: taken_at, .. }) = Snapshot::read(&latest)
                {
                    last.insert(key.clone(), Last { at: latest.offset, taken_at });
                }
            }
        }
        Ok(last)
    }

    /// The last event that is in a snapshot, with the state as its payload.
    fn stands_for(&self, id: EventId, snapshot: &Snapshot) -> StoredEvent {
        let offset = snapshot.offset.prev().unwrap_or_default();
        let id = snapshot.source.unwrap_or(id);
        StoredEvent::new(self.topic.clone(), offset, id, snapshot.ts).with_body(EventBody {
            key: Some(snapshot.key.as_bytes()),
            meta: &[],
            payload: snapshot.state.get().as_bytes(),
        })
    }
}
