//! Finding the original events of letters.

use promethean_delivery::DeliveryFailure;
use promethean_model::{Offset, TopicName};
use promethean_store::port::{EventBody, PageLimit, ReadError, StoredEvent};

use super::letter::Letter;
use super::row::LetterRow;
use crate::base::Base;
use crate::error::BusError;

/// Letters closer together than this are read in one page.
const SPAN_MAX: u64 = 256;
/// The most bytes of a page, which is kept in memory.
const PAGE_BYTES: usize = 1 << 20;

/// Finds the events of a list of letters. The caller asks for them in offset order.
pub(crate) struct Originals<'a> {
    base: &'a Base,
    topic: &'a TopicName,
    wanted: Vec<Offset>,
    /// The events of the topic from `from` to `next`. An event of this range that is not here is gone.
    page: Vec<StoredEvent>,
    from: Offset,
    next: Offset,
}

impl<'a> Originals<'a> {
    /// `wanted` must be ascending.
    pub(crate) fn new(base: &'a Base, topic: &'a TopicName, wanted: Vec<Offset>) -> Self {
        Self { base, topic, wanted, page: Vec::new(), from: Offset::ZERO, next: Offset::ZERO }
    }

    /// The event of a letter, from the topic or from the letter.
    pub(super) async fn find(
        &mut self,
        offset: Offset,
        row: &LetterRow,
    ) -> Result<Option<StoredEvent>, BusError> {
        // A projector may have given up a snapshot, which holds more than the event at its offset. Only the
        // letter has it.
        let letter_first = row.reason == DeliveryFailure::Projection;
        if letter_first && let Some(event) = self.in_letter(offset, row).await? {
            return Ok(Some(event));
        }
        match self.in_topic(offset).await? {
            None if !letter_first => self.in_letter(offset, row).await,
            event => Ok(event),
        }
    }

    async fn in_letter(&self, offset: Offset, row: &LetterRow) -> Result<Option<StoredEvent>, BusError> {
        let letter = in_letter(self.base, self.topic, row).await?;
        let event = letter.map(|letter| letter.event).filter(|event| event.offset == offset);
        Ok(event.map(|event| stored(&event)))
    }

    /// The event, if its topic still has it. A damaged event that cannot be read counts as gone.
    pub(crate) async fn in_topic(&mut self, offset: Offset) -> Result<Option<StoredEvent>, BusError> {
        if !(self.from..self.next).contains(&offset) {
            match self.read(offset, self.span(offset)).await {
                Err(ReadError::CorruptRange(_)) => match self.read(offset, 1).await {
                    Err(ReadError::CorruptRange(_)) => return Ok(None),
                    other => other?,
                },
                other => other?,
            }
        }
        let found = self.page.binary_search_by_key(&offset, |event| event.offset);
        Ok(found.ok().and_then(|at| self.page.get(at)).cloned())
    }

    async fn read(&mut self, from: Offset, events: usize) -> Result<(), ReadError> {
        (self.page, self.from, self.next) = (Vec::new(), Offset::ZERO, Offset::ZERO);
        let page = self.base.store.read(self.topic, from, PageLimit { events, bytes: PAGE_BYTES }).await?;
        (self.page, self.from, self.next) = (page.events, from, page.next);
        Ok(())
    }

    /// How many events to read to get this one and the wanted ones shortly after it.
    fn span(&self, offset: Offset) -> usize {
        let start = self.wanted.partition_point(|wanted| *wanted < offset);
        let end = self.wanted.partition_point(|wanted| wanted.since(offset) < SPAN_MAX);
        let last = end.checked_sub(1).filter(|last| *last >= start).and_then(|last| self.wanted.get(last));
        last.map_or(1, |last| last.since(offset) as usize + 1)
    }
}

/// The letter in the dead-letter topic, if it is still there.
pub(super) async fn in_letter(
    base: &Base,
    topic: &TopicName,
    row: &LetterRow,
) -> Result<Option<Letter>, BusError> {
    let (Some(id), Ok(dlq)) = (row.letter, topic.dlq()) else { return Ok(None) };
    match base.store.by_id(&dlq, id).await {
        Ok(letter) => Ok(letter.and_then(|letter| read_letter(&letter))),
        Err(ReadError::CorruptRange(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Decodes a letter. Only the system writes letters, so one that cannot be decoded was written by another
/// release.
pub(super) fn read_letter(letter: &StoredEvent) -> Option<Letter> {
    serde_json::from_slice(letter.payload()).ok()
}

fn stored(event: &promethean_model::Event) -> StoredEvent {
    let mut meta = Vec::new();
    event.meta().encode(&mut meta);
    let body = EventBody {
        key: event.key.as_deref().map(str::as_bytes),
        meta: &meta,
        payload: event.payload.get().as_bytes(),
    };
    StoredEvent::new(event.topic.clone(), event.offset, event.id, event.ts).with_body(body)
}
