//! Redriving and dropping letters, a batch at a time.

use std::sync::Arc;

use promethean_delivery::{Filter, LetterRef};
use promethean_model::{EventMeta, GroupName, Offset, TopicName};
use promethean_schema::VERSION_HEADER;
use promethean_store::port::{AppendEvent, Batch, EventIdSource, RowOp, StoredEvent, Table};

use super::counts::DeadLetters;
use super::letter::{edited_id, redrive_id};
use super::originals::Originals;
use super::row::LetterRow;
use super::{LetterChoice, LetterReport, choice, decode};
use crate::error::BusError;
use crate::rows::{EventKey, topic_prefix};
use crate::schemas::SchemaVersion;
use crate::topics::{PublishCounts, TopicEntry};

/// The most letters of one commit.
const BATCH_LETTERS_MAX: usize = 500;
/// The most bytes of events in one commit; the last event may exceed it.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// What a request does with the selected letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedriveAction {
    /// The group gets the events again.
    ToGroup,
    /// Copies of the events are published.
    ToTopic,
    /// The letters are closed.
    Drop,
}

/// One request to redrive or drop letters of a group on a topic.
pub(crate) struct Redrive {
    pub(crate) dead_letters: Arc<DeadLetters>,
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) action: RedriveAction,
    /// The payload of the copy, if a redrive to the topic changes it.
    pub(crate) payload: Option<String>,
    /// Whether the group is a follower, which leaves out events of closed letters when it reads its topic again.
    pub(crate) is_follower: bool,
    /// Tells the group's owner which events it must deliver again. Called when the redrive is durable.
    pub(crate) tell_owner: Box<dyn Fn(Vec<LetterRef>) + Send + Sync>,
    pub(crate) report: LetterReport,
}

/// One commit, and its effects.
#[derive(Default)]
struct RedriveStep {
    batch: Batch,
    bytes: usize,
    /// Letters whose events the owner must deliver again.
    redriven: Vec<LetterRef>,
    done: LetterReport,
    /// Held until the outcome is known: the versions that changed payloads fit, and the topic that has these versions.
    held: Option<(SchemaVersion, TopicEntry)>,
    /// Letters that are closed.
    closed: Vec<Offset>,
}

impl Redrive {
    /// Redrives or drops the selected letters. Before each batch it asks `is_stopped` whether the caller is
    /// gone.
    pub(crate) async fn run(
        mut self,
        which: LetterChoice,
        is_stopped: impl Fn() -> bool,
    ) -> Result<LetterReport, BusError> {
        match which {
            LetterChoice::All => self.each(None, is_stopped).await?,
            LetterChoice::Filter(filter) => self.each(Some(&filter), is_stopped).await?,
            LetterChoice::Offsets(offsets) => {
                let unknown = self.named(offsets, is_stopped).await?;
                self.refuse_unknown(unknown)?;
            }
            LetterChoice::Ids(ids) => {
                let chosen = choice::by_ids(&self.dead_letters.base, &self.topic, &self.group, ids).await?;
                self.report.unknown += chosen.unknown.len() as u64;
                let unknown = self.named(chosen.offsets, is_stopped).await?;
                let no_event = |id: &_| BusError::UnknownEvent { topic: self.topic.clone(), id: *id };
                self.refuse_unknown(chosen.unknown.first().map(no_event).or(unknown))?;
            }
        }
        Ok(self.report)
    }

    /// Handles every open letter, or with a filter every one whose event passes.
    async fn each(&mut self, filter: Option<&Filter>, is_stopped: impl Fn() -> bool) -> Result<(), BusError> {
        let dead_letters = Arc::clone(&self.dead_letters);
        let prefix = topic_prefix(&self.group, &self.topic);
        let mut after: Option<Vec<u8>> = None;
        // Letters at or after this end are left out: copies that are published now may become dead letters
        // again, and then the loop might never end.
        let end = dead_letters.base.store.durable_end(&self.topic);
        loop {
            self.check_stopped(&is_stopped)?;
            let _changing = dead_letters.lock(&self.topic, &self.group).await;
            let rows = dead_letters
                .base
                .store
                .rows(Table::DeadLetters, &prefix, after.as_deref(), BATCH_LETTERS_MAX)
                .await?;
            let Some(last) = rows.last() else { return Ok(()) };
            after = Some(last.key.clone());
            let mut rows = decode(rows)?;
            rows.retain(|(offset, _)| *offset < end);
            if rows.is_empty() {
                return Ok(());
            }
            self.letters(rows, filter).await?;
        }
    }

