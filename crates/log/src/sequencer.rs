//! The sequencer: gives batches their LSN, offsets and stamps, in one order for the whole log.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use promethean_model::Durability;

use crate::batch::{
    BatchSlot, Completion, LogBatch, LogReceipt, LogSubmission, PlacedRecord, Placements, TopicChange,
};
use crate::checks::{Decision, EventCheck};
use crate::core::LogCore;
use crate::error::AppendError;
use crate::index::{EntryKind, Insert};
use crate::journal::frame::{self, Control, FrameParts, HEADER_BYTES};
use crate::journal::writer::{FrameSpan, JournalWriter};
use crate::log_clock::LogTimes;
use crate::poison::lock;
use crate::recent::Recent;
use crate::record;
use crate::room::{JournalRoom, Patience};
use crate::topic::{RollRule, Topic};

/// The next LSN and the open group. One lock guards it: batches are ordered by when they take the lock.
#[derive(Default)]
pub(crate) struct LogSequencer {
    pub(crate) next_lsn: u64,
    /// Frames that the writer has not taken yet.
    pub(crate) group: Group,
    /// An empty group whose memory is used for the next group.
    pub(crate) spare: Option<Group>,
    pub(crate) group_number: u64,
    /// Topics that the next checkpoint must look at, each once.
    pub(crate) dirty: Vec<Topic>,
    pub(crate) deleted: Vec<Topic>,
    /// LSN of the last frame with redo.
    pub(crate) redo_lsn: u64,
    pub(crate) closed: bool,
    /// Whether the writer sleeps and must be woken.
    pub(crate) writer_waits: bool,
    /// The place in the journal for the next frames.
    pub(crate) journal_room: JournalRoom,
    /// Whether a batch had no place in the journal, so that the writer must make a file.
    pub(crate) wants_file: bool,
    /// The index entries of the group that the writer has taken, until they are in the index.
    pub(crate) inserting: Arc<Vec<Insert>>,
    /// Lookups of the entries of the open group, and of `inserting`.
    pub(crate) recent: (Recent, Recent),
}

/// Frames that become durable with one sync.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) bytes: Vec<u8>,
    pub(crate) spans: Vec<FrameSpan>,
    pub(crate) waiters: Vec<Waiter>,
    /// The new ends of topics, each topic once.
    pub(crate) touched: Vec<(Topic, u64)>,
    pub(crate) wants_sync: bool,
    pub(crate) has_redo: bool,
    /// The index entries of the group's events, which the writer inserts.
    pub(crate) inserts: Arc<Vec<Insert>>,
}

pub(crate) struct Waiter {
    pub(crate) receipt: LogReceipt,
    pub(crate) done: Completion,
    /// The position of the frame's redo in the group's bytes.
    pub(crate) redo: std::ops::Range<usize>,
}

impl Group {
    pub(crate) fn clear(&mut self) {
        const KEEP_BYTES: usize = 4 * 1024 * 1024;
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES);
        self.spans.clear();
        self.waiters.clear();
        self.touched.clear();
        (self.wants_sync, self.has_redo) = (false, false);
        match Arc::get_mut(&mut self.inserts) {
            Some(inserts) => inserts.clear(),
            None => self.inserts = Arc::default(),
        }
    }
}

impl LogSequencer {
    pub(crate) fn take_group(&mut self) -> Group {
        let next = self.spare.take().unwrap_or_default();
        self.group_number += 1;
        let group = std::mem::replace(&mut self.group, next);
        self.inserting = Arc::clone(&group.inserts);
        std::mem::swap(&mut self.recent.0, &mut self.recent.1);
        self.recent.0.clear();
        group
    }

    /// Finds the entries under a hash that are not in the index yet, newest first.
    pub(crate) fn uninserted(
        &mut self,
        kind: EntryKind,
        topic: u32,
        hash: u64,
    ) -> impl Iterator<Item = &Insert> {
        let open = self.recent.0.find(&self.group.inserts, kind, topic, hash);
        let taken =
            (!self.inserting.is_empty()).then(|| self.recent.1.find(&self.inserting, kind, topic, hash));
        open.chain(taken.into_iter().flatten())
    }

