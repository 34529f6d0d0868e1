//! The checks that can refuse a batch: ids that are taken, expectations that do not hold.
//!
//! Lookups may read the disk, so they run before the sequencer's lock is taken. Under the lock only events
//! placed since then are looked at.

use std::collections::HashMap;
use std::ops::ControlFlow;

use promethean_model::EventId;

use crate::batch::{BatchSlot, Expectation, LogBatch, PlacedRecord, TopicChange};
use crate::core::LogCore;
use crate::error::{AppendError, LogReadError};
use crate::index::{EntryKind, EventIndex};
use crate::lookup::RunRebuild;
use crate::record::{NewId, content_hash};
use crate::sequencer::LogSequencer;
use crate::topic::Topic;

/// The outcome of one event of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EventCheck {
    Fresh,
    /// The event is in the log already.
    Duplicate(PlacedRecord),
    /// The event repeats the one at this index of the batch.
    Earlier(usize),
    Refused,
}

/// The outcomes of the events of a batch.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// Empty when every event is fresh.
    pub(crate) outcomes: Vec<EventCheck>,
    /// The refused events with their errors, if the other events are accepted without them.
    pub(crate) refused: Vec<(usize, AppendError)>,
}

impl Decision {
    pub(crate) fn outcome(&self, index: usize) -> EventCheck {
        self.outcomes.get(index).copied().unwrap_or(EventCheck::Fresh)
    }

    /// Refuses an event, alone or with its whole batch.
    fn refuse(
        &mut self,
        batch: &LogBatch,
        index: usize,
        error: AppendError,
    ) -> Result<EventCheck, AppendError> {
        if !batch.each {
            return Err(error);
        }
        self.refused.push((index, error));
        Ok(EventCheck::Refused)
    }
}

/// The results of lookups made before the lock was taken.
#[derive(Debug, Default)]
pub(crate) struct PriorLookups {
    /// The index's generation at the lookups; `None` if nothing had to be looked up.
    generation: Option<u64>,
    /// The lookup of each event's id. Where events stand alone, an event whose lookup failed is refused
    /// alone.
    ids: Vec<Result<IdLookup, AppendError>>,
    /// For each expectation on a key: its latest offset, and the durable end before the lookup.
    keys: Vec<(Option<u64>, u64)>,
}

/// The event with an id, and the durable end before the lookup. Every event below that end was in the index.
#[derive(Debug, Clone, Copy)]
struct IdLookup {
    known: Option<KnownEvent>,
    since: u64,
}

#[derive(Debug, Clone, Copy)]
struct KnownEvent {
    offset: u64,
    ts: i64,
    content: u64,
}

impl PriorLookups {
    pub(crate) fn is_current(&self, index: &EventIndex) -> bool {
        self.generation.is_none_or(|generation| generation == index.generation())
    }
}

impl LogCore {
    pub(crate) fn look_up(&self, batch: &LogBatch) -> Result<PriorLookups, AppendError> {
        if !batch.needs_lookup() {
            return Ok(PriorLookups::default());
        }
        let mut prior = PriorLookups { generation: Some(self.index.generation()), ..PriorLookups::default() };
        for slot in &batch.slots {
            let since = slot.topic.end();
            let known = match slot.id {
                NewId::Given(id) => {
                    self.find_known(&slot.topic, id, slot.id_hash).map_err(|error| self.unreadable(error))
                }
                NewId::Minted(_) => Ok(None),
            };
            if let Err(busy @ AppendError::Busy { .. }) = known {
                // No event of the batch is decided before the index is whole.
                return Err(busy);
            }
            let found = known.map(|known| IdLookup { known, since });
            prior.ids.push(if batch.each { found } else { Ok(found?) });
        }
        for expectation in &batch.expectations {
            if let Expectation::Key { topic, key, hash, .. } = expectation {
                let since = topic.end();
                let latest = self
                    .latest_offset_of_key(topic, key, *hash, u64::MAX)
                    .map_err(|error| self.unreadable(error))?;
                prior.keys.push((latest, since));
            }
        }
        Ok(prior)
    }

    fn find_known(&self, topic: &Topic, id: EventId, hash: u64) -> Result<Option<KnownEvent>, LogReadError> {
        let mut candidates = Vec::new();
        self.with_index(RunRebuild::Later, |core| {
            candidates.clear();
            core.index.candidates(EntryKind::Id, topic.id(), hash, id.unix_ms(), &mut candidates)
        })?;
        for (offset, pos) in candidates {
            if let Some(record) = self.record_at(topic, offset, pos)? {
                let view = record.view();
                if view.id == id {
                    let content = view.content_hash();
                    return Ok(Some(KnownEvent { offset, ts: view.ts, content }));
                }
            }
        }
        let ghost =
            self.with_index(RunRebuild::Later, |core| core.index.find_ghost(topic.id(), id.as_bytes()))?;
        Ok(ghost.map(|ghost| KnownEvent { offset: ghost.offset, ts: ghost.ts, content: ghost.content }))
    }

