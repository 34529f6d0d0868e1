//! The snapshots that stand for the beginning of a topic in a rebuild.
//!
//! The last snapshot of each key is read as if it were the last event in it; then come the events that are in
//! no snapshot. Snapshots written after [`SnapshotSeed::open`] do not count, so that the two fit together.
//! The rebuild holds the snapshots meanwhile, so that compaction keeps them.
//!
//! Every event below the compactor's cursor is in a snapshot (C1 of [`crate::compactor`]), so that it may be
//! gone.

use std::collections::HashMap;

use promethean_model::{EventId, Offset, OffsetRange, TopicName};
use promethean_store::port::{EventBody, PageLimit, ReadError, Store, StoredEvent};

use crate::definition::bad;
use crate::error::{ProjectFailure, ProjectionError};
use crate::snapshot::{self, Snapshot, recreated};

/// The page of snapshots that is read at once.
const PAGE: PageLimit = PageLimit { events: 200, bytes: 1 << 20 };
/// Keys whose last snapshots are looked up at once.
const KEYS: usize = 50;

/// The snapshots of a topic as they were when the rebuild began.
pub(super) struct SnapshotSeed {
    topic: TopicName,
    snapshots: TopicName,
    /// The offset of the next snapshot.
    at: Offset,
    /// The offset after the last snapshot.
    end: Offset,
    /// Every event below this offset of the topic is in the snapshots.
    from: Offset,
    /// No event at or after this offset of the topic is in a snapshot.
    through: Offset,
}

/// The last snapshot of a key.
struct LastSnapshot {
    /// The offset of the snapshot.
    at: Offset,
    /// The offset after the last event in it.
    taken_at: Offset,
}

impl SnapshotSeed {
    /// Opens the snapshots, after a check that they can stand for the topic; `None` if there are none.
    pub(super) async fn open(
        store: &dyn Store,
        topic: &TopicName,
        snapshots: &TopicName,
        accept_loss: bool,
    ) -> Result<Option<Self>, ProjectionError> {
        // Read before the end: every event below this cursor is in a snapshot below that end.
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
    pub(super) const fn snapshots(&self) -> &TopicName {
        &self.snapshots
    }

    /// The offset to go on from in the topic.
    pub(super) const fn from(&self) -> Offset {
        self.from
    }

    /// The first offset of the topic from which on no event is in a snapshot.
    pub(super) const fn through(&self) -> Offset {
        self.through
    }

    /// The next page of snapshots, as the events that they stand for; `None` at the end. After a failure the
    /// same page is read again.
    pub(super) async fn next_page(
        &mut self,
        store: &dyn Store,
    ) -> Result<Option<Vec<StoredEvent>>, ProjectFailure> {
        if self.at >= self.end {
            return Ok(None);
        }
        let page = store.read(&self.snapshots, self.at, PAGE).await;
        let page = page.map_err(|error| ProjectFailure::of_read(&error))?;
        if page.expired > 0 {
            let (expired, snapshots) = (page.expired, &self.snapshots);
            return Err(ProjectFailure::Halt(format!(
                "retention took {expired} of the snapshots in `{snapshots}`; set none for them, compact the topic instead"
            )));
        }
        if page.next <= self.at {
            return Err(ProjectFailure::Halt(format!(
                "topic `{}` has nothing at {}",
                self.snapshots, self.at
            )));
        }
        let events = page.events.iter().filter(|event| event.offset < self.end);
        let read: Vec<(Offset, EventId, Snapshot)> =
            events.filter_map(|event| Some((event.offset, event.id, Snapshot::read(event)?))).collect();
        let last = self.last_of_keys(store, read.iter().map(|(.., snapshot)| snapshot.key.as_str())).await;
        let last = last.map_err(|error| ProjectFailure::of_read(&error))?;
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

    /// Removes the events that are in a snapshot. For events at or after [`SnapshotSeed::from`].
    pub(super) async fn without_known(
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

    /// The last snapshot of each key when the rebuild began.
    async fn last_of_keys(
        &self,
        store: &dyn Store,
        keys: impl Iterator<Item = &str>,
    ) -> Result<HashMap<String, LastSnapshot>, ReadError> {
        let mut keys: Vec<String> = keys.map(str::to_owned).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut last = HashMap::with_capacity(keys.len());
        // Some keys at a time: snapshots are read whole.
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
                    last.insert(key.clone(), LastSnapshot { at: latest.offset, taken_at });
                }
            }
        }
        Ok(last)
    }

    /// The last event in a snapshot, with the state as its payload.
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
