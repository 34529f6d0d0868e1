//! Damage that reads meet: it is described, noted, and reported by `health`.

use crate::core::LogCore;
use crate::error::{LogDamage, LogReadError};
use crate::poison::lock;
use crate::read::FilePlace;
use crate::record::BadRecord;
use crate::samples::first_sample_after;
use crate::topic::Topic;

impl LogCore {
    /// Adds damage to the health of the log, once.
    pub(crate) fn note_damage(&self, damage: &LogDamage) {
        const DAMAGE_MAX: usize = 1000;
        let mut known = lock(&self.damage);
        if known.len() < DAMAGE_MAX && !known.contains(damage) {
            known.push(damage.clone());
        }
    }

    /// Handles a missing segment file: retention or compaction removed it just now, or it is lost, which is
    /// an error.
    pub(crate) fn vanished(&self, topic: &Topic, place: &FilePlace, from: u64) -> Result<(), LogReadError> {
        let mut state = topic.state();
        if state.segment_by_id(place.meta.id).is_none()
            && !state.leaving.iter().any(|meta| meta.id == place.meta.id)
        {
            // The next look finds the segment that replaced it.
            return Ok(());
        }
        drop(state);
        let damage = LogDamage {
            topic: Some(topic.name().to_string()),
            file: place.meta.id.path(),
            from_byte: 0,
            to_byte: place.meta.bytes,
            from_offset: from,
            to_offset: place.meta.end,
            what: "the file is missing",
        };
        self.note_damage(&damage);
        Err(LogReadError::CorruptRange(damage))
    }

    /// Describes damage that a read met at position `pos`, where the record at `offset` should be.
    pub(crate) fn describe_damage(
        &self,
        topic: &Topic,
        place: &FilePlace,
        pos: u64,
        offset: u64,
        bad: BadRecord,
    ) -> LogDamage {
        let after = match bad {
            BadRecord::Body { len } => Some((pos + len as u64, offset + 1)),
            _ => first_sample_after(self, place, pos),
        };
        let (to_byte, to_offset) = after.unwrap_or((place.meta.bytes, place.meta.end));
        let what = match bad {
            BadRecord::Short(_) => "the file ends too early",
            BadRecord::Header => "a record's header does not verify",
            BadRecord::Body { .. } => "a record's body does not verify",
        };
        LogDamage {
            topic: Some(topic.name().to_string()),
            file: place.meta.id.path(),
            from_byte: pos,
            to_byte: to_byte.max(pos),
            from_offset: offset,
            to_offset: to_offset.max(offset),
            what,
        }
    }
}
