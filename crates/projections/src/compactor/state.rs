//! The state of a key as of an event.

use promethean_model::{Offset, OffsetRange};
use promethean_store::port::StoredEvent;
use serde_json::value::RawValue;

use super::Compactor;
use super::span::{Candidate, Span};
use crate::error::ProjectionError;
use crate::snapshot::Snapshot;
use crate::time_travel::{Backward, Needed, Reducer, needed, payload};

impl Compactor {
    /// Snapshots at these events, each with its event; none for those that are in one already.
    pub(super) async fn snapshots_of(
        &self,
        last: Vec<Candidate>,
        span: Span,
    ) -> Result<Vec<(Snapshot, StoredEvent)>, ProjectionError> {
        let mut snapshots = Vec::with_capacity(last.len());
        if self.options.reducer == Reducer::Latest {
            for Candidate { key, event } in last {
                let state = payload(&event)?;
                let snapshot = self.snapshot(key, state, Some(event.ts), &event, span);
                snapshots.push((snapshot, event));
            }
            return Ok(snapshots);
        }
        let keys: Vec<String> = last.iter().map(|candidate| candidate.key.clone()).collect();
        let before = self.store.latest_by_keys(&self.snapshots, &keys).await?;
        for (Candidate { key, event }, before) in last.into_iter().zip(before) {
            let before = before.as_ref().and_then(Snapshot::read);
            if before.as_ref().is_some_and(|before| before.offset > event.offset) {
                continue;
            }
            let (state, max_ts) = self.fold(&key, &event, before).await?;
            let state = state.unwrap_or_else(|| RawValue::NULL.to_owned());
            snapshots.push((self.snapshot(key, state, max_ts, &event, span), event));
        }
        Ok(snapshots)
    }

    /// The state after an event, from the key's previous snapshot on; and the highest `ts` in it, if all is in it.
    async fn fold(
        &self,
        key: &str,
        event: &StoredEvent,
        before: Option<Snapshot>,
    ) -> Result<(Option<Box<RawValue>>, Option<i64>), ProjectionError> {
        let start = before.as_ref().map_or(Offset::ZERO, |before| before.offset);
        let range = OffsetRange::new(start, event.offset.next());
        let back = Backward::new(&*self.store, &self.options.topic, key, range);
        let Needed { events, begun } = needed(back, i64::MAX, &self.options.reducer).await?;
        let newest = events.iter().map(|event| event.ts).max();
        let max_ts = match &before {
            _ if begun && events.first().is_some_and(|first| self.since <= first.offset.next()) => newest,
            _ if begun => None,
            // By C1 the previous snapshot has everything up to this span, of which nothing was missed.
            Some(before) if self.since <= before.offset => {
                before.max_ts.max(newest).filter(|_| before.max_ts.is_some())
            }
            None if self.since == Offset::ZERO => newest,
            _ => None,
        };
        let before = before.filter(|_| !begun).and_then(Snapshot::living_state);
        Ok((self.options.reducer.fold(self.follower.jq_pool(), before, &events).await?, max_ts))
    }

    fn snapshot(
        &self,
        key: String,
        state: Box<RawValue>,
        max_ts: Option<i64>,
        event: &StoredEvent,
        span: Span,
    ) -> Snapshot {
        Snapshot {
            key,
            state,
            ts: event.ts,
            offset: event.offset.next(),
            max_ts,
            by: self.by.clone(),
            floor: span.start,
            since: self.since,
            source: Some(event.id),
        }
    }
}
