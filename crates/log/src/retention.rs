//! Retention: removes the events that a topic no longer keeps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::LogCore;
use crate::error::{LogReadError, MaintenanceError};
use crate::index::{EntryKind, GhostEntry, IndexRun};
use crate::log_clock::NEAR_MS;
use crate::notice::LogNotice;
use crate::poison::lock;
use crate::runs::run_io;
use crate::segment::SegmentMeta;
use crate::topic::{Segment, Topic, TopicState};

/// The owner of the log sets the policies within this time after the open, because the log does not persist
/// them. Until then a topic's dedupe window may be longer than its policy says.
const POLICIES_SET_MS: u64 = 10 * 60 * 1000;

/// The owner of the log sets the holds within this time after the open.
const HOLDS_SET_MS: u64 = 60 * 1000;

/// The part of a topic that its policy no longer keeps.
enum Expired {
    Nothing,
    /// Events below this offset, in segments that also hold later events.
    Events(u64),
    /// A whole segment.
    Segment,
}

/// A segment that is no longer part of its topic.
#[derive(Debug)]
pub(crate) struct Dropped {
    pub(crate) topic: Topic,
    pub(crate) meta: SegmentMeta,
    pub(crate) damaged: bool,
    /// Whether the ids of its events are kept as ghosts.
    pub(crate) within_dedupe_window: bool,
}

impl TopicState {
    /// The first offset that the policy keeps, without regard to holds. Never beyond the durable end.
    fn policy_keeps_from(&self, now: i64, durable_end: u64) -> u64 {
        let mut from = self.earliest;
        if let Some(count) = self.policy.count {
            from = from.max(durable_end.saturating_sub(count));
        }
        let mut bytes: u64 = self.segments.iter().map(|segment| segment.meta.bytes).sum();
        for segment in &self.segments {
            let meta = &segment.meta;
            let too_old =
                self.policy.age_ms.is_some_and(|age| now.saturating_sub(meta.last_append) > age as i64);
            let too_much = self.policy.bytes.is_some_and(|most| bytes > most);
            // The last segment still grows: it is removed only when all of it is too old.
            let growing = meta.end == self.next_offset;
            if meta.end > durable_end || !(too_old || (too_much && !growing)) {
                break;
            }
            from = from.max(meta.end);
            bytes -= meta.bytes;
        }
        from.min(durable_end)
    }

    /// The first offset that is kept. Notes how many offsets are kept only because of a hold.
    fn kept_from(&mut self, now: i64, durable_end: u64, hold: Option<u64>) -> u64 {
        let policy = self.policy_keeps_from(now, durable_end);
        let from = hold.map_or(policy, |hold| policy.min(hold.max(self.earliest)));
        self.held = policy - from;
        from
    }

    /// The part that `trim` would remove now.
    fn due(&mut self, now: i64, durable_end: u64, hold: Option<u64>) -> Expired {
        let from = self.kept_from(now, durable_end, hold);
        let first = self.segments.first().map(|segment| &segment.meta);
        if first.is_some_and(|meta| meta.is_started() && meta.end <= from) {
            Expired::Segment
        } else if from > self.earliest {
            Expired::Events(from)
        } else {
            Expired::Nothing
        }
    }

    /// Whether all of a segment is below the earliest offset and on disk. A segment with records in the tail
    /// stays for now.
    fn is_past(&self, segment: &Segment) -> bool {
        let whole = segment.applied == segment.meta.bytes && segment.meta.is_started();
        whole && segment.meta.end <= self.earliest
    }

    /// Moves the earliest offset and takes out the segments wholly below it.
    pub(crate) fn trim(&mut self, topic: &Topic, now: i64, hold: Option<u64>) -> Vec<Dropped> {
        self.earliest = self.kept_from(now, topic.end(), hold);
        let mut dropped = Vec::new();
        while self.segments.first().is_some_and(|segment| self.is_past(segment)) {
            let segment = self.segments.remove(0);
            // Its ids are looked up in its file until its ghosts are installed.
            self.leaving.push(segment.meta);
            let age = now.saturating_sub(segment.meta.last_append);
            dropped.push(Dropped {
                topic: topic.clone(),
                meta: segment.meta,
                damaged: segment.damaged,
                within_dedupe_window: age < self.policy.dedupe_window_ms as i64,
            });
        }
        dropped
    }
}

impl LogCore {
    /// The offset from which on a topic's events are held. While less than the reserve is free, no hold
    /// counts.
    pub(crate) fn hold_of(&self, topic: &Topic) -> Option<u64> {
        let unsettled = || {
            let opened = self.counters.opened_ms.load(Ordering::Relaxed);
            !self.holds.is_settled() && self.clock.monotonic_ms().saturating_sub(opened) < HOLDS_SET_MS
        };
        let hold = self.holds.lowest(topic.name()).or_else(|| unsettled().then_some(0))?;
        (!self.space.is_full()).then_some(hold)
    }