    /// Decides under the sequencer's lock what each event of the batch becomes, or refuses the batch.
    pub(crate) fn decide(
        &self,
        sequencer: &mut LogSequencer,
        batch: &LogBatch,
        prior: &PriorLookups,
    ) -> Result<Decision, AppendError> {
        for change in &batch.controls {
            let (TopicChange::Create(topic) | TopicChange::Delete(topic)) = change;
            if topic.is_deleted() {
                return Err(AppendError::TopicDeleted { topic: topic.name().to_string() });
            }
        }
        if prior.ids.is_empty() && batch.slots.iter().all(|slot| refusal(slot).is_none()) {
            self.check_expectations(sequencer, batch, prior)?;
            return Ok(Decision::default());
        }
        let mut decision = Decision::default();
        decision.outcomes.reserve(batch.slots.len());
        let mut in_batch: HashMap<(u32, EventId), usize> = HashMap::new();
        for (index, slot) in batch.slots.iter().enumerate() {
            let decided = match prior.ids.get(index) {
                Some(Err(unreadable)) => Err(unreadable.clone()),
                Some(Ok(found)) => {
                    self.decide_event(sequencer, batch, slot, Some(*found), &mut in_batch, index)
                }
                None => self.decide_event(sequencer, batch, slot, None, &mut in_batch, index),
            };
            let outcome = decided.or_else(|error| decision.refuse(batch, index, error))?;
            decision.outcomes.push(outcome);
        }
        // A batch whose events are all in the log already met its expectations the first time.
        let outcomes = &decision.outcomes;
        let repeated = !outcomes.is_empty()
            && outcomes.iter().all(|outcome| matches!(outcome, EventCheck::Duplicate(_)));
        if !repeated {
            self.check_expectations(sequencer, batch, prior)?;
        }
        Ok(decision)
    }

    fn decide_event(
        &self,
        sequencer: &mut LogSequencer,
        batch: &LogBatch,
        slot: &BatchSlot,
        prior: Option<IdLookup>,
        in_batch: &mut HashMap<(u32, EventId), usize>,
        index: usize,
    ) -> Result<EventCheck, AppendError> {
        if let Some(refusal) = refusal(slot) {
            return Err(refusal);
        }
        let (NewId::Given(id), Some(IdLookup { known, since })) = (slot.id, prior) else {
            return Ok(EventCheck::Fresh);
        };
        let known = match known {
            None => self.find_recent(sequencer, &slot.topic, id, slot.id_hash, since)?,
            known => known,
        };
        compare(batch, slot, id, known, in_batch, index)
    }

    /// Finds an event with this id placed at or after `since`.
    fn find_recent(
        &self,
        sequencer: &mut LogSequencer,
        topic: &Topic,
        id: EventId,
        hash: u64,
        since: u64,
    ) -> Result<Option<KnownEvent>, AppendError> {
        let mut found = Ok(None);
        let mut visit = |offset, pos| {
            if offset < since {
                return ControlFlow::Break(());
            }
            match self.record_at(topic, offset, pos) {
                Ok(Some(record)) if record.view().id == id => {
                    let view = record.view();
                    found = Ok(Some(KnownEvent { offset, ts: view.ts, content: view.content_hash() }));
                }
                Ok(_) => return ControlFlow::Continue(()),
                Err(error) => found = Err(self.unreadable(error)),
            }
            ControlFlow::Break(())
        };
        let fresh = sequencer.uninserted(EntryKind::Id, topic.id(), hash);
        if fresh
            .map(|new| (new.offset, new.pos))
            .try_for_each(|(offset, pos)| visit(offset, pos))
            .is_continue()
        {
            self.index.recent(EntryKind::Id, topic.id(), hash, &mut visit);
        }
        found
    }

