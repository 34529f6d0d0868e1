//! From the events of a span to snapshots. A span is the offsets between two moves of the cursor.

use std::collections::HashMap;

use promethean_jq::{Caps, RunError};
use promethean_model::{EventId, Offset, OffsetRange};
use promethean_store::port::{PageLimit, StoredEvent};
use serde_json::value::RawValue;

use super::{Compactor, CompactorRound};
use crate::error::ProjectionError;
use crate::snapshot::{Snapshot, recreated};
use crate::time_travel::{FoldInput, KeyHistory, Reducer, event_json, fold_input, payload};

/// The page of events that is read at once.
const PAGE: PageLimit = PageLimit { events: 1000, bytes: 4 << 20 };

/// An event that may be the last of its key in the span.
struct Candidate {
    key: String,
    event: StoredEvent,
}

impl Compactor {
    /// Publishes a snapshot for each key of a span, at the last event that the key has there.
    pub(super) async fn compact_span(
        &mut self,
        span: OffsetRange,
        round: &mut CompactorRound,
    ) -> Result<(), ProjectionError> {
        let mut next = span.start;
        while next < span.end {
            let page = self.store.read(&self.options.topic, next, PAGE).await?;
            if page.next <= next {
                return Err(recreated(&self.options.topic));
            }
            let events: Vec<_> = page.events.into_iter().filter(|event| event.offset < span.end).collect();
            let behind = page.next.min(span.end);
            let (whole, gone) = whole_from(next, &events, behind);
            if gone > 0 {
                (self.since, self.since_told) = (whole, false);
                self.status.send_modify(|status| status.missed_total += gone);
            }
            round.events += events.len() as u64;
            let candidates = self.candidates(events).await?;
            let candidates = self.last_of_keys(candidates, span).await?;
            round.published += self.publish(candidates, span).await?;
            next = behind;
        }
        Ok(())
    }

    /// The last event of each key in a page, in offset order.
    async fn candidates(&self, events: Vec<StoredEvent>) -> Result<Vec<Candidate>, ProjectionError> {
        let keys = match &self.options.key {
            None => events.iter().map(|event| event.key().map(str::to_owned)).collect(),
            Some(_) => self.computed_keys(&events).await?,
        };
        let wanted = |key: &String| self.options.keys.as_ref().is_none_or(|keys| keys.contains(key));
        let mut last: HashMap<String, StoredEvent> = HashMap::new();
        for (key, event) in keys.into_iter().zip(events) {
            if let Some(key) = key.filter(wanted) {
                last.insert(key, event);
            }
        }
        let mut candidates: Vec<_> = last.into_iter().map(|(key, event)| Candidate { key, event }).collect();
        candidates.sort_unstable_by_key(|candidate| candidate.event.offset);
        Ok(candidates)
    }

    /// The keys that the program gives for events; `None` where it passes an event over or fails.
    async fn computed_keys(&self, events: &[StoredEvent]) -> Result<Vec<Option<String>>, ProjectionError> {
        let Some(program) = &self.options.key else { return Ok(Vec::new()) };
        let inputs = events.iter().map(event_json).collect::<Result<Vec<_>, _>>()?;
        let mut keys = Vec::with_capacity(events.len());
        for (outcome, event) in
            program.run_each(self.follower.jq_pool(), inputs, Caps::default()).await.into_iter().zip(events)
        {
            let key = match outcome {
                // The event is not at fault: the round is tried again.
                Err(error @ (RunError::NoThread | RunError::Busy | RunError::Stuck)) => {
                    return Err(ProjectionError::ReducerFailed {
                        topic: event.topic.clone(),
                        offset: event.offset.get(),
                        reason: error.to_string(),
                    });
                }
                Err(error) => Err(error.to_string()),
                Ok(outputs) => read_key(&outputs),
            };
            if let Err(reason) = &key {
                self.status.send_modify(|status| {
                    status.key_failures_total += 1;
                    status.last_key_failure = Some(format!("offset {}: {reason}", event.offset));
                });
            }
            keys.push(key.ok().flatten());
        }
        Ok(keys)
    }

    /// The candidates that no event of the same key follows in the span. Keys that a program gives cannot be
    /// looked up, so that they may get a snapshot in each page.
    async fn last_of_keys(
        &self,
        candidates: Vec<Candidate>,
        span: OffsetRange,
    ) -> Result<Vec<Candidate>, ProjectionError> {
        if self.options.key.is_some() {
            return Ok(candidates);
        }
        let keys: Vec<String> = candidates.iter().map(|candidate| candidate.key.clone()).collect();
        let latest = self.store.latest_by_keys(&self.options.topic, &keys).await?;
        let mut last = Vec::with_capacity(candidates.len());
        for (candidate, latest) in candidates.into_iter().zip(latest) {
            let latest = latest.map_or(candidate.event.offset, |event| event.offset);
            let rest = OffsetRange::new(candidate.event.offset.next(), span.end);
            let followed = if latest < span.end {
                latest > candidate.event.offset
            } else {
                let rest = self.store.key_history(&self.options.topic, &candidate.key, rest, 1).await?;
                !rest.is_empty()
            };
            if !followed {
                last.push(candidate);
            }
        }
        Ok(last)
    }

