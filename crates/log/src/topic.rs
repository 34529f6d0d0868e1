//! One topic: its offsets, its segments, and its tail, which is not in segments yet.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use promethean_model::TopicName;

use crate::log_clock::NEAR_MS;
use crate::options::TopicPolicy;
use crate::poison::lock;
use crate::segment::{HEADER_BYTES, SAMPLE_EVERY, Sample, SegmentId, SegmentMeta};

/// Chunks of the tail are closed at this size.
const CHUNK_BYTES: usize = 64 * 1024;

/// A handle to one topic; cheap to clone.
#[derive(Clone)]
pub struct Topic(Arc<TopicInner>);

struct TopicInner {
    id: u32,
    name: TopicName,
    /// The durable end: readers see offsets below. Written by the writer after a sync.
    durable_end: AtomicU64,
    /// Whether a frame has created the topic. Written under the sequencer's lock.
    created: AtomicBool,
    /// Whether a frame has deleted the topic. Written under the sequencer's lock.
    deleted: AtomicBool,
    /// Whether the policy requires keys.
    needs_key: AtomicBool,
    state: Mutex<TopicState>,
}

/// The offsets and sizes of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogTopicInfo {
    /// The first offset that is kept.
    pub earliest: u64,
    /// The first offset that is not durable yet.
    pub end: u64,
    /// Bytes in segments, including the tail.
    pub bytes: u64,
    /// Number of segments.
    pub segments: usize,
    /// The number of records that are kept; fewer than `end - earliest` in a compacted topic.
    pub records: u64,
    /// The last stamp given by the log.
    pub last_stamp: i64,
    /// The number of offsets that the last retention kept only because of a hold.
    pub held: u64,
}

impl Topic {
    pub(crate) fn new(id: u32, name: TopicName, created: bool, state: TopicState) -> Topic {
        Topic(Arc::new(TopicInner {
            id,
            name,
            durable_end: AtomicU64::new(state.next_offset),
            created: AtomicBool::new(created),
            deleted: AtomicBool::new(false),
            needs_key: AtomicBool::new(state.policy.compacted),
            state: Mutex::new(state),
        }))
    }

    /// The number that stands for the topic on disk.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The topic's name.
    pub fn name(&self) -> &TopicName {
        &self.0.name
    }

    /// The first offset that is not durable yet: readers see all offsets below.
    pub fn end(&self) -> u64 {
        self.0.durable_end.load(Ordering::Acquire)
    }

    /// The offsets and sizes of the topic now.
    pub fn info(&self) -> LogTopicInfo {
        let state = self.state();
        LogTopicInfo {
            earliest: state.earliest,
            end: self.end(),
            bytes: state.segments.iter().map(|segment| segment.meta.bytes).sum(),
            segments: state.segments.len(),
            records: state.segments.iter().map(|segment| segment.meta.records).sum(),
            last_stamp: state.last_stamp,
            held: state.held,
        }
    }

    /// Whether the event at an offset and all later ones are still in memory, so that reading them needs no
    /// file.
    pub fn is_in_memory(&self, offset: u64) -> bool {
        self.state().tail_chunk(offset).is_some()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, TopicState> {
        lock(&self.0.state)
    }

    pub(crate) fn set_end(&self, end: u64) {
        self.0.durable_end.fetch_max(end, Ordering::AcqRel);
    }

    pub(crate) fn is_created(&self) -> bool {
        self.0.created.load(Ordering::Acquire)
    }

    /// Marks the topic as created. Returns whether this call did it.
    pub(crate) fn set_created(&self) -> bool {
        !self.is_created() && !self.0.created.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.0.deleted.load(Ordering::Acquire)
    }

    pub(crate) fn set_deleted(&self) {
        self.0.deleted.store(true, Ordering::Release);
    }

    pub(crate) fn needs_key(&self) -> bool {
        self.0.needs_key.load(Ordering::Acquire)
    }

    pub(crate) fn set_policy(&self, policy: TopicPolicy) {
        let mut state = self.state();
        self.0.needs_key.store(policy.compacted, Ordering::Release);
        state.policy = policy;
    }

    /// The number of handles.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    pub(crate) fn same(&self, other: &Topic) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic").field("id", &self.id()).field("name", self.name()).finish()
    }
}

