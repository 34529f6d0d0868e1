//! Snapshots: the events that a compactor writes, and how a consumer begins with them.
//!
//! A snapshot is an event of the snapshot topic. It has the key it is about, the payload
//! `{"key", "payload", "ts"}` (a `payload` of `null`: the key is gone; `ts`: of the last event in the
//! snapshot), and headers:
//!
//! | header | says |
//! | --- | --- |
//! | `x-snapshot-offset` | the offset after the last event in it: every event of the key below is in it, and no other |
//! | `x-snapshot-max-ts` | no event that the state depends on has a later `ts`; left out where some of them were lost |
//! | `x-snapshot-by` | the reducer and other options of the compactor |
//! | `x-snapshot-floor` | every event below this offset, of any key, is in the snapshots up to this one |
//! | `x-snapshot-since` | the compactor has read every event from this offset on |
//!
//! **S1** A consumer that has read the snapshot topic to its end has, for each key, all its events below the
//! highest floor. With the reducer `latest` more holds: for each key it has the last event below the highest
//! `x-snapshot-offset`, or the key has a later event. See [`crate::compactor`] for why.

use std::fmt::Write as _;

use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_bus::{Bus, BusError};
use promethean_model::{EventId, EventMeta, GroupName, Offset, TopicName};
use promethean_store::port::{PageLimit, ReadError, Store, StoredEvent};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::ProjectionError;

const OFFSET: &str = "x-snapshot-offset";
const MAX_TS: &str = "x-snapshot-max-ts";
const BY: &str = "x-snapshot-by";
const FLOOR: &str = "x-snapshot-floor";
const SINCE: &str = "x-snapshot-since";
/// The bytes of a group's name that are surely free for the name of a topic.
const GROUP_TOPIC_BYTES: usize = 80;
/// The events and the bytes of a page of a warm-up.
const PAGE: (usize, usize) = (1000, 1 << 20);

/// The state of one key as of some offset.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The key.
    pub key: String,
    /// Its state; `null` where it has none.
    pub state: Box<RawValue>,
    /// The `ts` of the last event in it.
    pub ts: i64,
    /// The offset after the last event in it.
    pub offset: Offset,
    /// No event that the state depends on has a later `ts`; `None` where that is not known.
    pub max_ts: Option<i64>,
    /// The label of the compactor that wrote it: the reducer's label, then its other options after `;`.
    pub by: String,
    /// Every event below this offset, of any key, is in the snapshots up to this one.
    pub floor: Offset,
    /// The compactor has read every event from this offset on.
    pub since: Offset,
    /// The id of the last event in it.
    pub source: Option<EventId>,
}

#[derive(Serialize, Deserialize)]
struct SnapshotBody<'a> {
    #[serde(borrow)]
    key: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    payload: &'a RawValue,
    ts: i64,
}

impl Snapshot {
    /// Reads an event of a snapshot topic; `None` if it is no snapshot.
    pub fn read(event: &StoredEvent) -> Option<Self> {
        let body: SnapshotBody<'_> = serde_json::from_slice(event.payload()).ok()?;
        let meta = EventMeta::decode(event.meta()).ok()?;
        let headers = meta.headers?;
        let offset = |name| headers.get(name).and_then(|text: &String| text.parse().ok()).map(Offset);
        Some(Self {
            key: body.key.into_owned(),
            state: body.payload.to_owned(),
            ts: body.ts,
            offset: offset(OFFSET)?,
            max_ts: headers.get(MAX_TS).and_then(|text| text.parse().ok()),
            by: headers.get(BY)?.clone(),
            floor: offset(FLOOR)?,
            since: offset(SINCE)?,
            source: meta.caused_by.and_then(|ids| ids.first().copied()),
        })
    }

