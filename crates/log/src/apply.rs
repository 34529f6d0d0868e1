//! Moves durable records from tails into segment files.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::LogCore;
use crate::file_io::write_all_at;
use crate::files::SegmentPart;
use crate::poison::lock;
use crate::segment::{HEADER_BYTES, SAMPLE_BYTES, Sample, SegmentId};
use crate::topic::{Chunk, Topic};

/// A smaller tail waits until all tails together are full, so that many small topics do not cause many small
/// writes.
const EAGER_BYTES: u64 = 64 * 1024;
/// Samples kept in memory: for all growing segments together, and the bounds for one segment.
const SAMPLES_KEPT: usize = 64 * 1024;
const SAMPLES_KEPT_EACH: std::ops::RangeInclusive<usize> = 32..=1024;

/// Files written since the last sync.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    pub(crate) files: BTreeSet<(SegmentId, SegmentPart)>,
    pub(crate) created: bool,
}

impl LogCore {
    /// Writes the durable records of larger tails to segments, or of all tails when they are full together.
    pub(crate) fn apply_tails(&self, unsynced: &mut Unsynced) -> io::Result<()> {
        let most = self.options.tail_bytes * 2;
        let all = self.tail_bytes.load(Ordering::Relaxed) >= most;
        let dirty = lock(&self.sequencer).dirty.clone();
        for topic in dirty {
            let waiting: u64 = topic.state().tail.iter().map(|chunk| chunk.bytes.len() as u64).sum();
            if all || waiting >= EAGER_BYTES {
                self.apply_topic(&topic, u64::MAX, unsynced)?;
            }
        }
        let left = self.tail_bytes.load(Ordering::Relaxed);
        let due = (left + self.options.tail_bytes / 4).clamp(self.options.tail_bytes, most);
        self.tail_due.store(due, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the durable tail chunks below `limit` to segments.
    pub(crate) fn apply_topic(&self, topic: &Topic, limit: u64, unsynced: &mut Unsynced) -> io::Result<()> {
        loop {
            let durable = topic.end();
            let front = topic.state().tail.front().cloned();
            let Some(chunk) = front.filter(|chunk| chunk.end() <= durable && chunk.first < limit) else {
                return Ok(());
            };
            self.write_chunk(topic, &chunk, unsynced)?;
        }
    }

    fn write_chunk(&self, topic: &Topic, chunk: &Arc<Chunk>, unsynced: &mut Unsynced) -> io::Result<()> {
        let id = chunk.segment;
        let is_new = topic.state().segment_by_id(id).is_some_and(|segment| segment.applied == 0);
        let file = if is_new {
            self.files.create(id, SegmentPart::Records)?
        } else {
            self.files.get(id, SegmentPart::Records)?
        };
        unsynced.files.insert((id, SegmentPart::Records));
        if is_new {
            unsynced.created = true;
            write_all_at(&*file, &id.encode_header(), 0)?;
        }
        write_all_at(&*file, &chunk.bytes, chunk.pos)?;
        let samples_kept = self.samples_kept();
        let samples = {
            let mut state = topic.state();
            state.tail.pop_front();
            state.last_chunk = (chunk.bytes.len(), chunk.ends.len());
            let last = state.segments.last().map(|segment| segment.meta.id);
            let Some(segment) = state.segment_by_id(id) else { return Ok(()) };
            segment.applied = chunk.pos + chunk.bytes.len() as u64;
            let complete = (last != Some(id) || segment.sealed) && segment.applied == segment.meta.bytes;
            if complete || segment.samples.len() >= samples_kept {
                Some((segment.meta.samples, segment.samples.clone()))
            } else {
                None
            }
        };
        self.tail_bytes.fetch_sub(chunk.bytes.len() as u64, Ordering::Relaxed);
        match samples {
            Some((count, samples)) => self.write_samples(topic, id, count, &samples, unsynced),
            None => Ok(()),
        }
    }

    /// The number of samples that a growing segment may keep in memory: a file of a few samples is not worth
    /// creating.
    fn samples_kept(&self) -> usize {
        let topics = self.read_catalog(|catalog| catalog.by_id.len());
        (SAMPLES_KEPT / topics.max(1)).clamp(*SAMPLES_KEPT_EACH.start(), *SAMPLES_KEPT_EACH.end())
    }

    fn write_samples(
        &self,
        topic: &Topic,
        id: SegmentId,
        count: u32,
        samples: &[Sample],
        unsynced: &mut Unsynced,
    ) -> io::Result<()> {
        let file = if count == 0 {
            self.files.create(id, SegmentPart::Samples)?
        } else {
            self.files.get(id, SegmentPart::Samples)?
        };
        unsynced.files.insert((id, SegmentPart::Samples));
        unsynced.created |= count == 0;
        let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.encode(id.topic)).collect();
        write_all_at(&*file, &bytes, u64::from(count) * SAMPLE_BYTES as u64)?;
        let mut sequencer = lock(&self.sequencer);
        let mut state = topic.state();
        sequencer.mark_dirty(topic, &mut state.dirty);
        if let Some(segment) = state.segment_by_id(id) {
            segment.samples.drain(..samples.len().min(segment.samples.len()));
            segment.samples.shrink_to(*SAMPLES_KEPT_EACH.start());
            segment.meta.samples += samples.len() as u32;
            segment.samples_changed = true;
        }
        Ok(())
    }

    /// Cuts a growing segment to the length in the checkpoint. A shorter file stays as it is: reading it
    /// reports damage. Returns whether the file was long enough.
    pub(crate) fn cut_segment(&self, id: SegmentId, bytes: u64) -> io::Result<bool> {
        let file = match self.files.get(id, SegmentPart::Records) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = self.files.create(id, SegmentPart::Records)?;
                write_all_at(&*file, &id.encode_header(), 0)?;
                return Ok(bytes <= HEADER_BYTES);
            }
            other => other?,
        };
        let len = file.len()?;
        if len > bytes {
            file.set_len(bytes)?;
        }
        Ok(len >= bytes)
    }
}
