//! Gives batches their LSN, offsets and stamps, in one order for the whole log.

use std::sync::atomic::Ordering;

use promethean_model::Durability;

use crate::batch::{Batch, Completion, Placed, Receipt, Slot, TopicChange};
use crate::checks::Outcome;
use crate::core::Core;
use crate::error::AppendError;
use crate::index::Insert;
use crate::io_util::lock;
use crate::journal::frame::{self, Control, HEADER_BYTES, Parts};
use crate::journal::writer::{FrameSpan, JournalWriter};
use crate::record;
use crate::topic::{RollRule, Topic};

/// Guarded by one lock: whoever holds it decides the order.
#[derive(Default)]
pub(crate) struct Sequencer {
    pub(crate) next_lsn: u64,
    /// Frames that the writer has not taken yet.
    pub(crate) group: Group,
    /// An empty group with its memory, to be used next.
    pub(crate) spare: Option<Group>,
    pub(crate) group_number: u64,
    /// Topics that the next checkpoint must look at, each once.
    pub(crate) dirty: Vec<Topic>,
    pub(crate) deleted: Vec<Topic>,
    /// LSN of the last frame with redo.
    pub(crate) redo_lsn: u64,
    pub(crate) closed: bool,
}

/// Frames that become durable with one sync.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) bytes: Vec<u8>,
    pub(crate) spans: Vec<FrameSpan>,
    pub(crate) waiters: Vec<Waiter>,
    /// New ends of topics, each topic once.
    pub(crate) touched: Vec<(Topic, u64)>,
    pub(crate) wants_sync: bool,
    pub(crate) has_redo: bool,
}

pub(crate) struct Waiter {
    pub(crate) receipt: Receipt,
    pub(crate) done: Completion,
    /// Where the frame's redo lies in the group's bytes.
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
    }
}

