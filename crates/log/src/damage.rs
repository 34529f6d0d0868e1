//! Damage that reads meet: it is described, noted, and reported by `health`.

use crate::core::LogCore;
use crate::error::{LogDamage, LogReadError};
use crate::files::SegmentPart;
use crate::poison::lock;
use crate::read::FilePlace;
use crate::record::{self, BadRecord};
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
            // In a compacted segment the offset may be higher than the lowest that is expected.
            BadRecord::Body { len, offset: at } => Some((pos + len as u64, offset.max(at) + 1)),
            _ => self.known_end(place, pos).or_else(|| self.next_record(place, pos, offset)),
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

    /// The end of damage at `pos` that was met before.
    fn known_end(&self, place: &FilePlace, pos: u64) -> Option<(u64, u64)> {
        let path = place.meta.id.path();
        let known = lock(&self.damage);
        let found = known.iter().find(|damage| damage.from_byte == pos && damage.file == path)?;
        Some((found.to_byte, found.to_offset))
    }

    /// Finds position and offset of the first record after `pos` whose header verifies, by trying every byte.
    fn next_record(&self, place: &FilePlace, pos: u64, offset: u64) -> Option<(u64, u64)> {
        const WINDOW_BYTES: usize = 1024 * 1024;
        let file = self.files.get(place.meta.id, SegmentPart::Records).ok()?;
        let mut start = pos + 1;
        while start + record::HEADER_BYTES as u64 <= place.applied {
            let left = (place.applied - start) as usize;
            let window = file.read_vec_at(start, left.min(WINDOW_BYTES)).ok()?;
            let found = window.windows(record::HEADER_BYTES).position(|header| {
                let fits = record::peek(header).is_some_and(|(topic, at, _)| {
                    topic == place.meta.id.topic && at >= offset && at < place.meta.end
                });
                fits && !matches!(record::parse(header), Err(BadRecord::Header))
            });
            if let Some(at) = found {
                let header = window.get(at..).unwrap_or_default();
                return Some((start + at as u64, record::offset_of(header)));
            }
            // A header may begin in this window and end in the next.
            start += window.len().saturating_sub(record::HEADER_BYTES - 1).max(1) as u64;
        }
        None
    }
}
