//! The state of a key, or of a whole collection, at any time.
//!
//! | module | holds |
//! | --- | --- |
//! | `reducer`, `merge` | how state follows from events |
//! | `key_history` | the events of a key, from the newest back to where its state begins |
//! | `key_state` | the snapshot to begin with |
//! | [`feed`] | collections, from their changefeed |
//!
//! Invariants:
//! - **T1** State at T is the fold, in offset order, of the key's events with `ts` at or before T. `ts` may go back and
//!   forth, so an event with a late `ts` never hides those after it.
//! - **T2** An answer never depends on events that are gone: where it would, it is `history_gone`. Whether a
//!   topic is compacted its settings say: holes from before compaction was switched off are not noticed.
//! - **T3** What is read depends on the events and snapshots of the key, not on the topic.

pub mod feed;
mod key_history;
mod key_state;
mod merge;
mod reducer;

use promethean_jq::Pool;
use promethean_model::{Offset, OffsetRange, TopicName};
use promethean_store::port::{PageLimit, Store, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;

use self::key_history::all_below;
pub(crate) use self::key_history::{Backward, Needed, needed};
pub use self::key_history::{FOLDED_BYTES_MAX, FOLDED_EVENTS_MAX};
use self::key_state::{Base, Wanted};
pub use self::reducer::Reducer;
pub(crate) use self::reducer::{event_json, payload};
use crate::error::ProjectionError;

const FOLD_FIX: &str = "ask for a later time, or let a compactor with the same reducer write snapshots before events are dropped";
const LATEST_FIX: &str = "ask for a later time, or keep the events of the topic longer";

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

/// The state of a key at a time: the fold, in offset order, of its events with `ts` at or before that. `snapshots` is
/// where a compactor of the topic writes; it shortens folds, and knows what the topic itself may no longer have. A
/// reducer in jq runs on `pool`.
pub async fn state_at(
    store: &dyn Store,
    pool: &Pool,
    topic: &TopicName,
    key: &str,
    at: i64,
    reducer: &Reducer,
    snapshots: Option<&TopicName>,
) -> Result<StateAt, ProjectionError> {
    let wanted = Wanted { store, pool, topic, key, at, reducer };
    let compacted = store.settings(topic).await?.is_some_and(|settings| settings.compacted);
    let found =
        if compacted { wanted.of_compacted(snapshots).await? } else { wanted.folded(snapshots).await? };
    found.ok_or_else(|| ProjectionError::UnknownAt { topic: topic.clone(), key: key.to_owned(), at })
}

impl Wanted<'_> {
    async fn folded(&self, snapshots: Option<&TopicName>) -> Result<Option<StateAt>, ProjectionError> {
        let mut base = match snapshots {
            Some(snapshots) if *self.reducer != Reducer::Latest => self.nearest(snapshots).await?,
            _ => None,
        };
        let start = base.as_ref().map_or(Offset::ZERO, |base| base.snapshot.offset);
        let range = OffsetRange::new(start, self.store.durable_end(self.topic));
        let back = Backward::new(self.store, self.topic, self.key, range);
        let needed = needed(back, self.at, self.reducer).await?;
        if !needed.begun {
            // After the events were read: what retention dropped meanwhile counts as dropped.
            let earliest = self.earliest().await?;
            if earliest > Offset::ZERO
                && *self.reducer == Reducer::Latest
                && let Some(snapshots) = snapshots
            {
                base = self.nearest(snapshots).await?;
            }
            if base.as_ref().map_or(Offset::ZERO, |base| base.covers) < earliest {
                return self.lost(earliest).await;
            }
        }
        self.fold(base, &needed.events).await
    }

    /// Of a compacted topic only the newest event of a key is surely there: between any others some may be gone.
    async fn of_compacted(&self, snapshots: Option<&TopicName>) -> Result<Option<StateAt>, ProjectionError> {
        let base = match snapshots {
            Some(snapshots) if *self.reducer != Reducer::Latest => self.nearest(snapshots).await?,
            _ => None,
        };
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
        base: Option<Base>,
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

    /// Nothing was found, and everything before `earliest` was dropped. Whoever folds needs all of it; for the latest
    /// state, a key whose events all expired is one that nobody knows any more.
    async fn lost(&self, earliest: Offset) -> Result<Option<StateAt>, ProjectionError> {
        if earliest == Offset::ZERO {
            return Ok(None);
        }
        let limit = PageLimit { events: 1, ..PageLimit::default() };
        let oldest = self.store.read(self.topic, earliest, limit).await?.events.pop().map(|event| event.ts);
        let within = oldest.is_some_and(|ts| ts <= self.at);
        if within && *self.reducer == Reducer::Latest { Ok(None) } else { Err(self.gone(oldest)) }
    }

    fn gone(&self, earliest: Option<i64>) -> ProjectionError {
        let fix = if *self.reducer == Reducer::Latest { LATEST_FIX } else { FOLD_FIX };
        ProjectionError::HistoryGone { topic: self.topic.clone(), earliest, fix }
    }
}