/// The state of a topic. The topic's lock guards it, which is taken inside the sequencer's lock, never around
/// it.
#[derive(Debug, Default)]
pub(crate) struct TopicState {
    pub(crate) next_offset: u64,
    pub(crate) earliest: u64,
    pub(crate) last_stamp: i64,
    /// Oldest first; only the last one grows.
    pub(crate) segments: Vec<Segment>,
    /// Segments that retention dropped and whose files are still there.
    pub(crate) leaving: Vec<SegmentMeta>,
    pub(crate) tail: VecDeque<Arc<Chunk>>,
    /// Bytes and records of the last chunk that was written out.
    pub(crate) last_chunk: (usize, usize),
    /// Whether the next record starts a new chunk, because a checkpoint was cut after the last record.
    pub(crate) tail_closed: bool,
    pub(crate) policy: TopicPolicy,
    /// The number of offsets that only a hold keeps.
    pub(crate) held: u64,
    /// Whether the next checkpoint must look at this topic.
    pub(crate) dirty: bool,
    /// The last group with frames of this topic, and the topic's index in the group's `touched`.
    pub(crate) touched: (u64, usize),
}

#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) meta: SegmentMeta,
    /// Samples that are not in the `.idx` file yet.
    pub(crate) samples: Vec<Sample>,
    /// Bytes written to the file; 0 until it is created.
    pub(crate) applied: u64,
    pub(crate) sealed: bool,
    /// Position of the last sample.
    pub(crate) sampled_at: u64,
    /// Whether it has records that are not in the manifest.
    pub(crate) changed: bool,
    /// Whether it has samples that are not in the manifest. Samples are hints, so nothing waits for them.
    pub(crate) samples_changed: bool,
    pub(crate) damaged: bool,
}

impl Segment {
    pub(crate) fn new(meta: SegmentMeta, applied: u64) -> Segment {
        Segment {
            meta,
            samples: Vec::new(),
            applied,
            sealed: false,
            sampled_at: meta.bytes,
            changed: false,
            samples_changed: false,
            damaged: false,
        }
    }
}

/// Consecutive records of one segment that are not written to it yet.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) segment: SegmentId,
    /// Position of the first byte in the segment.
    pub(crate) pos: u64,
    pub(crate) first: u64,
    pub(crate) bytes: Vec<u8>,
    /// End of each record in `bytes`.
    pub(crate) ends: Vec<u32>,
}

impl Chunk {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.ends.len() as u64
    }

    /// Bytes from the record at `offset` on.
    pub(crate) fn from(&self, offset: u64) -> &[u8] {
        let index = offset.saturating_sub(self.first) as usize;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.bytes.get(start as usize..).unwrap_or_default()
    }
}

/// The size and the time that decide whether a new segment starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RollRule {
    pub(crate) segment_bytes: u64,
    pub(crate) now: i64,
}

impl TopicState {
    /// The stamp for an event without a `ts`: never lower than the last one.
    pub(crate) fn stamp(&mut self, now: i64) -> i64 {
        self.last_stamp = self.last_stamp.max(now);
        self.last_stamp
    }

    /// The append time of the next event: never lower than the last one.
    pub(crate) fn append_time(&self, present: i64) -> i64 {
        self.segments.last().map_or(present, |segment| segment.meta.last_append.max(present))
    }

    /// Sets append times in the future to the present. Returns in how many segments there were such times.
    pub(crate) fn clamp_append_times(&mut self, present: i64) -> usize {
        let mut clamped = 0;
        for segment in self.segments.iter_mut().filter(|segment| segment.meta.last_append > present + NEAR_MS)
        {
            segment.meta.last_append = present;
            segment.meta.first_append = segment.meta.first_append.min(present);
            segment.changed = true;
            clamped += 1;
        }
        clamped
    }

    /// Adds a placed record at the end of the topic. Returns its position in its segment.
    pub(crate) fn admit(&mut self, topic: u32, record: &[u8], ts: i64, rule: RollRule) -> u32 {
        let offset = self.next_offset;
        self.next_offset += 1;
        self.roll_if_due(topic, offset, record.len() as u64, rule);
        let Some(segment) = self.segments.last_mut() else { return 0 };
        let pos = segment.meta.bytes;
        if pos >= segment.sampled_at + SAMPLE_EVERY {
            segment.samples.push(Sample { offset, max_ts: segment.meta.max_ts, pos: pos as u32 });
            segment.sampled_at = pos;
        }
        segment.meta.add(offset, record.len(), ts, rule.now);
        segment.changed = true;
        let id = segment.meta.id;
        self.push_tail(id, pos, offset, record);
        pos as u32
    }