    /// Publishes the snapshots at these events. Returns how many are new.
    async fn publish(&mut self, last: Vec<Candidate>, span: OffsetRange) -> Result<u64, ProjectionError> {
        let snapshots = self.snapshots_of(last, span).await?;
        self.check_kept(span).await?;
        let mut events = Vec::with_capacity(snapshots.len());
        for (snapshot, source) in &snapshots {
            events.push(snapshot.publish(self.snapshots.clone(), self.id_of(source))?);
        }
        let published = self.follower.publish_each(events).await;
        let published = published.into_iter().collect::<Result<Vec<_>, _>>()?;
        let new = published.iter().filter(|published| !published.duplicate).count() as u64;
        self.status.send_modify(|status| status.published_total += new);
        // A snapshot that was there already may have an older `since`.
        self.since_told |= new > 0;
        self.had_snapshots |= !published.is_empty();
        Ok(new)
    }

    /// The snapshots at these events, each with its event; none for an event that is in a snapshot already.
    async fn snapshots_of(
        &self,
        last: Vec<Candidate>,
        span: OffsetRange,
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

    /// The state of a key after an event, folded from the key's previous snapshot on, and the highest `ts` in
    /// it. No `ts` if events that the state needs were gone.
    async fn fold(
        &self,
        key: &str,
        event: &StoredEvent,
        before: Option<Snapshot>,
    ) -> Result<(Option<Box<RawValue>>, Option<i64>), ProjectionError> {
        let start = before.as_ref().map_or(Offset::ZERO, |before| before.offset);
        let range = OffsetRange::new(start, event.offset.next());
        let history = KeyHistory::new(&*self.store, &self.options.topic, key, range);
        let FoldInput { events, begun } = fold_input(history, i64::MAX, &self.options.reducer).await?;
        let newest = events.iter().map(|event| event.ts).max();
        let max_ts = match &before {
            _ if begun && events.first().is_some_and(|first| self.since <= first.offset.next()) => newest,
            _ if begun => None,
            // By C1 the previous snapshot has every event up to this span, and none of the span was missed.
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
        span: OffsetRange,
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

    /// Fails if retention took events of the span meanwhile. A fold looks events up again after the page was
    /// read, so that it may have missed some. The next round begins behind them and counts the loss.
    async fn check_kept(&self, span: OffsetRange) -> Result<(), ProjectionError> {
        let info = self.store.topic_info(&self.options.topic).await?;
        if self.options.reducer == Reducer::Latest || info.is_none_or(|info| info.earliest <= span.start) {
            return Ok(());
        }
        let fix = "keep events longer than a round of the compactor takes";
        Err(ProjectionError::HistoryGone { topic: self.options.topic.clone(), earliest: None, fix })
    }

    /// The id of the snapshot at an event. The event's own id is part of it: a topic that was deleted and
    /// created again has the same offsets.
    fn id_of(&self, source: &StoredEvent) -> EventId {
        let (group, topic) = (self.follower.group().as_str(), self.options.topic.as_str());
        let mut name = Vec::with_capacity(group.len() + topic.len() + 26);
        for text in [group, topic] {
            name.extend_from_slice(text.as_bytes());
            name.push(0);
        }
        name.extend_from_slice(&source.offset.get().to_be_bytes());
        name.extend_from_slice(source.id.as_bytes());
        EventId::derive(b"snapshot", &name)
    }
}

/// The offset from which on no event of a page is missing, and how many events are missing before it.
fn whole_from(from: Offset, events: &[StoredEvent], end: Offset) -> (Offset, u64) {
    let gone = end.since(from).saturating_sub(events.len() as u64);
    let mut whole = end;
    for event in events.iter().rev() {
        if event.offset.next() != whole {
            break;
        }
        whole = event.offset;
    }
    (whole, gone)
}

/// The key that a program gave; `None` where it passes the event over.
fn read_key(outputs: &[String]) -> Result<Option<String>, String> {
    let [output] = outputs else {
        return if outputs.is_empty() {
            Ok(None)
        } else {
            Err("the program gave several keys; let it give one".to_owned())
        };
    };
    match serde_json::from_str(output) {
        Ok(serde_json::Value::String(key)) => Ok(Some(key).filter(|key| !key.is_empty())),
        Ok(serde_json::Value::Null | serde_json::Value::Bool(false)) => Ok(None),
        // As the program wrote it.
        Ok(serde_json::Value::Number(_)) => Ok(Some(output.clone())),
        _ => Err(format!("the program gave `{output}`; let it give text or a number")),
    }
}
