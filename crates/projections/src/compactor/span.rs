//! From the events of a span to snapshots.

use std::collections::HashMap;

use promethean_jq::{Caps, RunError};
use promethean_model::{EventId, Offset, OffsetRange};
use promethean_store::port::{PageLimit, StoredEvent};

use super::{Compactor, Round};
use crate::error::ProjectionError;
use crate::time_travel::{Reducer, event_json};

const PAGE: PageLimit = PageLimit { events: 1000, bytes: 4 << 20 };

/// The offsets between two moves of the cursor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: Offset,
    pub(super) end: Offset,
}

/// An event that may be the last of its key in the span.
pub(super) struct Candidate {
    pub(super) key: String,
    pub(super) event: StoredEvent,
}

impl Compactor {
    pub(super) async fn walk_span(&mut self, span: Span, round: &mut Round) -> Result<(), ProjectionError> {
        let mut next = span.start;
        while next < span.end {
            let page = self.store.read(&self.options.topic, next, PAGE).await?;
            if page.next <= next {
                return Err(crate::snapshot::recreated(&self.options.topic));
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

    async fn computed_keys(&self, events: &[StoredEvent]) -> Result<Vec<Option<String>>, ProjectionError> {
        let Some(program) = &self.options.key else { return Ok(Vec::new()) };
        let inputs = events.iter().map(event_json).collect::<Result<Vec<_>, _>>()?;
        let mut keys = Vec::with_capacity(events.len());
        for (outcome, event) in
            program.run_each(self.follower.jq_pool(), inputs, Caps::default()).await.into_iter().zip(events)
        {
            let key = match outcome {
                // Not the event's fault: the round is tried again.
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

    /// Those that no event of the same key follows in the span. Keys that a program gives cannot be looked up, so they
    /// may get a snapshot in each page.
    async fn last_of_keys(
        &self,
        candidates: Vec<Candidate>,
        span: Span,
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

    async fn publish(&mut self, last: Vec<Candidate>, span: Span) -> Result<u64, ProjectionError> {
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
        // One that was there already may say less.
        self.since_told |= new > 0;
        self.had_snapshots |= !published.is_empty();
        Ok(new)
    }

    /// Whoever folds looked events up again after the page was read: retention may have taken some between the two. The
    /// next round begins behind them and notes the loss.
    async fn check_kept(&self, span: Span) -> Result<(), ProjectionError> {
        let info = self.store.topic_info(&self.options.topic).await?;
        if self.options.reducer == Reducer::Latest || info.is_none_or(|info| info.earliest <= span.start) {
            return Ok(());
        }
        let fix = "keep events longer than a round of the compactor takes";
        Err(ProjectionError::HistoryGone { topic: self.options.topic.clone(), earliest: None, fix })
    }

    /// The event's own id is part of it: a topic that is created again has the same offsets.
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

/// From where on no event of a page is missing, and how many are.
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

/// The key in what a program gave; none where it passes the event over.
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
        // As it was written.
        Ok(serde_json::Value::Number(_)) => Ok(Some(output.clone())),
        _ => Err(format!("the program gave `{output}`; let it give text or a number")),
    }
}
