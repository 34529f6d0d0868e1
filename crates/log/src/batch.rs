//! A batch of events and redo, encoded on the caller's thread.

use promethean_model::{Durability, EventId};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::AppendError;
use crate::record::{self, NewEvent, NewId};
use crate::topic::Topic;

/// Events and redo that become durable together or not at all.
#[derive(Debug, Default)]
pub struct LogBatch {
    /// Whether a refused event leaves the other events in the batch.
    pub(crate) each: bool,
    pub(crate) records: Vec<u8>,
    pub(crate) slots: Vec<BatchSlot>,
    pub(crate) redo: Vec<u8>,
    pub(crate) expectations: Vec<Expectation>,
    pub(crate) controls: Vec<TopicChange>,
}

/// One event of a batch.
#[derive(Debug)]
pub(crate) struct BatchSlot {
    pub(crate) topic: Topic,
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) id: NewId,
    pub(crate) id_hash: u64,
    pub(crate) key_hash: Option<u64>,
    pub(crate) ts: Option<i64>,
}

#[derive(Debug)]
pub(crate) enum Expectation {
    End { topic: Topic, next_offset: u64 },
    Key { topic: Topic, key: Vec<u8>, hash: u64, offset: Option<u64> },
}

#[derive(Debug)]
pub(crate) enum TopicChange {
    Create(Topic),
    Delete(Topic),
}

/// The result of an accepted batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogReceipt {
    /// Position of the batch in the journal; 0 if every event was a duplicate that is durable already.
    pub lsn: u64,
    /// The place of each event, in the batch's order. The places of events in `refused` mean nothing.
    pub events: Placements,
    /// Events of a batch made by [`LogBatch::each`] that were refused, by their index, ascending.
    pub refused: Vec<(usize, AppendError)>,
    /// The durability that the ack promises.
    pub durability: Durability,
}

impl LogReceipt {
    /// The place or the refusal of each event.
    pub fn outcomes(self) -> impl Iterator<Item = Result<PlacedRecord, AppendError>> {
        let mut refused = self.refused.into_iter().peekable();
        let events = self.events;
        (0..events.len()).map_while(move |index| match refused.next_if(|(at, _)| *at == index) {
            Some((_, error)) => Some(Err(error)),
            None => events.get(index).copied().map(Ok),
        })
    }
}

/// The places of the events of a batch. A batch of one event allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placements(Many);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Many {
    One([PlacedRecord; 1]),
    Any(Vec<PlacedRecord>),
}

impl Placements {
    /// Makes an empty list with room for this many.
    pub(crate) fn with_capacity(count: usize) -> Placements {
        // Replaced by the first push, so a batch of one allocates nothing.
        Placements(Many::Any(if count > 1 { Vec::with_capacity(count) } else { Vec::new() }))
    }

    pub(crate) fn push(&mut self, placed: PlacedRecord) {
        match &mut self.0 {
            Many::Any(all) if all.capacity() == 0 => self.0 = Many::One([placed]),
            Many::Any(all) => all.push(placed),
            Many::One([first]) => self.0 = Many::Any(vec![*first, placed]),
        }
    }
}

impl std::ops::Deref for Placements {
    type Target = [PlacedRecord];

    fn deref(&self) -> &[PlacedRecord] {
        match &self.0 {
            Many::One(one) => one,
            Many::Any(all) => all,
        }
    }
}

impl FromIterator<PlacedRecord> for Placements {
    fn from_iter<I: IntoIterator<Item = PlacedRecord>>(placed: I) -> Placements {
        Placements(Many::Any(placed.into_iter().collect()))
    }
}

/// The place of an event in its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedRecord {
    /// Its offset.
    pub offset: u64,
    /// Its `ts`.
    pub ts: i64,
    /// Whether it was in the log before.
    pub duplicate: bool,
}

/// Called once, when the batch is durable, surely lost, or its outcome is unknown. Runs on the log's threads:
/// it must not block.
pub type Completion = Box<dyn FnOnce(Result<LogReceipt, AppendError>) + Send>;

/// A batch to submit, with its durability and its completion.
pub struct LogSubmission {
    /// The batch.
    pub batch: LogBatch,
    /// The durability that its ack must promise.
    pub durability: Durability,
    /// Called once, also if the batch is refused.
    pub done: Completion,
}

impl LogBatch {
    /// Makes an empty batch.
    pub fn new() -> LogBatch {
        LogBatch::default()
    }

    /// Makes an empty batch whose events are accepted or refused one by one, for publishers with several
    /// independent events. The events share a frame, so together they cost little more than one.
    pub fn each() -> LogBatch {
        LogBatch { each: true, ..LogBatch::default() }
    }

    /// Makes room for this many events with this many bytes of records together, so that adding them
    /// allocates nothing.
    pub fn reserve(&mut self, events: usize, bytes: usize) {
        self.slots.reserve_exact(events);
        self.records.reserve_exact(bytes);
    }

    /// Adds an event.
    pub fn push(&mut self, topic: &Topic, event: NewEvent<'_>) -> Result<(), AppendError> {
        if let Some(key) = event.key.filter(|key| key.len() > usize::from(u16::MAX)) {
            return Err(AppendError::TooLarge { what: "key", size: key.len(), max: usize::from(u16::MAX) });
        }
        let body = event.meta.len().saturating_add(event.payload.len());
        if body > u32::MAX as usize / 2 {
            return Err(AppendError::TooLarge { what: "event", size: body, max: u32::MAX as usize / 2 });
        }
        let at = self.records.len();
        record::encode(&mut self.records, topic.id(), &event);
        self.slots.push(BatchSlot {
            topic: topic.clone(),
            at,
            len: self.records.len() - at,
            id: event.id,
            id_hash: id_hash(event.id.id()),
            key_hash: event.key.map(key_hash),
            ts: event.ts,
        });
        Ok(())
    }

    /// Adds redo for the state engine. It is applied after the batch is durable, whatever the durability
    /// asked for.
    pub fn redo(&mut self, bytes: &[u8]) {
        self.redo.extend_from_slice(bytes);
    }

    /// Refuses the batch unless the topic's next offset is this one.
    pub fn expect_end(&mut self, topic: &Topic, next_offset: u64) {
        self.expectations.push(Expectation::End { topic: topic.clone(), next_offset });
    }

    /// Refuses the batch unless the key's latest event is at `offset`, or there is none.
    pub fn expect_key(&mut self, topic: &Topic, key: &[u8], offset: Option<u64>) {
        let (topic, hash) = (topic.clone(), key_hash(key));
        self.expectations.push(Expectation::Key { topic, key: key.to_vec(), hash, offset });
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the batch has no events; it may have redo.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn record(&self, slot: &BatchSlot) -> &[u8] {
        self.records.get(slot.at..slot.at + slot.len).unwrap_or_default()
    }

    /// Whether an id or a key must be looked up before the batch can be placed.
    pub(crate) fn needs_lookup(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot.id, NewId::Given(_)))
            || self.expectations.iter().any(|expectation| matches!(expectation, Expectation::Key { .. }))
    }

    /// An upper bound of the frame's length.
    pub(crate) fn frame_bytes(&self) -> u64 {
        const CONTROL_BYTES_MAX: usize = 256;
        let controls = (self.slots.len() + self.controls.len()) * CONTROL_BYTES_MAX;
        (crate::journal::frame::HEADER_BYTES + self.records.len() + self.redo.len() + controls) as u64
    }
}

pub(crate) fn id_hash(id: EventId) -> u64 {
    xxh3_64(id.as_bytes())
}

pub(crate) fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}