    fn roll_if_due(&mut self, topic: u32, offset: u64, len: u64, rule: RollRule) {
        let most = self.policy.segment_bytes(rule.segment_bytes);
        if let Some(segment) = self.segments.last_mut().filter(|segment| !segment.sealed) {
            let full = segment.meta.bytes + len > most;
            let old = self.policy.age_ms.is_some_and(|age| {
                rule.now.saturating_sub(segment.meta.first_append) > (age / 8).max(1) as i64
            });
            if segment.meta.records == 0 || !(full || old) {
                return;
            }
            segment.sealed = true;
            segment.changed = true;
        }
        let id = SegmentId { topic, base: offset, generation: 0 };
        let mut segment = Segment::new(SegmentMeta::new(id, rule.now), 0);
        segment.sampled_at = HEADER_BYTES;
        segment.changed = true;
        self.segments.push(segment);
    }

    fn push_tail(&mut self, segment: SegmentId, pos: u64, offset: u64, record: &[u8]) {
        // A chunk with another reference is being read or written out, and must not change.
        let closed = std::mem::take(&mut self.tail_closed);
        let open = self.tail.back_mut().filter(|_| !closed).and_then(Arc::get_mut);
        let open = open.filter(|chunk| chunk.segment == segment && chunk.bytes.len() < CHUNK_BYTES);
        if let Some(chunk) = open {
            chunk.bytes.extend_from_slice(record);
            chunk.ends.push(chunk.bytes.len() as u32);
            return;
        }
        // The chunks of a topic are alike: with the capacity of the last chunk the new one need not grow.
        let (bytes_before, ends_before) =
            self.tail.back().map_or(self.last_chunk, |chunk| (chunk.bytes.len(), chunk.ends.len()));
        let mut bytes = Vec::with_capacity(bytes_before.max(record.len()));
        bytes.extend_from_slice(record);
        let mut ends = Vec::with_capacity(ends_before.max(1));
        ends.push(record.len() as u32);
        self.tail.push_back(Arc::new(Chunk { segment, pos, first: offset, bytes, ends }));
    }

    /// Index of the segment that would hold `offset`.
    pub(crate) fn segment_index(&self, offset: u64) -> Option<usize> {
        self.segments.partition_point(|segment| segment.meta.id.base <= offset).checked_sub(1)
    }

    pub(crate) fn segment_by_id(&mut self, id: SegmentId) -> Option<&mut Segment> {
        let index = self.segment_index(id.base)?;
        self.segments.get_mut(index).filter(|segment| segment.meta.id == id)
    }

    /// Leaves a hole up to `offset` in place of lost events.
    pub(crate) fn skip_to(&mut self, offset: u64) {
        self.next_offset = self.next_offset.max(offset);
        if let Some(segment) = self.segments.last_mut() {
            segment.sealed = true;
        }
    }

    /// The segments as far as they are written to their files.
    pub(crate) fn on_disk(&self) -> Vec<SegmentMeta> {
        let written = self.segments.iter().filter(|segment| segment.applied > 0);
        written
            .map(|segment| {
                let mut meta = SegmentMeta { bytes: segment.applied, ..segment.meta };
                if let Some(first) = self.tail.iter().find(|chunk| chunk.segment == meta.id) {
                    meta.records -= meta.end - first.first;
                    meta.end = first.first;
                }
                meta
            })
            .collect()
    }

    /// The first offset that a segment file still holds.
    pub(crate) fn on_disk_from(&self) -> u64 {
        let leaving = self.leaving.first().map(|meta| meta.id.base);
        let kept = self.segments.first().map(|segment| segment.meta.id.base);
        leaving.or(kept).unwrap_or(self.next_offset)
    }

    /// The tail chunk that holds `offset`.
    pub(crate) fn tail_chunk(&self, offset: u64) -> Option<&Arc<Chunk>> {
        let index = self.tail.partition_point(|chunk| chunk.end() <= offset);
        self.tail.get(index).filter(|chunk| chunk.first <= offset)
    }
}