    pub(crate) fn publish(&self, topic: TopicName, id: EventId) -> Result<Publish<'static>, ProjectionError> {
        let body = SnapshotBody { key: self.key.as_str().into(), payload: &self.state, ts: self.ts };
        let body = serde_json::to_string(&body).map_err(|error| ProjectionError::BadDeclaration {
            what: format!("a snapshot for `{topic}`"),
            reason: error.to_string(),
        })?;
        let publish = Publish::new(topic, body)
            .id(id)
            .key(self.key.as_str())
            .header(OFFSET, self.offset.to_string())
            .header(BY, self.by.as_str())
            .header(FLOOR, self.floor.to_string())
            .header(SINCE, self.since.to_string())
            .caused_by(self.source.into_iter().collect());
        Ok(match self.max_ts {
            Some(ts) => publish.header(MAX_TS, ts.to_string()),
            None => publish,
        })
    }

    /// The offset of the topic to go on from after this snapshot and all before it. By S1, a fold needs every
    /// event that is not in its key's snapshot; the reducer `latest` needs only the last.
    pub fn resume_from(&self) -> Offset {
        if self.by.split(';').next() == Some("latest") { self.offset } else { self.floor }
    }

    /// The state, unless the key is gone.
    pub fn living_state(self) -> Option<Box<RawValue>> {
        Some(self.state).filter(|state| state.get() != "null")
    }

    /// Whether the snapshots are of some keys only, or of keys that are not the events' own.
    pub(crate) fn is_partial(&self) -> bool {
        self.by.contains(';')
    }

    /// Whether it was folded with this reducer from the topic's own keys.
    pub(crate) fn is_of(&self, reducer: &str) -> bool {
        let mut parts = self.by.split(';');
        parts.next() == Some(reducer) && !parts.any(|part| part.starts_with("key="))
    }
}

/// The group of the compactor that writes these snapshots: `compactor:<topic>`, with the snapshot topic where
/// it is not the usual one. Names that are too long are cut and get a hash.
pub fn group(topic: &TopicName, snapshots: &TopicName) -> Result<GroupName, ProjectionError> {
    let usual = topic.snapshot().is_ok_and(|usual| usual == *snapshots);
    let mut name = format!("compactor:{topic}");
    if !usual || topic.as_str().len() > GROUP_TOPIC_BYTES {
        let mut whole = topic.as_str().as_bytes().to_vec();
        whole.push(0);
        whole.extend_from_slice(snapshots.as_str().as_bytes());
        name.truncate("compactor:".len() + GROUP_TOPIC_BYTES);
        // Writing to a text does not fail.
        let _ = write!(name, ":{:016x}", xxhash_rust::xxh3::xxh3_64(&whole));
    }
    name.parse().map_err(|error| BusError::Name(error).into())
}

/// The last snapshot in a snapshot topic that ends at `end`.
pub(crate) async fn last(
    store: &dyn Store,
    snapshots: &TopicName,
    end: Offset,
) -> Result<Option<Snapshot>, ReadError> {
    let Some(at) = end.prev() else { return Ok(None) };
    let limit = PageLimit { events: 1, ..PageLimit::default() };
    let page = store.read(snapshots, at, limit).await?;
    Ok(page.events.first().and_then(Snapshot::read))
}

/// Whether a topic was deleted and created again since a snapshot of it was written; `end` is where it ends.
pub(crate) async fn is_of_another_topic(
    store: &dyn Store,
    topic: &TopicName,
    last: &Snapshot,
    end: Offset,
) -> Result<bool, ReadError> {
    let Some(source) = last.offset.prev().filter(|_| last.offset <= end) else { return Ok(true) };
    let limit = PageLimit { events: 1, ..PageLimit::default() };
    let page = store.read(topic, source, limit).await?;
    let there = page.events.first().filter(|event| event.offset == source);
    Ok(there.is_some_and(|event| Some(event.id) != last.source))
}

/// How a consumer that has read all snapshots goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    /// The offset to subscribe from. The consumer passes over events below the offset of their key's
    /// snapshot.
    pub from: Offset,
    /// The number of snapshots.
    pub snapshots: u64,
}

