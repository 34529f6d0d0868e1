//! Redriving and dropping, a batch at a time.

use std::sync::Arc;

use promethean_delivery::{Filter, Input};
use promethean_model::{EventMeta, Offset};
use promethean_store::port::{AppendEvent, Batch, EventIdSource, Row, RowOp, StoredEvent, Table};

use super::choose;
use super::originals::Originals;
use super::{LetterChoice, LetterReport};
use crate::core::Core;
use crate::dead_letter::redrive_id;
use crate::error::BusError;
use crate::group::{Command, Wanted};
use crate::publishing;
use crate::rows::{EventKey, LetterRow, topic_prefix};

/// Letters of one commit, at most.
const BATCH_LETTERS_MAX: usize = 500;
/// Bytes of events of one commit, but for the last event.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// What is done with letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    ToGroup,
    ToTopic,
    Drop,
}

type Letters = Vec<(Offset, LetterRow)>;

/// One request.
pub(super) struct Work {
    core: Arc<Core>,
    on: Wanted,
    action: Action,
    report: LetterReport,
}

/// One commit, and what is true once it is done.
#[derive(Default)]
struct Step {
    batch: Batch,
    bytes: usize,
    /// To be told to the owner.
    redriven: Vec<Offset>,
    done: LetterReport,
    closed: i64,
}

impl Work {
    pub(super) fn new(core: Arc<Core>, on: Wanted, action: Action) -> Self {
        Self { core, on, action, report: LetterReport::default() }
    }

