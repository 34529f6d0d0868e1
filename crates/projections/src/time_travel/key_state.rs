//! The state of a key at a time: its events, or a snapshot and the events after it, folded by the topic's
//! reducer.

use promethean_jq::Pool;
use promethean_model::{Offset, OffsetRange, TopicName};
use promethean_store::port::{PageLimit, Store, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;

use super::key_history::{KeyHistory, all_below, fold_input};
use super::reducer::Reducer;
use crate::error::ProjectionError;
use crate::projections::Projections;
use crate::snapshot::{self, Snapshot};

const FOLD_FIX: &str = "the state of the key needs all its events; to begin it anew, publish `null` and then the whole state of the key, and declare a compactor of the topic with this reducer, whose snapshots outlast the events";
const SNAPSHOT_FIX: &str = "no snapshot has the state of the key at that time; ask for a later time, or begin the key anew: publish `null` and then its whole state";
const LATEST_FIX: &str = "ask for a later time, or keep the events of the topic longer";
const ABSENT_FIX: &str = "if the key had events, they are among those; keep the events of the topic longer, or declare a compactor of the topic, whose snapshots outlast the events";

/// The state of a key at some time.
#[derive(Debug, Clone, Serialize)]
pub struct StateAt {
    /// The key.
    pub key: String,
    /// Its state.
    pub state: Box<RawValue>,
    /// The `ts` of the last event in it.
    pub ts: i64,
    /// The offset of that event.
    pub offset: Offset,
}

/// A question for the state of a key.
struct KeyQuery<'a> {
    store: &'a dyn Store,
    /// The threads that a reducer in jq runs on.
    pool: &'a Pool,
    topic: &'a TopicName,
    key: &'a str,
    at: i64,
    reducer: &'a Reducer,
    /// The topic of the snapshots, if a compactor writes them.
    snapshots: Option<&'a TopicName>,
}

/// A snapshot that a fold begins with.
#[derive(Debug)]
struct BaseSnapshot {
    snapshot: Snapshot,
    /// No event of the key between the snapshot's offset and this one exists, or ever did.
    covers: Offset,
}

impl Projections {
    /// The state of a key of a topic at a time, epoch ms, by the topic's reducer. Snapshots of a compactor
    /// shorten the fold.
    pub async fn state_at(&self, topic: &TopicName, key: &str, at: i64) -> Result<StateAt, ProjectionError> {
        let inner = &self.inner;
        let reducer = inner.reducers.get(topic).unwrap_or(&Reducer::Latest);
        let pool = inner.context.bus.jq_pool();
        state_at(&*inner.context.store, pool, topic, key, at, reducer, inner.snapshots_of(topic)).await
    }
}

/// Reads the state of a key at a time: the fold, in offset order, of its events with `ts` at or before that.
/// `snapshots` is the topic that a compactor of the topic writes. They shorten the fold, and have states
/// whose events may be gone. A reducer in jq runs on `pool`.
pub async fn state_at(
    store: &dyn Store,
    pool: &Pool,
    topic: &TopicName,
    key: &str,
    at: i64,
    reducer: &Reducer,
    snapshots: Option<&TopicName>,
) -> Result<StateAt, ProjectionError> {
    let query = KeyQuery { store, pool, topic, key, at, reducer, snapshots };
    let compacted = store.settings(topic).await?.is_some_and(|settings| settings.compacted);
    let found = if compacted { query.of_compacted().await? } else { query.of_whole().await? };
    found.ok_or_else(|| ProjectionError::UnknownAt { topic: topic.clone(), key: key.to_owned(), at })
}

