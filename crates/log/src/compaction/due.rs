//! When a topic is compacted: by the share of bytes that are new, or by the age of the oldest new event.
//!
//! Only segments that no longer grow are compacted. A segment that is due is sealed: at the cut of a checkpoint, so that a
//! busy topic is compacted too, or, when all of it is in the manifest, by the compaction itself.

use std::sync::atomic::Ordering;

use crate::core::LogCore;
use crate::options::LogOptions;
use crate::planted::{self, Bug};
use crate::segment::SegmentMeta;
use crate::topic::{Segment, Topic, TopicState};

/// New events, which no compaction has looked at, beside the others.
struct NewEvents {
    bytes: u64,
    /// Bytes of segments that were compacted before.
    clean_bytes: u64,
    /// When the oldest of them was appended.
    since: i64,
}

impl NewEvents {
    /// The new events of segments; `None` if there are none.
    fn of<'a>(segments: impl Iterator<Item = &'a SegmentMeta>) -> Option<NewEvents> {
        let mut found = NewEvents { bytes: 0, clean_bytes: 0, since: i64::MAX };
        for meta in segments {
            if meta.id.generation == 0 {
                found.bytes += meta.bytes;
                found.since = found.since.min(meta.first_append);
            } else {
                found.clean_bytes += meta.bytes;
            }
        }
        (found.bytes > 0).then_some(found)
    }

    /// Whether a compaction rewrites little beside the new events, or little at all.
    fn are_worth_it(&self, options: &LogOptions) -> bool {
        let all = self.bytes + self.clean_bytes;
        self.bytes * 2 >= self.clean_bytes || all <= options.compaction_bytes_min
    }

    fn are_due(&self, options: &LogOptions, now: i64) -> bool {
        self.are_many(options) || self.are_old(options, now)
    }

    fn are_many(&self, options: &LogOptions) -> bool {
        let all = self.bytes + self.clean_bytes;
        self.bytes >= options.compaction_bytes_min
            && self.bytes.saturating_mul(100) >= all.saturating_mul(options.compaction_new_percent)
    }

    fn are_old(&self, options: &LogOptions, now: i64) -> bool {
        now.saturating_sub(self.since) >= options.compaction_age_ms as i64 && self.are_worth_it(options)
    }
}

/// Whether all of a segment is on disk as in the manifest.
fn is_settled(segment: &Segment) -> bool {
    let in_manifest = !segment.changed || planted::is(Bug::CompactBeforeCheckpoint);
    in_manifest && segment.applied == segment.meta.bytes
}

fn is_read(meta: &SegmentMeta, hold: Option<u64>) -> bool {
    hold.is_none_or(|hold| meta.end <= hold)
}

impl TopicState {
    /// The growing segment, if it may be sealed for a compaction: no other segment waits for its holder already, so
    /// that a slow holder does not make many small segments.
    fn growing_segment(&self, hold: Option<u64>) -> Option<&Segment> {
        let (last, before) = self.segments.split_last()?;
        let grows = last.meta.id.generation == 0 && !last.sealed && last.meta.records > 0;
        let waits = |segment: &Segment| segment.meta.id.generation == 0 && !is_read(&segment.meta, hold);
        let whole = !self.segments.iter().any(|segment| segment.damaged);
        (self.policy.compacted && grows && whole && !before.iter().any(waits)).then_some(last)
    }

    fn new_events(&self) -> Option<NewEvents> {
        NewEvents::of(self.segments.iter().map(|segment| &segment.meta))
    }

    /// Seals the growing segment if the topic is due. For the cut of a checkpoint, which brings all
    /// of it into the manifest.
    pub(crate) fn seal_at_cut(&mut self, hold: Option<u64>, options: &LogOptions, now: i64) {
        if self.growing_segment(hold).is_some()
            && self.new_events().is_some_and(|new| new.are_due(options, now))
            && let Some(last) = self.segments.last_mut()
        {
            last.sealed = true;
        }
    }

