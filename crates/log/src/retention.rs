//! Which events a topic no longer keeps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::checkpoint::run_io;
use crate::core::LogCore;
use crate::error::{LogReadError, MaintenanceError};
use crate::index::{EntryKind, GhostEntry, Run};
use crate::poison::lock;
use crate::read::ReadLimit;
use crate::segment::SegmentMeta;
use crate::topic::{Segment, Topic, TopicState};

/// Within this time after the open the owner of the log tells the policies, which it does not persist. Until then a
/// topic's dedupe window may be longer than it seems.
const POLICIES_SET_MS: u64 = 10 * 60 * 1000;

/// Within this time after the open the owner of the log says who holds what.
const HOLDS_SET_MS: u64 = 60 * 1000;

/// What a topic's policy no longer keeps.
enum Expired {
    Nothing,
    /// Events below this, of segments that hold later ones too.
    Events(u64),
    /// All of a segment.
    Segment,
}

/// A segment that is no longer part of its topic.
#[derive(Debug)]
pub(crate) struct Dropped {
    pub(crate) topic: Topic,
    pub(crate) meta: SegmentMeta,
    pub(crate) damaged: bool,
    /// Whether ids of its events must be remembered.
    pub(crate) within_dedupe_window: bool,
}

impl TopicState {
    /// First offset the policy keeps, whoever needs more. Never beyond what is durable.
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
            // The last segment is still growing: it goes only when all of it is too old.
            let growing = meta.end == self.next_offset;
            if meta.end > durable_end || !(too_old || (too_much && !growing)) {
                break;
            }
            from = from.max(meta.end);
            bytes -= meta.bytes;
        }
        from.min(durable_end)
    }

    /// First offset that is kept. Notes how many stay only because they are held.
    fn kept_from(&mut self, now: i64, durable_end: u64, hold: Option<u64>) -> u64 {
        let policy = self.policy_keeps_from(now, durable_end);
        let from = hold.map_or(policy, |hold| policy.min(hold.max(self.earliest)));
        self.held = policy - from;
        from
    }

    /// What `trim` would do now.
    fn due(&mut self, now: i64, durable_end: u64, hold: Option<u64>) -> Expired {
        let from = self.kept_from(now, durable_end, hold);
        let first = self.segments.first().map(|segment| &segment.meta);
        if first.is_some_and(|meta| meta.records > 0 && meta.end <= from) {
            Expired::Segment
        } else if from > self.earliest {
            Expired::Events(from)
        } else {
            Expired::Nothing
        }
    }

    /// Whether all of a segment is below the earliest offset and on disk. With records in the tail it stays for now.
    fn is_past(&self, segment: &Segment) -> bool {
        let whole = segment.applied == segment.meta.bytes && segment.meta.records > 0;
        whole && segment.meta.end <= self.earliest
    }

    /// Moves the earliest offset and takes out the segments wholly below it.
    pub(crate) fn trim(&mut self, topic: &Topic, now: i64, hold: Option<u64>) -> Vec<Dropped> {
        self.earliest = self.kept_from(now, topic.end(), hold);
        let mut dropped = Vec::new();
        while self.segments.first().is_some_and(|segment| self.is_past(segment)) {
            let segment = self.segments.remove(0);
            // Its ids answer until its ghosts do.
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
    /// From where on a topic's events are needed. With little space left nobody's need counts.
    pub(crate) fn hold_of(&self, topic: &Topic) -> Option<u64> {
        let unsettled = || {
            let opened = self.counters.opened_ms.load(Ordering::Relaxed);
            !self.holds.is_settled() && self.clock.monotonic_ms().saturating_sub(opened) < HOLDS_SET_MS
        };
        let hold = self.holds.lowest(topic.name()).or_else(|| unsettled().then_some(0))?;
        (!self.full.load(Ordering::Relaxed)).then_some(hold)
    }

    /// Hides events that policies no longer keep, and marks their topics for the next checkpoint. Says whether that should
    /// be now, because a segment can go: a topic that keeps a number of events loses some all the time, and a checkpoint
    /// each time would free nothing.
    pub(crate) fn mark_expired(&self) -> bool {
        let now = self.clock.wall_ms();
        let topics: Vec<Topic> = self.read_catalog(|catalog| catalog.by_id.values().cloned().collect());
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

    /// Remembers the ids of events in dropped segments for the rest of the dedupe window.
    pub(crate) fn write_ghosts(&self, dropped: &[Dropped]) -> io::Result<Vec<Arc<Run>>> {
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

    fn write_ghosts_of(&self, dropped: &Dropped) -> io::Result<Option<Arc<Run>>> {
        let mut ghosts = self.ghosts_of(dropped)?;
        ghosts.sort_unstable_by_key(|ghost| (ghost.topic, ghost.id));
        let appended = dropped.meta.last_append.max(0) as u64;
        self.index.write_ghosts(ghosts, appended).map_err(run_io)
    }

    /// Removes runs that no manifest names and none will.
    pub(crate) fn discard_runs(&self, runs: &[Arc<Run>]) {
        for run in runs {
            // Left for the next open if it cannot be removed now.
            let _ = self.disk.remove(&crate::index::run_path(run.meta().number));
        }
    }

    /// Damaged records cannot be remembered; their damage is on record.
    fn ghosts_of(&self, dropped: &Dropped) -> io::Result<Vec<GhostEntry>> {
        let mut ghosts = Vec::with_capacity(dropped.meta.records as usize);
        let limit = ReadLimit { events: usize::MAX, bytes: 1024 * 1024 };
        let mut next = dropped.meta.id.base;
        while next < dropped.meta.end {
            let page = match self.read_segment(&dropped.topic, &dropped.meta, next, limit) {
                Ok(page) => page,
                Err(LogReadError::CorruptRange(damage)) if damage.to_offset > next => {
                    next = damage.to_offset;
                    continue;
                }
                Err(error) => return Err(io::Error::other(error)),
            };
            ghosts.extend(page.iter().map(|view| GhostEntry {
                topic: dropped.meta.id.topic,
                id: *view.id.as_bytes(),
                offset: view.offset,
                ts: view.ts,
                content: view.content_hash(),
            }));
            if page.next == next {
                break;
            }
            next = page.next;
        }
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
        let limit = (self.clock.wall_ms().max(0) as u64).saturating_sub(window);
        let old: Vec<u64> = runs
            .of(EntryKind::Ghost)
            .iter()
            .map(|run| *run.meta())
            .filter(|meta| meta.appended_max < limit)
            .map(|meta| meta.number)
            .collect();
        self.drop_runs(&old)
    }

    pub(crate) fn drop_runs(&self, numbers: &[u64]) -> Result<(), MaintenanceError> {
        if numbers.is_empty() {
            return Ok(());
        }
        self.check_writing()?;
        let mut manifest = lock(&self.manifest);
        let dropped = manifest.append_edit(|edit| edit.dropped_runs = numbers.to_vec());
        dropped.map_err(|error| self.fail(format!("writing the manifest failed: {error}")))?;
        self.index.install(Vec::new(), numbers, false);
        drop(manifest);
        for number in numbers {
            // Left for the next open if it cannot be removed now: no manifest names it.
            let _ = self.disk.remove(&crate::index::run_path(*number));
        }
        Ok(())
    }
}
