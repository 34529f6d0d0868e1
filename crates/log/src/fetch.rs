//! Reads one record where the index says it is.

use std::io;

use crate::core::Core;
use crate::error::{ReadError, read_io};
use crate::files::Part;
use crate::io_util::read_vec_at;
use crate::read::{FilePlace, Page, ReadLimit};
use crate::record::{self, Bad, Record};
use crate::topic::Topic;

impl Core {
    /// The record at `offset`, which the index saw at `pos`; `None` if it is not kept. Sees beyond the durable end and
    /// below the earliest offset, so callers decide what may be shown.
    pub(crate) fn record_at(
        &self,
        topic: &Topic,
        offset: u64,
        pos: u32,
    ) -> Result<Option<Record>, ReadError> {
        const GUESS_BYTES: usize = 1024;
        let place = {
            let state = topic.state();
            if let Some(chunk) = state.tail_chunk(offset) {
                let bytes = chunk.from(offset);
                return Ok(record::parse(bytes).ok().map(|view| view.to_record(bytes)));
            }
            let found = state.segment_index(offset).and_then(|index| state.segments.get(index));
            let Some(segment) = found.filter(|segment| offset < segment.meta.end) else { return Ok(None) };
            let samples = Vec::new();
            FilePlace { meta: segment.meta, applied: segment.applied, samples }
        };
        let path = place.meta.id.path();
        let file = match self.files.get(place.meta.id, Part::Records) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(read_io("open", &path))?,
        };
        let mut bytes = read_vec_at(&*file, u64::from(pos), GUESS_BYTES).map_err(read_io("read", &path))?;
        if let Err(Bad::Short(len)) = record::parse(&bytes)
            && u64::from(pos) + len as u64 <= place.applied
        {
            bytes = read_vec_at(&*file, u64::from(pos), len).map_err(read_io("read", &path))?;
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
    ) -> Result<Option<Record>, ReadError> {
        let mut page = Page::at(offset);
        let limit = ReadLimit { events: 1, bytes: 1 };
        self.scan_file(topic, &place, offset + 1, limit, &mut page)?;
        let mut found = page.iter_with_bytes().filter(|(view, _)| view.offset == offset);
        Ok(found.next().map(|(view, bytes)| view.to_record(bytes)))
    }
}