    /// Hides events that policies no longer keep, and marks their topics for the next checkpoint. Returns
    /// whether to take one now, because a segment can be removed. Without one a checkpoint would free
    /// nothing, and a topic that keeps a number of events loses some all the time.
    pub(crate) fn mark_expired(&self) -> bool {
        let times = self.times.read();
        let now = times.age;
        self.tell_of_leap(times.leap);
        let topics: Vec<Topic> = self.read_catalog(|catalog| catalog.by_id.values().cloned().collect());
        if times.is_confirmed {
            self.clamp_append_times(&topics, times.append());
        }
        let mut segments = false;
        for topic in topics {
            let hold = self.hold_of(&topic);
            let due = topic.state().due(now, topic.end(), hold);
            if matches!(due, Expired::Nothing) {
                continue;
            }
            let mut sequencer = lock(&self.sequencer);
            let mut state = topic.state();
            match due {
                Expired::Events(from) => state.earliest = state.earliest.max(from),
                _ => segments = true,
            }
            sequencer.mark_dirty(&topic, &mut state.dirty);
        }
        segments
    }

    /// Tells the observer when the wall clock leapt, and when stamps agree with it again.
    fn tell_of_leap(&self, by_ms: i64) {
        match (self.counters.leap_ms.swap(by_ms, Ordering::Relaxed), by_ms) {
            (0, 0) => {}
            (_, 0) => self.observer.notice(LogNotice::ClockSettled),
            (0, by_ms) => self.observer.notice(LogNotice::ClockLeapt { by_ms }),
            _ => {}
        }
    }

    /// Sets append times that lie in the future to the present: an earlier leap of the clock must not keep these events
    /// until its date.
    fn clamp_append_times(&self, topics: &[Topic], present: i64) {
        let mut segments = 0;
        for topic in topics {
            let last = topic.state().segments.iter().map(|segment| segment.meta.last_append).max();
            if last.is_none_or(|last| last <= present + NEAR_MS) {
                continue;
            }
            let mut sequencer = lock(&self.sequencer);
            let mut state = topic.state();
            segments += state.clamp_append_times(present);
            sequencer.mark_dirty(topic, &mut state.dirty);
        }
        if segments > 0 {
            self.observer.notice(LogNotice::AppendTimesClamped { segments });
        }
    }

    /// Writes the ids of events in dropped segments as ghosts, for the rest of the dedupe window.
    pub(crate) fn write_ghosts(&self, dropped: &[Dropped]) -> io::Result<Vec<Arc<IndexRun>>> {
        let mut runs = Vec::new();
        for dropped in dropped.iter().filter(|dropped| dropped.within_dedupe_window) {
            match self.write_ghosts_of(dropped) {
                Ok(run) => runs.extend(run),
                Err(error) => {
                    self.discard_runs(&runs);
                    return Err(error);
                }
            }
        }
        Ok(runs)
    }

    fn write_ghosts_of(&self, dropped: &Dropped) -> io::Result<Option<Arc<IndexRun>>> {
        let mut ghosts = self.ghosts_of(dropped)?;
        ghosts.sort_unstable_by_key(|ghost| (ghost.topic, ghost.id));
        let appended = dropped.meta.last_append.max(0) as u64;
        self.index.write_ghosts(ghosts, appended).map_err(run_io)
    }

    /// Reads the ghosts of a dropped segment. Damaged records get none.
    fn ghosts_of(&self, dropped: &Dropped) -> io::Result<Vec<GhostEntry>> {
        let mut ghosts = Vec::with_capacity(dropped.meta.records as usize);
        let read = self.visit_segment(&dropped.topic, &dropped.meta, |page| {
            ghosts.extend(page.iter().map(|view| GhostEntry {
                topic: dropped.meta.id.topic,
                id: *view.id.as_bytes(),
                offset: view.offset,
                ts: view.ts,
                content: view.content_hash(),
            }));
            Ok(())
        });
        read.map_err(LogReadError::into_io)?;
        Ok(ghosts)
    }

    /// Drops ghost runs that are older than every dedupe window.
    pub(crate) fn drop_old_ghosts(&self) -> Result<(), MaintenanceError> {
        let runs = self.index.runs();
        let opened = self.counters.opened_ms.load(Ordering::Relaxed);
        let settled = self.clock.monotonic_ms().saturating_sub(opened) >= POLICIES_SET_MS;
        if runs.of(EntryKind::Ghost).is_empty() || !settled {
            return Ok(());
        }
        let window = self.read_catalog(|catalog| {
            catalog.by_id.values().map(|topic| topic.state().policy.dedupe_window_ms).max().unwrap_or(0)
        });
        let limit = (self.times.age().max(0) as u64).saturating_sub(window);
        let old: Vec<u64> = runs
            .of(EntryKind::Ghost)
            .iter()
            .map(|run| *run.meta())
            .filter(|meta| meta.appended_max < limit)
            .map(|meta| meta.number)
            .collect();
        self.drop_runs(&old)
    }
}