    /// Whether old events wait for a checkpoint before they can be compacted.
    fn needs_checkpoint(&self, hold: Option<u64>, options: &LogOptions, now: i64) -> bool {
        let growing = self.growing_segment(hold).filter(|segment| is_read(&segment.meta, hold));
        growing.is_some_and(|segment| !is_settled(segment))
            && self.new_events().is_some_and(|new| new.are_old(options, now))
    }

    /// Segments that no longer change, are on disk as in the manifest, and are not held.
    pub(super) fn sealed_segments(&self, hold: Option<u64>) -> Vec<SegmentMeta> {
        let last = if self.policy.compacted { self.segments.len() } else { 0 };
        let segments = self.segments.iter().take(last).enumerate();
        let sealed = segments.filter(|(index, segment)| index + 1 < last || segment.sealed);
        let sealed = sealed.map(|(_, segment)| segment).take_while(|segment| is_settled(segment));
        sealed.map(|segment| segment.meta).take_while(|meta| is_read(meta, hold)).collect()
    }

    /// The segments to compact now: the sealed ones, and the growing one if it is due and all of it is on disk.
    pub(super) fn to_compact(&self, hold: Option<u64>, options: &LogOptions, now: i64) -> Vec<SegmentMeta> {
        let mut inputs = self.sealed_segments(hold);
        let growing = self.growing_segment(hold).filter(|segment| is_settled(segment));
        let growing = growing.filter(|segment| is_read(&segment.meta, hold));
        if inputs.len() + 1 == self.segments.len()
            && let Some(growing) = growing
            && self.new_events().is_some_and(|new| new.are_due(options, now))
        {
            inputs.push(growing.meta);
        }
        let whole = !self.segments.iter().any(|segment| segment.damaged);
        let worth = NewEvents::of(inputs.iter()).is_some_and(|new| new.are_worth_it(options));
        if whole && worth { inputs } else { Vec::new() }
    }

    /// Seals the growing segment if it is one of those to compact.
    pub(super) fn seal_for(&mut self, inputs: &[SegmentMeta]) {
        if let Some(last) = self.segments.last_mut() {
            last.sealed |= inputs.last() == Some(&last.meta);
        }
    }
}

impl LogCore {
    /// The topics that are due, those with the oldest new events first.
    pub(super) fn topics_due(&self) -> Vec<Topic> {
        let now = self.times.age();
        let topics: Vec<Topic> = self.read_catalog(|catalog| catalog.by_id.values().cloned().collect());
        let mut due: Vec<(i64, Topic)> = Vec::new();
        for topic in topics {
            if topic.needs_key() && !topic.is_deleted() {
                let hold = self.hold_of(&topic);
                let state = topic.state();
                let is_due = !state.to_compact(hold, &self.options, now).is_empty();
                let since = state.new_events().filter(|_| is_due).map(|new| new.since);
                drop(state);
                due.extend(since.map(|since| (since, topic)));
            }
        }
        due.sort_by_key(|(since, _)| *since);
        due.into_iter().map(|(_, topic)| topic).collect()
    }

    /// Whether a checkpoint would bring old events of a compacted topic to where they can be compacted.
    pub(crate) fn compaction_needs_checkpoint(&self) -> bool {
        if self.space.compaction_waits.load(Ordering::Relaxed) {
            return false;
        }
        let now = self.times.age();
        let topics: Vec<Topic> = self.read_catalog(|catalog| {
            catalog.by_id.values().filter(|topic| topic.needs_key()).cloned().collect()
        });
        topics.iter().any(|topic| {
            let hold = self.hold_of(topic);
            topic.is_created()
                && !topic.is_deleted()
                && topic.state().needs_checkpoint(hold, &self.options, now)
        })
    }

    /// As `compaction_needs_checkpoint`, but not so often that topics that become due one after the other cause
    /// a checkpoint each.
    pub(crate) fn compaction_needs_checkpoint_now(&self) -> bool {
        let now = self.clock.monotonic_ms();
        let last = self.counters.compaction_checkpoint_ms.load(Ordering::Relaxed);
        let rests = last > 0 && now.saturating_sub(last) < self.options.compaction_age_ms / 6;
        if rests || !self.compaction_needs_checkpoint() {
            return false;
        }
        self.counters.compaction_checkpoint_ms.store(now, Ordering::Relaxed);
        true
    }
}
