//! The read of one record at the position that the index names.

use std::io;

use crate::core::LogCore;
use crate::disk::DiskFile;
use crate::error::{LogReadError, read_io};
use crate::files::SegmentPart;
use crate::read::{FilePlace, ReadLimit, RecordPage};
use crate::record::{self, BadRecord, Record};
use crate::topic::{Topic, TopicState};

impl LogCore {
    /// Reads the record at `offset`, which the index has at position `pos`; `None` if it is not kept. Also
    /// reads beyond the durable end and below the earliest offset, so callers decide what to show.
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
                // The file was removed or rewritten since the look above, and the next look finds its
                // successor; or it is lost, which is an error.
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
        // The path is built only on failure: this runs for every event of a key's history.
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
        // Compaction moved the record, or it is damaged: scan the segment for it.
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
    /// The segment file that would hold `offset`, also if retention has dropped the segment and its file is
    /// still there.
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
