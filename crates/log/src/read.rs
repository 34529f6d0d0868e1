//! Reads of a topic's records in offset order, from memory or from segment files.

use std::io;
use std::sync::Arc;

use crate::core::LogCore;
use crate::error::{LogDamage, LogReadError, read_io};
use crate::files::SegmentPart;
use crate::planted::{self, Bug};
use crate::record::{self, BadRecord, RecordView};
use crate::samples::start_at;
use crate::segment::{HEADER_BYTES, Sample, SegmentMeta};
use crate::topic::{Chunk, Topic};

/// The least and the most bytes that are read from a file at once.
const WINDOW_MIN: usize = 8 * 1024;
const WINDOW_MAX: usize = 1024 * 1024;
/// The assumed size of an event before the first was read; larger events are read with another call.
const EVENT_BYTES_GUESS: usize = 512;

/// The most that a read returns. At least one event is returned if there is one.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimit {
    /// The most events.
    pub events: usize,
    /// No record is added after this many bytes.
    pub bytes: usize,
}

/// Consecutive records of a topic.
#[derive(Debug, Default)]
pub struct RecordPage {
    bytes: Vec<u8>,
    spans: Vec<(usize, usize)>,
    /// The offset from which to read on.
    pub next: u64,
    /// The position of the first record in its segment, if it was read from one.
    first_pos: u64,
}