impl Sequencer {
    pub(crate) fn take_group(&mut self) -> Group {
        let next = self.spare.take().unwrap_or_default();
        self.group_number += 1;
        std::mem::replace(&mut self.group, next)
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

impl Core {
    /// Refuses the batch or puts it into the open group. `done` is called only if this succeeds.
    pub(crate) fn submit(
        &self,
        batch: &Batch,
        durability: Durability,
        done: Completion,
    ) -> Result<(), AppendError> {
        let most = JournalWriter::frame_bytes_max(self.options.journal_file_bytes);
        let size = batch.frame_bytes();
        if size > most {
            return Err(AppendError::TooLarge { what: "batch", size: size as usize, max: most as usize });
        }
        self.poison.check()?;
        if !batch.is_empty() {
            self.check_space()?;
        }
        let durability = if batch.redo.is_empty() { durability } else { Durability::Fsync };
        loop {
            let prior = self.look_up(batch)?;
            let mut sequencer = lock(&self.sequencer);
            while self.options.threads && !sequencer.closed && self.must_wait(&sequencer) {
                self.poison.check()?;
                sequencer = self.room.wait(sequencer).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if sequencer.closed {
                return Err(AppendError::Closed);
            }
            if !prior.is_current(&self.index) {
                continue;
            }
            let outcomes = self.decide(batch, &prior)?;
            if let Some(events) = all_durable_duplicates(batch, &outcomes) {
                drop(sequencer);
                done(Ok(Receipt { lsn: 0, events, durability }));
                return Ok(());
            }
            self.place(&mut sequencer, batch, outcomes, durability, done);
            drop(sequencer);
            self.work.notify_one();
            return Ok(());
        }
    }

    fn must_wait(&self, sequencer: &Sequencer) -> bool {
        const CHECKPOINTS_BEHIND: u64 = 4;
        const TAILS_BEHIND: u64 = 4;
        sequencer.group.bytes.len() > self.options.queue_bytes
            || self.journal_bytes.load(Ordering::Relaxed) > self.options.checkpoint_bytes * CHECKPOINTS_BEHIND
            || self.tail_bytes.load(Ordering::Relaxed) > self.options.tail_bytes * TAILS_BEHIND
            || self.index_memory() > self.options.index_bytes * 3 / 4
    }

    /// Cannot fail: everything that refuses a batch comes before.
    fn place(
        &self,
        sequencer: &mut Sequencer,
        batch: &Batch,
        outcomes: Vec<Outcome>,
        durability: Durability,
        done: Completion,
    ) {
        let lsn = sequencer.next_lsn;
        sequencer.next_lsn += 1;
        let start = sequencer.group.bytes.len();
        sequencer.group.bytes.resize(start + HEADER_BYTES, 0);
        self.place_controls(sequencer, batch, &outcomes);
        let control_bytes = (sequencer.group.bytes.len() - start - HEADER_BYTES) as u32;
        let now = self.clock.wall_ms();
        let mut events = Vec::with_capacity(batch.slots.len());
        let mut fresh = 0;
        for (index, slot) in batch.slots.iter().enumerate() {
            let placed = match outcomes.get(index) {
                Some(Outcome::Duplicate(placed)) => *placed,
                Some(Outcome::Earlier(earlier)) => {
                    let first: Option<&Placed> = events.get(*earlier);
                    first.map_or(Placed { offset: 0, ts: 0, duplicate: true }, |first| Placed {
                        duplicate: true,
                        ..*first
                    })
                }
                Some(Outcome::Fresh) | None => {
                    fresh += 1;
                    self.place_event(sequencer, batch, slot, now)
                }
            };
            events.push(placed);
        }
        let group = &mut sequencer.group;
        let redo_at = group.bytes.len();
        group.bytes.extend_from_slice(&batch.redo);
        let redo = redo_at..group.bytes.len();
        let parts = Parts { lsn, events: fresh, control_bytes, redo_bytes: redo.len() as u32 };
        if let Some(frame) = group.bytes.get_mut(start..) {
            frame::finish(frame, parts);
        }
        group.spans.push(FrameSpan { at: start, len: redo.end - start, lsn });
        group.wants_sync |= durability != Durability::Os;
        if !redo.is_empty() {
            group.has_redo = true;
            sequencer.redo_lsn = lsn;
        }
        let receipt = Receipt { lsn, events, durability };
        sequencer.group.waiters.push(Waiter { receipt, done, redo });
    }

    fn place_controls(&self, sequencer: &mut Sequencer, batch: &Batch, outcomes: &[Outcome]) {
        for change in &batch.controls {
            match change {
                TopicChange::Create(topic) => create_topic(sequencer, topic),
                TopicChange::Delete(topic) => self.delete_topic_now(sequencer, topic),
            }
        }
        for (index, slot) in batch.slots.iter().enumerate() {
            if matches!(outcomes.get(index), Some(Outcome::Fresh) | None) {
                create_topic(sequencer, &slot.topic);
            }
        }
    }

    pub(crate) fn delete_topic_now(&self, sequencer: &mut Sequencer, topic: &Topic) {
        Control::Delete { topic: topic.id() }.encode(&mut sequencer.group.bytes);
        topic.state().deleted = true;
        sequencer.deleted.push(topic.clone());
        self.write_catalog(|catalog| catalog.remove(topic));
    }

    fn place_event(&self, sequencer: &mut Sequencer, batch: &Batch, slot: &Slot, now: i64) -> Placed {
        let at = sequencer.group.bytes.len();
        sequencer.group.bytes.extend_from_slice(batch.record(slot));
        let mut state = slot.topic.state();
        let offset = state.next_offset;
        let ts = slot.ts.unwrap_or_else(|| state.stamp(now));
        let record = sequencer.group.bytes.get_mut(at..).unwrap_or_default();
        record::place(record, offset, ts);
        let rule = RollRule { segment_bytes: self.options.segment_bytes, now };
        let pos = state.admit(slot.topic.id(), record, ts, rule);
        sequencer.mark_dirty(&slot.topic, &mut state.dirty);
        sequencer.touch(&slot.topic, &mut state.touched, offset + 1);
        // The index has its own lock, which is never taken inside a topic's.
        drop(state);
        self.tail_bytes.fetch_add(slot.len as u64, Ordering::Relaxed);
        self.index.insert_pair(&Insert {
            topic: slot.topic.id(),
            pos,
            offset,
            id_hash: slot.id_hash,
            id_ms: slot.id.id().unix_ms(),
            key_hash: slot.key_hash,
            appended_ms: now.max(0) as u64,
        });
        Placed { offset, ts, duplicate: false }
    }
}

/// Announces a topic in the first frame that uses it.
fn create_topic(sequencer: &mut Sequencer, topic: &Topic) {
    let mut state = topic.state();
    if !std::mem::replace(&mut state.created, true) {
        Control::Create { topic: topic.id(), name: topic.name().as_str() }.encode(&mut sequencer.group.bytes);
        sequencer.mark_dirty(topic, &mut state.dirty);
    }
}

/// The answer for a batch that changes nothing and whose events are durable already.
fn all_durable_duplicates(batch: &Batch, outcomes: &[Outcome]) -> Option<Vec<Placed>> {
    if batch.slots.is_empty() || !batch.redo.is_empty() || !batch.controls.is_empty() {
        return None;
    }
    let mut events = Vec::with_capacity(outcomes.len());
    for (slot, outcome) in batch.slots.iter().zip(outcomes) {
        match outcome {
            Outcome::Duplicate(placed) if placed.offset < slot.topic.end() => events.push(*placed),
            _ => return None,
        }
    }
    (events.len() == batch.slots.len()).then_some(events)
}