impl KeyQuery<'_> {
    /// The state from a topic that is not compacted.
    async fn of_whole(&self) -> Result<Option<StateAt>, ProjectionError> {
        let mut base = if *self.reducer == Reducer::Latest { None } else { self.nearest().await? };
        let start = base.as_ref().map_or(Offset::ZERO, |base| base.snapshot.offset);
        let range = OffsetRange::new(start, self.store.durable_end(self.topic));
        let history = KeyHistory::new(self.store, self.topic, self.key, range);
        let input = fold_input(history, self.at, self.reducer).await?;
        if !input.begun {
            // Looked up after the events were read: what retention dropped meanwhile counts as dropped.
            let earliest = self.earliest().await?;
            if earliest > Offset::ZERO && *self.reducer == Reducer::Latest {
                base = self.nearest().await?;
            }
            if base.as_ref().map_or(Offset::ZERO, |base| base.covers) < earliest {
                return Err(self.gone_from(earliest).await?);
            }
        }
        self.fold(base, &input.events).await
    }

    /// The state from a compacted topic. Only the newest event of a key is surely there: between any others
    /// some may be gone.
    async fn of_compacted(&self) -> Result<Option<StateAt>, ProjectionError> {
        let base = if *self.reducer == Reducer::Latest { None } else { self.nearest().await? };
        let end = self.store.durable_end(self.topic);
        let newest = self.store.key_history(self.topic, self.key, all_below(end), 1).await?.pop();
        match newest {
            None => self.lost(self.earliest().await?).await,
            Some(event) if event.ts <= self.at && self.reducer.begins_at(&event) => {
                self.fold(None, &[event]).await
            }
            Some(event) => match base.filter(|base| base.snapshot.offset > event.offset) {
                Some(base) => self.fold(Some(base), &[]).await,
                None => Err(self.gone(Some(event.ts))),
            },
        }
    }

    async fn fold(
        &self,
        base: Option<BaseSnapshot>,
        events: &[StoredEvent],
    ) -> Result<Option<StateAt>, ProjectionError> {
        let (before, last) = match base.map(|base| base.snapshot) {
            Some(snapshot) => {
                let last = snapshot.offset.prev().map(|offset| (snapshot.ts, offset));
                (snapshot.living_state(), last)
            }
            None => (None, None),
        };
        let last = events.last().map(|event| (event.ts, event.offset)).or(last);
        let state = self.reducer.fold(self.pool, before, events).await?;
        let known = |(state, (ts, offset))| StateAt { key: self.key.to_owned(), state, ts, offset };
        Ok(state.zip(last).map(known))
    }

    async fn earliest(&self) -> Result<Offset, ProjectionError> {
        Ok(self.store.topic_info(self.topic).await?.map_or(Offset::ZERO, |info| info.earliest))
    }

    /// The error where every event before `earliest` was dropped, and the state at the time asked for may come from one of
    /// them: the key may have had events there, or none.
    async fn gone_from(&self, earliest: Offset) -> Result<ProjectionError, ProjectionError> {
        let oldest = self.oldest(earliest).await?;
        let end = self.store.durable_end(self.topic);
        let has_events = !self.store.key_history(self.topic, self.key, all_below(end), 1).await?.is_empty();
        let fix = match self.reducer {
            Reducer::Latest if has_events => LATEST_FIX,
            Reducer::Latest => ABSENT_FIX,
            _ if self.snapshots.is_some() => SNAPSHOT_FIX,
            _ => FOLD_FIX,
        };
        Ok(ProjectionError::HistoryGone { topic: self.topic.clone(), earliest: oldest, fix })
    }

    /// The `ts` of the oldest event that is kept.
    async fn oldest(&self, earliest: Offset) -> Result<Option<i64>, ProjectionError> {
        let limit = PageLimit { events: 1, ..PageLimit::default() };
        Ok(self.store.read(self.topic, earliest, limit).await?.events.pop().map(|event| event.ts))
    }

    /// The answer where a compacted topic has no event of the key. Compaction keeps the newest event of a key, so
    /// with the reducer `latest` the key has no state now.
    async fn lost(&self, earliest: Offset) -> Result<Option<StateAt>, ProjectionError> {
        if earliest == Offset::ZERO {
            return Ok(None);
        }
        let oldest = self.oldest(earliest).await?;
        let within = oldest.is_some_and(|ts| ts <= self.at);
        if within && *self.reducer == Reducer::Latest { Ok(None) } else { Err(self.gone(oldest)) }
    }

    fn gone(&self, earliest: Option<i64>) -> ProjectionError {
        let fix = match self.reducer {
            Reducer::Latest => LATEST_FIX,
            _ if self.snapshots.is_some() => SNAPSHOT_FIX,
            _ => FOLD_FIX,
        };
        ProjectionError::HistoryGone { topic: self.topic.clone(), earliest, fix }
    }

    /// The newest snapshot of the key whose events all have `ts` at or before the time asked for.
    async fn nearest(&self) -> Result<Option<BaseSnapshot>, ProjectionError> {
        let Some(snapshots) = self.snapshots else { return Ok(None) };
        // Read before any snapshot: every event below the cursor is in a snapshot that is read here.
        let passed = self.passed(snapshots).await?;
        let end = self.store.durable_end(snapshots);
        let mut history = KeyHistory::new(self.store, snapshots, self.key, all_below(end));
        let label = self.reducer.label();
        let mut newest = true;
        loop {
            let page = history.next_page().await?;
            if page.is_empty() {
                return Ok(None);
            }
            for snapshot in page.iter().filter_map(Snapshot::read) {
                if snapshot.is_of(&label) && snapshot.max_ts.is_some_and(|max| max <= self.at) {
                    return self.base(snapshot, snapshots, passed.filter(|_| newest)).await;
                }
                newest = false;
            }
        }
    }

    /// Makes a base of a snapshot, unless it is of an earlier topic of the same name. `passed`: the
    /// compactor's cursor, if this is the key's newest snapshot.
    async fn base(
        &self,
        snapshot: Snapshot,
        snapshots: &TopicName,
        passed: Option<Offset>,
    ) -> Result<Option<BaseSnapshot>, ProjectionError> {
        if self.is_of_another_topic(&snapshot).await? {
            return Ok(None);
        }
        let mut covers = snapshot.offset;
        if let Some(passed) = passed
            && let Some(last) =
                snapshot::last(self.store, snapshots, self.store.durable_end(snapshots)).await?
            && last.by == snapshot.by
            && last.since <= snapshot.offset
        {
            covers = covers.max(passed);
        }
        Ok(Some(BaseSnapshot { snapshot, covers }))
    }

    /// The compactor's cursor.
    async fn passed(&self, snapshots: &TopicName) -> Result<Option<Offset>, ProjectionError> {
        let group = snapshot::group(self.topic, snapshots)?;
        Ok(self.store.cursor(&group, self.topic).await?.map(|cursor| cursor.floor))
    }

    /// Whether the snapshot is of a topic of the same name that was deleted since.
    async fn is_of_another_topic(&self, snapshot: &Snapshot) -> Result<bool, ProjectionError> {
        if snapshot.offset > self.store.durable_end(self.topic) {
            return Ok(true);
        }
        let Some(source) = snapshot.offset.prev() else { return Ok(true) };
        let there = self.store.key_history(self.topic, self.key, OffsetRange::single(source), 1).await?;
        Ok(there.first().is_some_and(|event| Some(event.id) != snapshot.source))
    }
}
