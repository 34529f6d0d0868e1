//! Reads one record where the index says it is.

use std::io;

use crate::core::LogCore;
use crate::disk::DiskFile;
use crate::error::{LogReadError, read_io};
use crate::files::SegmentPart;
use crate::read::{FilePlace, ReadLimit, RecordPage};
use crate::record::{self, BadRecord, Record};
use crate::topic::{Topic, TopicState};

impl LogCore {
    /// The record at `offset`, which the index saw at `pos`; `None` if it is not kept. Sees beyond the durable end and
    /// below the earliest offset, so callers decide what may be shown.
    pub(crate) fn record_at(
        &self,
        topic: &Topic,
        offset: u64,
        pos: u32,
    ) -> Result<Option<Record>, LogReadError> {
        loop {
            let place = {
                let state = topic.state();
                if let Some(chunk) = state.tail_chunk(offset) {
                    let bytes = chunk.from(offset);
                    return Ok(record::parse(bytes).ok().map(|view| view.to_record(bytes)));
                }
                match state.file_place(offset) {
                    Some(place) => place,
                    None => return Ok(None),
                }
            };
            match self.files.get(place.meta.id, SegmentPart::Records) {
                // Removed or rewritten since the look above, so the next look ends; or lost, which is an error.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.vanished(topic, &place, offset)?
                }
                Err(error) => return Err(read_io("open", &place.meta.id.path())(error)),
                Ok(file) => return self.record_in(topic, place, &*file, offset, pos),
            }
        }
    }

    fn record_in(
        &self,
        topic: &Topic,
        place: FilePlace,
        file: &dyn DiskFile,
        offset: u64,
        pos: u32,
    ) -> Result<Option<Record>, LogReadError> {
        const GUESS_BYTES: usize = 1024;
        // Named only when it is needed: this runs for every event of a key's history.
        let failed = |error| read_io("read", &place.meta.id.path())(error);
        let mut bytes = file.read_vec_at(u64::from(pos), GUESS_BYTES).map_err(failed)?;
        if let Err(BadRecord::Short(len)) = record::parse(&bytes)
            && u64::from(pos) + len as u64 <= place.applied
        {
            bytes = file.read_vec_at(u64::from(pos), len).map_err(failed)?;
        }
        if let Ok(view) = record::parse(&bytes)
            && view.topic == topic.id()
            && view.offset == offset
        {
            return Ok(Some(view.to_record(&bytes)));
        }
        // Compaction moved it, or it is damaged: look for it in order.
        self.record_by_scan(topic, place, offset)
    }

    fn record_by_scan(
        &self,
        topic: &Topic,
        place: FilePlace,
        offset: u64,
    ) -> Result<Option<Record>, LogReadError> {
        let mut page = RecordPage::at(offset);
        let limit = ReadLimit { events: 1, bytes: 1 };
        self.scan_file(topic, &place, offset + 1, limit, &mut page)?;
        let mut found = page.iter_with_bytes().filter(|(view, _)| view.offset == offset);
        Ok(found.next().map(|(view, bytes)| view.to_record(bytes)))
    }
}

impl TopicState {
    /// The segment file that would hold `offset`, also one that retention has taken out and not removed yet.
    fn file_place(&self, offset: u64) -> Option<FilePlace> {
        let samples = Vec::new();
        let kept = self.segment_index(offset).and_then(|index| self.segments.get(index));
        if let Some(segment) = kept {
            let inside = offset < segment.meta.end;
            return inside.then_some(FilePlace { meta: segment.meta, applied: segment.applied, samples });
        }
        let leaving = self.leaving.iter().find(|meta| meta.id.base <= offset && offset < meta.end)?;
        Some(FilePlace { meta: *leaving, applied: leaving.bytes, samples })
    }
}