    pub(crate) fn last_lsn(&self) -> u64 {
        self.next_lsn - 1
    }

    /// Notes the topic's new end in the open group.
    pub(crate) fn touch(&mut self, topic: &Topic, touched: &mut (u64, usize), end: u64) {
        let (group_number, index) = *touched;
        let known = self.group.touched.get_mut(index).filter(|_| group_number == self.group_number);
        match known {
            Some((_, known_end)) => *known_end = end,
            None => {
                *touched = (self.group_number, self.group.touched.len());
                self.group.touched.push((topic.clone(), end));
            }
        }
    }

    pub(crate) fn mark_dirty(&mut self, topic: &Topic, dirty: &mut bool) {
        if !std::mem::replace(dirty, true) {
            self.dirty.push(topic.clone());
        }
    }
}

impl LogCore {
    /// Puts batches into the open group in order, each with its own frame. Completes refused batches at once.
    /// Waits for room, as `submit_patiently` does.
    pub(crate) fn submit_all(&self, submissions: Vec<LogSubmission>) {
        let mut held = None;
        let mut finished = Vec::new();
        for LogSubmission { batch, durability, mut done } in submissions {
            let mut patience = Patience::new(self);
            loop {
                let seen = self.room.seen();
                match self.submit_held(&mut held, &batch, durability, done) {
                    Ok(None) => break,
                    Ok(Some((done, receipt))) => {
                        finished.push((done, Ok(receipt)));
                        break;
                    }
                    Err((back, AppendError::Busy { what })) => {
                        self.release(held.take());
                        if let Err(error) = patience.wait(seen, what) {
                            finished.push((back, Err(error)));
                            break;
                        }
                        done = back;
                    }
                    Err((done, error)) => {
                        finished.push((done, Err(error)));
                        break;
                    }
                }
            }
        }
        self.release(held);
        for (done, result) in finished {
            done(result);
        }
    }

    /// Refuses the batch or puts it into the open group, and waits for nothing. `done` is called only if this
    /// succeeds.
    pub(crate) fn submit(
        &self,
        batch: &LogBatch,
        durability: Durability,
        done: Completion,
    ) -> Result<(), (Completion, AppendError)> {
        let mut held = None;
        let result = self.submit_held(&mut held, batch, durability, done);
        self.release(held);
        if let Some((done, receipt)) = result? {
            done(Ok(receipt));
        }
        Ok(())
    }

    /// Gives the sequencer back and wakes the writer if it sleeps.
    fn release(&self, held: Option<MutexGuard<'_, LogSequencer>>) {
        let wake = held.is_some_and(|mut sequencer| std::mem::take(&mut sequencer.writer_waits));
        if wake {
            self.work.notify_one();
        }
    }