impl RecordPage {
    /// The records in offset order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RecordView<'_>> {
        self.iter_with_bytes().map(|(view, _)| view)
    }

    pub(crate) fn iter_with_bytes(&self) -> impl ExactSizeIterator<Item = (RecordView<'_>, &[u8])> {
        self.spans.iter().map(|(at, len)| {
            let bytes = self.bytes.get(*at..at + len).unwrap_or_default();
            (record::view_checked(bytes), bytes)
        })
    }

    /// Makes an empty page that starts at an offset.
    pub(crate) fn at(next: u64) -> RecordPage {
        RecordPage { next, ..RecordPage::default() }
    }

    pub(crate) fn first_pos(&self) -> u64 {
        self.first_pos
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

/// The place of the next records.
enum ReadPlace {
    Nowhere,
    /// No record is kept below this offset.
    Hole(u64),
    Memory(Arc<Chunk>),
    File(FilePlace),
}

/// A part of a segment file that can be scanned.
pub(crate) struct FilePlace {
    pub(crate) meta: SegmentMeta,
    /// Bytes of the file that are written.
    pub(crate) applied: u64,
    /// Samples that are not in the file yet.
    pub(crate) samples: Vec<Sample>,
}

impl LogCore {
    pub(crate) fn read(
        &self,
        topic: &Topic,
        from: u64,
        limit: ReadLimit,
    ) -> Result<RecordPage, LogReadError> {
        let end = if planted::is(Bug::ReadPastDurableEnd) { topic.state().next_offset } else { topic.end() };
        let mut page = RecordPage::at(from);
        loop {
            match self.locate(topic, page.next, end)? {
                ReadPlace::Nowhere => return Ok(page),
                ReadPlace::Hole(next) => page.next = next,
                ReadPlace::Memory(chunk) => {
                    page.take_chunk(&chunk, end, limit);
                    return Ok(page);
                }
                ReadPlace::File(place) => {
                    self.scan_file(topic, &place, end, limit, &mut page)?;
                    if !page.is_empty() {
                        return Ok(page);
                    }
                }
            }
        }
    }

    fn locate(&self, topic: &Topic, from: u64, end: u64) -> Result<ReadPlace, LogReadError> {
        if from >= end {
            return Ok(ReadPlace::Nowhere);
        }
        let state = topic.state();
        if from < state.earliest {
            let (topic, earliest) = (topic.name().to_string(), state.earliest);
            return Err(LogReadError::OutOfRange { topic, requested: from, earliest });
        }
        if let Some(chunk) = state.tail_chunk(from) {
            return Ok(ReadPlace::Memory(Arc::clone(chunk)));
        }
        let index = state.segment_index(from);
        let Some(segment) = index.and_then(|index| state.segments.get(index)) else {
            let first = state.segments.first().map_or(end, |segment| segment.meta.id.base);
            return Ok(ReadPlace::Hole(first));
        };
        if from >= segment.meta.end {
            let next = index.and_then(|index| state.segments.get(index + 1));
            return Ok(ReadPlace::Hole(next.map_or(end, |next| next.meta.id.base)));
        }
        let samples = segment.samples.clone();
        Ok(ReadPlace::File(FilePlace { meta: segment.meta, applied: segment.applied, samples }))
    }

    /// Reads records of one segment that is complete on disk, also if the topic has dropped or replaced it
    /// meanwhile.
    pub(crate) fn read_segment(
        &self,
        topic: &Topic,
        meta: &SegmentMeta,
        from: u64,
        limit: ReadLimit,
    ) -> Result<RecordPage, LogReadError> {
        let place = FilePlace { meta: *meta, applied: meta.bytes, samples: Vec::new() };
        let mut page = RecordPage::at(from);
        self.scan_file(topic, &place, meta.end, limit, &mut page)?;
        Ok(page)
    }

    /// Hands all records of a segment that is complete on disk to `visit`, page by page. Damaged ranges are
    /// skipped; their damage is noted.
    pub(crate) fn visit_segment(
        &self,
        topic: &Topic,
        meta: &SegmentMeta,
        mut visit: impl FnMut(&RecordPage) -> Result<(), LogReadError>,
    ) -> Result<(), LogReadError> {
        let limit = ReadLimit { events: usize::MAX, bytes: WINDOW_MAX };
        let mut next = meta.id.base;
        while next < meta.end {
            let page = match self.read_segment(topic, meta, next, limit) {
                Ok(page) => page,
                Err(LogReadError::CorruptRange(damage)) if damage.to_offset > next => {
                    next = damage.to_offset;
                    continue;
                }
                Err(error) => return Err(error),
            };
            visit(&page)?;
            if page.next == next {
                break;
            }
            next = page.next;
        }
        Ok(())
    }

    /// Adds records of one segment file from `page.next` on. At the end of the file `page.next` moves to the
    /// segment's end.
    pub(crate) fn scan_file(
        &self,
        topic: &Topic,
        place: &FilePlace,
        end: u64,
        limit: ReadLimit,
        page: &mut RecordPage,
    ) -> Result<(), LogReadError> {
        let path = place.meta.id.path();
        let file = match self.files.get(place.meta.id, SegmentPart::Records) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.vanished(topic, place, page.next);
            }
            other => other.map_err(read_io("open", &path))?,
        };
        let from = page.next;
        let start = start_at(self, place, |sample| sample.offset <= from);
        let mut scan =
            SegmentScan { pos: start.0, expected: start.1, compacted: place.meta.id.generation > 0 };
        while scan.pos < place.applied && page.wants_more(limit) && page.next < end {
            let left = (place.applied - scan.pos) as usize;
            let room = limit.bytes.saturating_sub(page.bytes.len());
            // A window rarely ends exactly with a record; a small rest of a page is not worth another read.
            if room < WINDOW_MIN && !page.is_empty() {
                break;
            }
            let each = page.bytes.len().checked_div(page.len()).unwrap_or(EVENT_BYTES_GUESS);
            let wanted = room.min((limit.events.saturating_sub(page.len())).saturating_mul(each));
            let wanted = wanted.clamp(WINDOW_MIN, WINDOW_MAX);
            let mut window = file.read_vec_at(scan.pos, wanted.min(left)).map_err(read_io("read", &path))?;
            if let Err(BadRecord::Short(len)) = record::parse(&window)
                && len <= left
            {
                window = file.read_vec_at(scan.pos, len).map_err(read_io("read", &path))?;
            }
            let bounds = WindowBounds { from, end, limit };
            let found = scan.take_window(topic.id(), window, bounds, page);
            let bad = match found {
                Ok(0) => BadRecord::Short(0),
                Ok(_) => continue,
                Err(bad) => bad,
            };
            let damage = self.describe_damage(topic, place, scan.pos, scan.expected, bad);
            self.mark_damaged(topic, place, &damage);
            // Damage below `from` is skipped: the reader did not ask for it.
            if page.is_empty() && damage.to_offset <= from && damage.to_byte < place.applied {
                (scan.pos, scan.expected) = (damage.to_byte, damage.to_offset);
                continue;
            }
            return damaged_unless_some(damage, page);
        }
        let at_end = scan.pos >= place.applied && place.applied == place.meta.bytes && page.wants_more(limit);
        if at_end && !scan.compacted && scan.expected < place.meta.end && page.next < end {
            let damage = cut_short(topic, place, &scan);
            self.mark_damaged(topic, place, &damage);
            return damaged_unless_some(damage, page);
        }
        if at_end {
            page.next = page.next.max(place.meta.end.min(end));
        } else {
            page.next = page.next.max(scan.expected.min(end));
        }
        Ok(())
    }

    fn mark_damaged(&self, topic: &Topic, place: &FilePlace, damage: &LogDamage) {
        self.note_damage(damage);
        if let Some(segment) = topic.state().segment_by_id(place.meta.id) {
            segment.damaged = true;
        }
    }
}