    /// Does it; `is_stopped` is asked between batches whether to go on.
    pub(super) async fn run(
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
                let chosen = choose::by_ids(&self.core, &self.on, ids).await?;
                self.report.unknown += chosen.unknown.len() as u64;
                let unknown = self.named(chosen.offsets, is_stopped).await?;
                let no_event = |id: &_| BusError::UnknownEvent { topic: self.on.topic.clone(), id: *id };
                self.refuse_unknown(chosen.unknown.first().map(no_event).or(unknown))?;
            }
        }
        Ok(self.report)
    }

    /// Every open letter, or those of them whose event passes.
    async fn each(&mut self, filter: Option<&Filter>, is_stopped: impl Fn() -> bool) -> Result<(), BusError> {
        let core = Arc::clone(&self.core);
        let prefix = topic_prefix(&self.on.group, &self.on.topic);
        let mut after: Option<Vec<u8>> = None;
        // Copies that are published and die again meanwhile are beyond; else this might never end.
        let end = core.store.durable_end(&self.on.topic);
        loop {
            self.check_stopped(&is_stopped)?;
            let _changing = core.letters.lock(&self.on.topic, &self.on.group).await;
            let rows =
                core.store.rows(Table::DeadLetters, &prefix, after.as_deref(), BATCH_LETTERS_MAX).await?;
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

    /// Letters by their offsets; the error for the first one that is not open.
    async fn named(
        &mut self,
        mut offsets: Vec<Offset>,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Option<BusError>, BusError> {
        offsets.sort_unstable();
        offsets.dedup();
        let core = Arc::clone(&self.core);
        let mut unknown = None;
        for chunk in offsets.chunks(BATCH_LETTERS_MAX) {
            self.check_stopped(&is_stopped)?;
            let _changing = core.letters.lock(&self.on.topic, &self.on.group).await;
            let mut letters = Vec::with_capacity(chunk.len());
            for offset in chunk.iter().copied() {
                match core.store.row(Table::DeadLetters, &self.key(offset)).await? {
                    Some(row) => letters.push((offset, LetterRow::decode(&row)?)),
                    None => {
                        self.report.unknown += 1;
                        let topic = self.on.topic.clone();
                        unknown.get_or_insert(BusError::UnknownLetter { topic, offset });
                    }
                }
            }
            self.letters(letters, None).await?;
        }
        Ok(unknown)
    }

    /// Where none of those named is open, they were meant for something else, or all is done already.
    fn refuse_unknown(&self, unknown: Option<BusError>) -> Result<(), BusError> {
        match unknown {
            Some(error) if self.report.selected == 0 => Err(error),
            _ => Ok(()),
        }
    }

    fn check_stopped(&self, is_stopped: &impl Fn() -> bool) -> Result<(), BusError> {
        if self.core.is_closed() || is_stopped() { Err(BusError::Closed) } else { Ok(()) }
    }

    /// Works on letters in offset order, while nobody else changes any of the group.
    async fn letters(&mut self, letters: Letters, filter: Option<&Filter>) -> Result<(), BusError> {
        let core = Arc::clone(&self.core);
        let topic = self.on.topic.clone();
        let mut originals =
            Originals::new(&core, &topic, letters.iter().map(|(offset, _)| *offset).collect());
        let mut step = Step::default();
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
        step: &mut Step,
        offset: Offset,
        row: LetterRow,
        originals: &mut Originals<'_>,
    ) -> Result<(), BusError> {
        let (table, key) = (Table::DeadLetters, self.key(offset));
        match self.action {
            Action::Drop => step.done.dropped += 1,
            Action::ToGroup => {
                if originals.in_topic(offset).await?.is_none() {
                    step.done.gone += 1;
                    return Ok(());
                }
                step.done.redriven += 1;
                step.redriven.push(offset);
                let value = row.redriven().encode();
                step.batch.state.push(RowOp::Put { table, key, value, must_be_new: false }.into());
                return Ok(());
            }
            Action::ToTopic => {
                let Some(original) = originals.find(offset, &row).await? else {
                    step.done.gone += 1;
                    return Ok(());
                };
                let copy = self.copy(&original, &row)?;
                step.done.redriven += 1;
                step.bytes += copy.bytes();
                step.batch.events.push(copy);
            }
        }
        step.closed += 1;
        step.batch.state.push(RowOp::Delete { table, key }.into());
        Ok(())
    }

    /// The event as it is published again. Its id follows from the letter, so that it is one event however often this
    /// is tried.
    fn copy(&self, event: &StoredEvent, row: &LetterRow) -> Result<AppendEvent, BusError> {
        let unreadable = |reason: String| BusError::StorageFailed { reason };
        let decoded = EventMeta::decode(event.meta()).map_err(|error| unreadable(error.to_string()))?;
        let payload = str::from_utf8(event.payload()).map_err(|error| unreadable(error.to_string()))?;
        let mut meta = Vec::new();
        EventMeta { caused_by: Some(vec![event.id]), ..decoded }.encode(&mut meta);
        Ok(AppendEvent {
            topic: self.on.topic.clone(),
            id: EventIdSource::Given(redrive_id(&self.on.group, event, row)),
            ts: None,
            key: event.key().map(str::to_owned),
            meta,
            payload: payload.to_owned(),
        })
    }

    async fn commit(&mut self, mut step: Step) -> Result<(), BusError> {
        let (core, topic, group) = (&self.core, &self.on.topic, &self.on.group);
        let events = step.batch.events.len();
        let old_forms = crate::schema::copies(core, &step.batch.events.iter().collect::<Vec<_>>()).await?;
        step.batch.events.extend(old_forms.into_iter().map(|copy| copy.event));
        if !step.batch.is_empty() {
            let receipt = core.store.commit(step.batch).await?;
            let mut counts = publishing::Counts::new(core);
            receipt.events.iter().take(events).for_each(|placed| counts.add(topic, *placed));
        }
        core.letters.add(&core.metrics, topic, group, -step.closed);
        if !step.redriven.is_empty() {
            self.tell(Command::Tell(Input::Redrive(step.redriven)));
        }
        self.report.add(step.done);
        Ok(())
    }

    /// Tells the owner; the one there is, whatever options it was started with. One that starts from now on reads the
    /// rows itself, so that it cannot be told is no failure.
    fn tell(&self, command: Command) {
        let _ = match self.core.owners.get(&self.on.topic, &self.on.group) {
            Some(owner) => owner.mailbox.send_now(command),
            None => self.core.owners.send(&self.core, &self.on, command).map(drop),
        };
    }

    fn key(&self, offset: Offset) -> Vec<u8> {
        EventKey::encode(&self.on.group, &self.on.topic, offset)
    }
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

/// Rows of letters, in offset order.
pub(super) fn decode(rows: Vec<Row>) -> Result<Letters, BusError> {
    let letter = |row: Row| {
        let key = EventKey::decode(&row.key, "DeadLetters")?;
        Ok((key.offset, LetterRow::decode(&row.value)?))
    };
    rows.into_iter().map(letter).collect()
}
