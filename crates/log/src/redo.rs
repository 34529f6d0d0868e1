//! The redo of journal frames into topics, index and catalogue.

use std::sync::atomic::Ordering;

use crate::batch::{id_hash, key_hash};
use crate::core::LogCore;
use crate::error::{LogOpenError, open_io};
use crate::index::Insert;
use crate::journal::frame::{Control, FrameView};
use crate::planted::{self, Bug};
use crate::poison::lock;
use crate::record;
use crate::segment;
use crate::topic::{RollRule, Topic, TopicState};

impl LogCore {
    /// Puts a frame's events back into their topics, at the same offsets.
    pub(crate) fn redo_frame(&self, frame: &FrameView<'_>) -> Result<(), LogOpenError> {
        for control in frame.controls() {
            self.redo_control(&control)?;
        }
        let now = self.times.read().append();
        let mut rest = frame.records;
        while !rest.is_empty() {
            let Ok(view) = record::parse(rest) else {
                return Err(LogOpenError::State("a frame verifies but its records do not".to_owned()));
            };
            let bytes = rest.get(..view.len).unwrap_or_default();
            // A repaired journal still has events of topics that were deleted later in it.
            if let Some(topic) = self.topic_by_id(view.topic) {
                self.redo_record(&topic, &view, bytes, now);
            }
            rest = rest.get(view.len..).unwrap_or_default();
        }
        lock(&self.sequencer).next_lsn = frame.lsn + 1;
        Ok(())
    }

    fn redo_record(&self, topic: &Topic, view: &record::RecordView<'_>, bytes: &[u8], now: i64) {
        let mut state = topic.state();
        if view.offset < state.next_offset && !planted::is(Bug::ReuseOffset) {
            return;
        }
        // This happens only after a repair: the events between are lost, and their offsets are not used again.
        if view.offset > state.next_offset {
            state.skip_to(view.offset);
        }
        if view.server_stamped {
            state.last_stamp = state.last_stamp.max(view.ts);
        }
        let now = state.append_time(now);
        let rule = RollRule { segment_bytes: self.options.segment_bytes, now };
        let pos = state.admit(topic.id(), bytes, view.ts, rule);
        let end = state.next_offset;
        lock(&self.sequencer).mark_dirty(topic, &mut state.dirty);
        drop(state);
        topic.set_end(end);
        self.tail_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if planted::is(Bug::DropDedupeOnRestart) {
            return;
        }
        self.index.insert_pair(&Insert {
            topic: topic.id(),
            pos,
            offset: view.offset,
            id_hash: id_hash(view.id),
            id_ms: view.id.unix_ms(),
            key_hash: view.key.map(key_hash),
            appended_ms: now.max(0) as u64,
        });
    }

    fn redo_control(&self, control: &Control<'_>) -> Result<(), LogOpenError> {
        match control {
            Control::Create { topic, name } => {
                let name =
                    name.parse().map_err(|_| LogOpenError::State(format!("bad topic name `{name}`")))?;
                // The manifest of a repair has topics from later frames: one of the same name is newer.
                if self.topic_by_id(*topic).is_none() && self.topic(&name).is_none() {
                    let created = Topic::new(*topic, name, true, TopicState::default());
                    lock(&self.sequencer).mark_dirty(&created, &mut created.state().dirty);
                    self.write_catalog(|catalog| catalog.insert(created));
                }
            }
            Control::Delete { topic } => {
                if let Some(topic) = self.topic_by_id(*topic) {
                    topic.set_deleted();
                    lock(&self.sequencer).deleted.push(topic.clone());
                    self.write_catalog(|catalog| catalog.remove(&topic));
                }
            }
        }
        Ok(())
    }

    /// Writes tails to segments, so that a long journal needs no more memory than a running log. Nothing here
    /// is synced before the next checkpoint, so a crash in the middle changes nothing.
    pub(crate) fn write_tails(&self) -> Result<(), LogOpenError> {
        let mut upkeep = lock(&self.upkeep);
        self.apply_tails(&mut upkeep.unsynced).map_err(open_io("write", segment::DIR))
    }
}