/// The damage of a segment that ends before its last offset.
fn cut_short(topic: &Topic, place: &FilePlace, scan: &SegmentScan) -> LogDamage {
    LogDamage {
        topic: Some(topic.name().to_string()),
        file: place.meta.id.path(),
        from_byte: scan.pos,
        to_byte: place.meta.bytes,
        from_offset: scan.expected,
        to_offset: place.meta.end,
        what: "the file lacks its last records",
    }
}

/// Damage is an error only if the page is empty: records before the damage are returned first, and the next
/// read reports it.
fn damaged_unless_some(damage: LogDamage, page: &RecordPage) -> Result<(), LogReadError> {
    if !page.is_empty() {
        return Ok(());
    }
    let from_offset = damage.from_offset.max(page.next);
    Err(LogReadError::CorruptRange(LogDamage { from_offset, ..damage }))
}

impl RecordPage {
    fn wants_more(&self, limit: ReadLimit) -> bool {
        self.spans.len() < limit.events.max(1)
            && (self.spans.is_empty() || self.spans.last().map_or(0, |(at, len)| at + len) < limit.bytes)
    }

    fn take_chunk(&mut self, chunk: &Chunk, end: u64, limit: ReadLimit) {
        let mut bytes = chunk.from(self.next);
        while self.next < end.min(chunk.end()) && self.wants_more(limit) {
            let Ok(view) = record::parse(bytes) else { return };
            let at = self.bytes.len();
            self.bytes.extend_from_slice(bytes.get(..view.len).unwrap_or_default());
            self.spans.push((at, view.len));
            self.next = view.offset + 1;
            bytes = bytes.get(view.len..).unwrap_or_default();
        }
    }
}

/// The bounds of the records to take from a window.
#[derive(Clone, Copy)]
struct WindowBounds {
    from: u64,
    end: u64,
    limit: ReadLimit,
}

/// A walk through a segment file.
struct SegmentScan {
    pos: u64,
    /// The lowest offset that the next record can have; in a compacted segment its offset may be higher.
    expected: u64,
    compacted: bool,
}

impl SegmentScan {
    /// Takes the whole records of a window into the page. Returns how many bytes they have. The window
    /// becomes the page's buffer.
    fn take_window(
        &mut self,
        topic: u32,
        window: Vec<u8>,
        bounds: WindowBounds,
        page: &mut RecordPage,
    ) -> Result<usize, BadRecord> {
        let base = page.bytes.len();
        let mut at = 0;
        let mut result = Ok(());
        while let Some(rest) = window.get(at..).filter(|rest| !rest.is_empty()) {
            match record::parse(rest) {
                Ok(view) if view.topic != topic || !self.fits(view.offset) => {
                    result = Err(BadRecord::Header);
                    break;
                }
                Ok(view) => {
                    if view.offset >= bounds.end {
                        // A compacted segment may have no record left below the end.
                        page.next = bounds.end;
                        break;
                    }
                    if !page.wants_more(bounds.limit) {
                        break;
                    }
                    if view.offset >= bounds.from {
                        if page.spans.is_empty() {
                            page.first_pos = self.pos;
                        }
                        page.spans.push((base + at, view.len));
                        page.next = view.offset + 1;
                    }
                    self.expected = view.offset + 1;
                    at += view.len;
                    self.pos += view.len as u64;
                }
                Err(BadRecord::Short(_)) => break,
                // A damaged body below `from` is skipped: the header tells where the next record is, and the
                // reader has been told of the damage.
                Err(BadRecord::Body { len, offset }) if offset < bounds.from => {
                    self.expected = offset + 1;
                    at += len;
                    self.pos += len as u64;
                }
                Err(bad) => {
                    result = Err(bad);
                    break;
                }
            }
        }
        if page.spans.last().is_some_and(|(at, _)| *at >= base) {
            if base == 0 {
                page.bytes = window;
            } else {
                page.bytes.extend_from_slice(&window);
            }
        }
        let stopped = page.next >= bounds.end || !page.wants_more(bounds.limit);
        match result {
            Ok(()) if at == 0 && stopped => Ok(1),
            Ok(()) => Ok(at),
            // Records before the damage count; the next window starts at the damage and reports it.
            Err(_) if at > 0 => Ok(at),
            Err(bad) => Err(bad),
        }
    }

    fn fits(&self, offset: u64) -> bool {
        offset == self.expected || (self.compacted && offset > self.expected)
    }
}

/// The position and the offset of a segment's first record.
pub(crate) fn segment_start(meta: &SegmentMeta) -> (u64, u64) {
    (HEADER_BYTES, meta.id.base)
}