    fn check_expectations(
        &self,
        sequencer: &mut LogSequencer,
        batch: &LogBatch,
        prior: &PriorLookups,
    ) -> Result<(), AppendError> {
        let mut keys = prior.keys.iter();
        for expectation in &batch.expectations {
            match expectation {
                Expectation::End { topic, next_offset } => {
                    let actual = topic.state().next_offset;
                    if actual != *next_offset {
                        let topic = topic.name().to_string();
                        return Err(AppendError::Conflict { topic, expected: *next_offset, actual });
                    }
                }
                Expectation::Key { topic, key, hash, offset } => {
                    let (before, since) = keys.next().copied().unwrap_or((None, 0));
                    let actual = self.recent_offset_of_key(sequencer, topic, key, *hash, since)?.or(before);
                    if actual != *offset {
                        let topic = topic.name().to_string();
                        return Err(AppendError::KeyConflict { topic, expected: *offset, actual });
                    }
                }
            }
        }
        Ok(())
    }

    fn recent_offset_of_key(
        &self,
        sequencer: &mut LogSequencer,
        topic: &Topic,
        key: &[u8],
        hash: u64,
        since: u64,
    ) -> Result<Option<u64>, AppendError> {
        let mut found = Ok(None);
        let mut visit = |offset, pos| {
            if offset < since {
                return ControlFlow::Break(());
            }
            match self.record_at(topic, offset, pos) {
                Ok(Some(record)) if record.view().key == Some(key) => found = Ok(Some(offset)),
                Ok(_) => return ControlFlow::Continue(()),
                Err(error) => found = Err(self.unreadable(error)),
            }
            ControlFlow::Break(())
        };
        let fresh = sequencer.uninserted(EntryKind::Key, topic.id(), hash);
        if fresh
            .map(|new| (new.offset, new.pos))
            .try_for_each(|(offset, pos)| visit(offset, pos))
            .is_continue()
        {
            self.index.recent(EntryKind::Key, topic.id(), hash, &mut visit);
        }
        found
    }
}

/// The error of an event that its topic refuses in any case.
fn refusal(slot: &BatchSlot) -> Option<AppendError> {
    if slot.topic.is_deleted() {
        return Some(AppendError::TopicDeleted { topic: slot.topic.name().to_string() });
    }
    let keyless = slot.topic.needs_key() && slot.key_hash.is_none();
    keyless.then(|| AppendError::KeyRequired { topic: slot.topic.name().to_string() })
}

/// Decides whether an event is fresh, a duplicate or a conflict.
fn compare(
    batch: &LogBatch,
    slot: &BatchSlot,
    id: EventId,
    known: Option<KnownEvent>,
    in_batch: &mut HashMap<(u32, EventId), usize>,
    index: usize,
) -> Result<EventCheck, AppendError> {
    let content = record_content(batch.record(slot));
    let conflict = |offset| AppendError::IdConflict { topic: slot.topic.name().to_string(), id, offset };
    if let Some(known) = known {
        if known.content != content {
            return Err(conflict(known.offset));
        }
        let placed = PlacedRecord { offset: known.offset, ts: known.ts, duplicate: true };
        return Ok(EventCheck::Duplicate(placed));
    }
    if let Some(earlier) = in_batch.get(&(slot.topic.id(), id)).copied() {
        let first = batch.slots.get(earlier).map(|first| record_content(batch.record(first)));
        return if first == Some(content) {
            Ok(EventCheck::Earlier(earlier))
        } else {
            Err(conflict(slot.topic.state().next_offset))
        };
    }
    in_batch.insert((slot.topic.id(), id), index);
    Ok(EventCheck::Fresh)
}

fn record_content(record: &[u8]) -> u64 {
    // The record is not placed yet, so its header does not verify; `parse` would refuse it.
    crate::record::split_unplaced(record).map_or(0, |(key, payload)| content_hash(key, payload))
}

impl LogCore {
    /// The refusal of an event whose earlier event cannot be looked up. What may pass is waited for.
    fn unreadable(&self, error: LogReadError) -> AppendError {
        match error {
            LogReadError::Rebuilding => AppendError::Busy { what: "rebuilding an index" },
            error if error.lacks_descriptors() => {
                self.note_shortage(&error.into_io());
                self.room.want();
                AppendError::Busy { what: "a shortage of file descriptors" }
            }
            other => AppendError::Lookup { message: other.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_an_unplaced_record_equals_that_of_the_placed_one() {
        let mut bytes = Vec::new();
        let id = NewId::Minted(EventId::from_bytes([7; 16]));
        let (key, meta, payload) = (Some(&b"k"[..]), &b"m"[..], &b"{}"[..]);
        let event = crate::record::NewEvent { id, ts: None, key, meta, payload, tombstone: false };
        crate::record::encode(&mut bytes, 3, &event);
        let before = record_content(&bytes);
        crate::record::place(&mut bytes, 9, 1);
        assert_eq!(before, crate::record::parse(&bytes).unwrap().content_hash());
    }
}