    /// Submits one batch. Keeps the sequencer in `held`, so that several batches take its lock once. A batch
    /// of durable duplicates needs no frame: its receipt is returned.
    fn submit_held<'a>(
        &'a self,
        held: &mut Option<MutexGuard<'a, LogSequencer>>,
        batch: &LogBatch,
        durability: Durability,
        done: Completion,
    ) -> Result<Option<(Completion, LogReceipt)>, (Completion, AppendError)> {
        let durability = if batch.redo.is_empty() { durability } else { Durability::Fsync };
        // Allocated here, before the lock is taken.
        let events = Placements::with_capacity(batch.slots.len());
        if self.space.is_full() {
            // Looking at the space may take a checkpoint.
            self.release(held.take());
        }
        let decided = self.check_alone(batch).and_then(|()| self.lock_and_decide(held, batch));
        let mut decision = match decided {
            Ok(decision) => decision,
            Err(error) => return Err((done, error)),
        };
        let refused = std::mem::take(&mut decision.refused);
        if let Some(events) = nothing_to_write(batch, &decision) {
            return Ok(Some((done, LogReceipt { lsn: 0, events, refused, durability })));
        }
        if let Some(sequencer) = held {
            let receipt = LogReceipt { lsn: 0, events, refused, durability };
            self.place(sequencer, batch, &decision, receipt, done);
        }
        Ok(None)
    }

    /// Checks a batch as far as that needs no lock: size, poison and free space.
    fn check_alone(&self, batch: &LogBatch) -> Result<(), AppendError> {
        let most = JournalWriter::frame_bytes_max(self.options.journal_file_bytes);
        let size = batch.frame_bytes();
        if size > most {
            return Err(AppendError::TooLarge { what: "batch", size: size as usize, max: most as usize });
        }
        self.poison.check()?;
        self.check_space(batch)
    }

    /// Takes the lock unless it is held, looks for room, and decides the outcome of each event.
    fn lock_and_decide<'a>(
        &'a self,
        held: &mut Option<MutexGuard<'a, LogSequencer>>,
        batch: &LogBatch,
    ) -> Result<Decision, AppendError> {
        loop {
            if batch.needs_lookup() {
                // Lookups may read the disk, so the lock is released.
                self.release(held.take());
            }
            let prior = self.look_up(batch)?;
            let mut sequencer = held.take().unwrap_or_else(|| lock(&self.sequencer));
            if sequencer.closed {
                return Err(AppendError::Closed);
            }
            if let Some(what) = self.lacks_room(&mut sequencer, batch) {
                self.release(Some(sequencer));
                self.poison.check()?;
                if self.options.threads {
                    return Err(AppendError::Busy { what });
                }
                self.make_wanted_file()?;
                continue;
            }
            let decision = prior.is_current(&self.index).then(|| self.decide(&mut sequencer, batch, &prior));
            *held = Some(sequencer);
            if let Some(decision) = decision {
                return decision;
            }
        }
    }

    /// Writes a batch into the open group as one frame. It cannot fail: all checks come before.
    fn place(
        &self,
        sequencer: &mut LogSequencer,
        batch: &LogBatch,
        decision: &Decision,
        mut receipt: LogReceipt,
        done: Completion,
    ) {
        let lsn = sequencer.next_lsn;
        sequencer.next_lsn += 1;
        let start = sequencer.group.bytes.len();
        sequencer.group.bytes.resize(start + HEADER_BYTES, 0);
        self.place_controls(sequencer, batch, decision);
        let control_bytes = (sequencer.group.bytes.len() - start - HEADER_BYTES) as u32;
        let times = self.times.read();
        receipt.lsn = lsn;
        let before = sequencer.group.bytes.len();
        // Only lookups may hold another reference; then they keep the old list and this makes a copy.
        let mut inserts = std::mem::take(&mut sequencer.group.inserts);
        let entries = Arc::make_mut(&mut inserts);
        let mut fresh = 0;
        for (index, slot) in batch.slots.iter().enumerate() {
            let placed = match decision.outcome(index) {
                EventCheck::Duplicate(placed) => placed,
                EventCheck::Earlier(earlier) => {
                    let first: Option<&PlacedRecord> = receipt.events.get(earlier);
                    first.map_or(NOWHERE, |first| PlacedRecord { duplicate: true, ..*first })
                }
                EventCheck::Refused => NOWHERE,
                EventCheck::Fresh => {
                    fresh += 1;
                    self.place_event(sequencer, entries, batch, slot, times)
                }
            };
            receipt.events.push(placed);
        }
        let group = &mut sequencer.group;
        group.inserts = inserts;
        let redo_at = group.bytes.len();
        self.tail_bytes.fetch_add((redo_at - before) as u64, Ordering::Relaxed);
        group.bytes.extend_from_slice(&batch.redo);
        let redo = redo_at..group.bytes.len();
        let parts = FrameParts { lsn, events: fresh, control_bytes, redo_bytes: redo.len() as u32 };
        if let Some(frame) = group.bytes.get_mut(start..) {
            frame::finish(frame, parts);
        }
        group.spans.push(FrameSpan { at: start, len: redo.end - start, lsn });
        sequencer.journal_room.take((redo.end - start) as u64);
        let group = &mut sequencer.group;
        group.wants_sync |= receipt.durability != Durability::Os;
        if !redo.is_empty() {
            group.has_redo = true;
            sequencer.redo_lsn = lsn;
        }
        sequencer.group.waiters.push(Waiter { receipt, done, redo });
    }

    fn place_controls(&self, sequencer: &mut LogSequencer, batch: &LogBatch, decision: &Decision) {
        for change in &batch.controls {
            match change {
                TopicChange::Create(topic) => create_topic(sequencer, topic),
                TopicChange::Delete(topic) => self.delete_topic_now(sequencer, topic),
            }
        }
        for (index, slot) in batch.slots.iter().enumerate() {
            if matches!(decision.outcome(index), EventCheck::Fresh) {
                create_topic(sequencer, &slot.topic);
            }
        }
    }

    pub(crate) fn delete_topic_now(&self, sequencer: &mut LogSequencer, topic: &Topic) {
        Control::Delete { topic: topic.id() }.encode(&mut sequencer.group.bytes);
        topic.set_deleted();
        sequencer.deleted.push(topic.clone());
        self.write_catalog(|catalog| catalog.remove(topic));
    }

    fn place_event(
        &self,
        sequencer: &mut LogSequencer,
        entries: &mut Vec<Insert>,
        batch: &LogBatch,
        slot: &BatchSlot,
        times: LogTimes,
    ) -> PlacedRecord {
        let at = sequencer.group.bytes.len();
        sequencer.group.bytes.extend_from_slice(batch.record(slot));
        let mut state = slot.topic.state();
        let offset = state.next_offset;
        let ts = slot.ts.unwrap_or_else(|| state.stamp(times.stamp));
        let record = sequencer.group.bytes.get_mut(at..).unwrap_or_default();
        record::place(record, offset, ts);
        let now = state.append_time(times.append());
        let rule = RollRule { segment_bytes: self.options.segment_bytes, now };
        let pos = state.admit(slot.topic.id(), record, ts, rule);
        sequencer.mark_dirty(&slot.topic, &mut state.dirty);
        sequencer.touch(&slot.topic, &mut state.touched, offset + 1);
        drop(state);
        entries.push(Insert {
            topic: slot.topic.id(),
            pos,
            offset,
            id_hash: slot.id_hash,
            id_ms: slot.id.id().unix_ms(),
            key_hash: slot.key_hash,
            appended_ms: now.max(0) as u64,
        });
        PlacedRecord { offset, ts, duplicate: false }
    }
}

/// Announces a topic in the first frame that uses it.
fn create_topic(sequencer: &mut LogSequencer, topic: &Topic) {
    if topic.set_created() {
        Control::Create { topic: topic.id(), name: topic.name().as_str() }.encode(&mut sequencer.group.bytes);
        sequencer.mark_dirty(topic, &mut topic.state().dirty);
    }
}

/// The place in a receipt of an event that has none.
const NOWHERE: PlacedRecord = PlacedRecord { offset: 0, ts: 0, duplicate: true };

/// The places of a batch that needs no frame, because all its events are durable duplicates or refused.
fn nothing_to_write(batch: &LogBatch, decision: &Decision) -> Option<Placements> {
    if batch.slots.is_empty() || !batch.redo.is_empty() || !batch.controls.is_empty() {
        return None;
    }
    let mut events = Placements::with_capacity(batch.slots.len());
    for (index, slot) in batch.slots.iter().enumerate() {
        match decision.outcome(index) {
            EventCheck::Duplicate(placed) if placed.offset < slot.topic.end() => events.push(placed),
            EventCheck::Refused => events.push(NOWHERE),
            _ => return None,
        }
    }
    Some(events)
}