    /// Handles letters by their offsets. Returns the error for the first one that is not open.
    async fn named(
        &mut self,
        mut offsets: Vec<Offset>,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Option<BusError>, BusError> {
        offsets.sort_unstable();
        offsets.dedup();
        let dead_letters = Arc::clone(&self.dead_letters);
        let mut unknown = None;
        for chunk in offsets.chunks(BATCH_LETTERS_MAX) {
            self.check_stopped(&is_stopped)?;
            let _changing = dead_letters.lock(&self.topic, &self.group).await;
            let mut letters = Vec::with_capacity(chunk.len());
            for offset in chunk.iter().copied() {
                match dead_letters.base.store.row(Table::DeadLetters, &self.key(offset)).await? {
                    Some(row) => letters.push((offset, LetterRow::decode(&row)?)),
                    None => {
                        self.report.unknown += 1;
                        let topic = self.topic.clone();
                        unknown.get_or_insert(BusError::UnknownLetter { topic, offset });
                    }
                }
            }
            self.letters(letters, None).await?;
        }
        Ok(unknown)
    }

    /// Returns the error if no named letter is open: then the names are wrong, or the letters were handled
    /// before.
    fn refuse_unknown(&self, unknown: Option<BusError>) -> Result<(), BusError> {
        match unknown {
            Some(error) if self.report.selected == 0 => Err(error),
            _ => Ok(()),
        }
    }

    fn check_stopped(&self, is_stopped: &impl Fn() -> bool) -> Result<(), BusError> {
        if self.dead_letters.base.is_closed() || is_stopped() { Err(BusError::Closed) } else { Ok(()) }
    }

    /// Handles letters in offset order. Called under the lock of the group's letters.
    async fn letters(
        &mut self,
        letters: Vec<(Offset, LetterRow)>,
        filter: Option<&Filter>,
    ) -> Result<(), BusError> {
        let dead_letters = Arc::clone(&self.dead_letters);
        let topic = self.topic.clone();
        let mut originals =
            Originals::new(&dead_letters.base, &topic, letters.iter().map(|(offset, _)| *offset).collect());
        let mut step = RedriveStep::default();
        for (offset, row) in letters {
            if let Some(filter) = filter {
                let event = originals.find(offset, &row).await?;
                if !event.is_some_and(|event| filter.matches(&event)) {
                    continue;
                }
            }
            step.done.selected += 1;
            if row.redriving {
                step.done.already_redriving += 1;
                continue;
            }
            self.add(&mut step, offset, row, &mut originals).await?;
            if step.bytes >= BATCH_BYTES_MAX {
                self.commit(std::mem::take(&mut step)).await?;
            }
        }
        self.commit(step).await
    }

    async fn add(
        &self,
        step: &mut RedriveStep,
        offset: Offset,
        row: LetterRow,
        originals: &mut Originals<'_>,
    ) -> Result<(), BusError> {
        let (table, key) = (Table::DeadLetters, self.key(offset));
        match self.action {
            RedriveAction::Drop => step.done.dropped += 1,
            RedriveAction::ToGroup => {
                if originals.in_topic(offset).await?.is_none() {
                    step.done.gone += 1;
                    return Ok(());
                }
                step.done.redriven += 1;
                let row = row.redriven();
                step.redriven.push(LetterRef { offset, redrives: row.redrives });
                let value = row.encode();
                step.batch.state.push(RowOp::Put { table, key, value, must_be_new: false }.into());
                return Ok(());
            }
            RedriveAction::ToTopic => {
                let Some(original) = originals.find(offset, &row).await? else {
                    step.done.gone += 1;
                    return Ok(());
                };
                let copy = match &self.payload {
                    None => self.copy(&original, &row)?,
                    Some(payload) => self.edited(step, &original, &row, payload).await?,
                };
                step.done.redriven += 1;
                step.bytes += copy.bytes();
                step.batch.events.push(copy);
            }
        }
        step.closed.push(offset);
        step.batch.state.push(RowOp::Delete { table, key }.into());
        Ok(())
    }

    /// The copy of the event that is published again. Its id is computed from the letter, so that a repeated
    /// try publishes the same event.
    fn copy(&self, event: &StoredEvent, row: &LetterRow) -> Result<AppendEvent, BusError> {
        let payload = str::from_utf8(event.payload())
            .map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
        let mut meta = Vec::new();
        caused_by(event)?.encode(&mut meta);
        Ok(AppendEvent {
            topic: self.topic.clone(),
            id: EventIdSource::Given(redrive_id(&self.group, event, row)),
            ts: None,
            key: event.key().map(str::to_owned),
            meta,
            payload: payload.to_owned(),
        })
    }

    /// As [`Redrive::copy`], with another payload, which must fit the topic's schema as one that is published.
    async fn edited(
        &self,
        step: &mut RedriveStep,
        event: &StoredEvent,
        row: &LetterRow,
        payload: &str,
    ) -> Result<AppendEvent, BusError> {
        let DeadLetters { topics, schemas, .. } = &*self.dead_letters;
        let mut meta = caused_by(event)?;
        // The original names the version that its own payload fits.
        meta.headers.as_mut().map(|headers| headers.remove(VERSION_HEADER));
        let settings = topics.settings.get(&self.topic);
        if let Some(mut version) = schemas.gate(&self.topic, payload, &mut meta, &settings)? {
            let entry = TopicEntry::new(topics, &self.topic)?;
            schemas.finish_gate(&self.topic, payload, &mut version).await?;
            step.held = Some((version, entry));
        }
        meta.headers = meta.headers.filter(|headers| !headers.is_empty());
        let mut encoded = Vec::new();
        meta.encode(&mut encoded);
        Ok(AppendEvent {
            topic: self.topic.clone(),
            id: EventIdSource::Given(edited_id(&self.group, event, row, payload)),
            ts: None,
            key: event.key().map(str::to_owned),
            meta: encoded,
            payload: payload.to_owned(),
        })
    }

    async fn commit(&mut self, mut step: RedriveStep) -> Result<(), BusError> {
        let DeadLetters { base, topics, schemas, .. } = &*self.dead_letters;
        let events = step.batch.events.len();
        let old_forms = schemas.old_forms(&step.batch.events).await?;
        step.batch.events.extend(old_forms);
        if self.is_follower {
            let noted = self.dead_letters.note_closed(&self.topic, &self.group, &step.closed).await?;
            step.batch.state.extend(noted);
        }
        if !step.batch.is_empty() {
            let receipt = base.store.commit(step.batch).await?;
            let mut counts = PublishCounts::new(topics);
            receipt.events.iter().take(events).for_each(|placed| counts.add(&self.topic, *placed));
        }
        self.dead_letters.add(&self.topic, &self.group, -(step.closed.len() as i64));
        if !step.redriven.is_empty() {
            (self.tell_owner)(step.redriven);
        }
        self.report.add(step.done);
        Ok(())
    }

    fn key(&self, offset: Offset) -> Vec<u8> {
        EventKey::encode(&self.group, &self.topic, offset)
    }
}

/// The optional fields of an event, with the event itself as the cause.
fn caused_by(event: &StoredEvent) -> Result<EventMeta, BusError> {
    let decoded = EventMeta::decode(event.meta())
        .map_err(|error| BusError::StorageFailed { reason: error.to_string() })?;
    Ok(EventMeta { caused_by: Some(vec![event.id]), ..decoded })
}

impl LetterReport {
    fn add(&mut self, other: Self) {
        self.selected += other.selected;
        self.redriven += other.redriven;
        self.dropped += other.dropped;
        self.gone += other.gone;
        self.already_redriving += other.already_redriving;
        self.unknown += other.unknown;
    }
}