/// Reads a snapshot topic to its end, and returns the offset of the topic to go on from, so that nothing is
/// missed. Each snapshot is given to `each`; a later snapshot of a key replaces the earlier one.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Arc;
///
/// use promethean_bus::publish::Publish;
/// use promethean_bus::rows::{AskedOptions, StartPosition};
/// use promethean_bus::subscription::Subscribe;
/// use promethean_bus::{Bus, BusOptions};
/// use promethean_model::SystemClock;
/// use promethean_projections::compactor::{Compactor, CompactorOptions};
/// use promethean_projections::snapshot::warm_up;
/// use promethean_store::memory::{MemoryOptions, MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let clock = Arc::new(SystemClock::new());
/// # let store = Arc::new(MemoryStore::new(clock.clone(), MemoryOptions::default()));
/// # let bus = Bus::open(store.clone(), clock.clone(), BusOptions::default()).await?;
/// let topic: promethean_model::TopicName = "process.state".parse()?;
/// bus.publish(Publish::new(topic.clone(), r#"{"up":true}"#).key("a")).await?;
/// # let options = CompactorOptions::new(topic.clone());
/// # Compactor::open(&bus, store, clock, options).await?.run_round().await?;
///
/// let mut states = HashMap::new();
/// let warm = warm_up(&bus, &topic, &topic.snapshot()?, |snapshot| {
///     states.insert(snapshot.key.clone(), snapshot);
/// })
/// .await?;
/// assert_eq!(states["a"].state.get(), r#"{"up":true}"#);
///
/// let options = AskedOptions { from: Some(StartPosition::Offset(warm.from)), ..AskedOptions::default() };
/// let request = Subscribe { options, ..Subscribe::new(topic.as_str().parse()?, "cache".parse()?) };
/// let subscription = bus.subscribe(request).await?;
/// # subscription.unsubscribe();
/// # bus.close().await;
/// # Ok(())
/// # }
/// ```
pub async fn warm_up(
    bus: &Bus,
    topic: &TopicName,
    snapshots: &TopicName,
    mut each: impl FnMut(Snapshot),
) -> Result<WarmUp, ProjectionError> {
    let mut warm = WarmUp { from: Offset::ZERO, snapshots: 0 };
    let mut scan = bus.scan(snapshots, StartPosition::Offset(Offset::ZERO)).await?;
    while let Some(page) = scan.next_page(PAGE.0, PAGE.1).await? {
        if page.expired > 0 {
            let fix = "set no retention for snapshots; compact their topic instead";
            let earliest = page.events.first().map(|event| event.ts);
            return Err(ProjectionError::HistoryGone { topic: snapshots.clone(), earliest, fix });
        }
        for snapshot in page.events.iter().filter_map(Snapshot::read) {
            warm.from = warm.from.max(snapshot.resume_from());
            warm.snapshots += 1;
            each(snapshot);
        }
    }
    check_reachable(bus, topic, warm.from).await?;
    Ok(warm)
}

/// Fails if events from the offset on are gone, or if the topic was deleted and created again.
async fn check_reachable(bus: &Bus, topic: &TopicName, from: Offset) -> Result<(), ProjectionError> {
    let end = bus.end_of(topic);
    if from > end {
        return Err(recreated(topic));
    }
    let mut rest = bus.scan(topic, StartPosition::Offset(from)).await?;
    match rest.next_page(1, 1).await? {
        Some(page) if page.expired > 0 => Err(ProjectionError::HistoryGone {
            topic: topic.clone(),
            earliest: page.events.first().map(|event| event.ts),
            fix: "let its compactor run, and begin again",
        }),
        _ => Ok(()),
    }
}

/// The error for snapshots of a topic that was deleted and created again.
pub(crate) fn recreated(topic: &TopicName) -> ProjectionError {
    ProjectionError::BadDeclaration {
        what: format!("the snapshots of topic `{topic}`"),
        reason:
            "they are of an earlier topic of this name; delete the snapshot topic, and it is written again"
                .to_owned(),
    }
}
