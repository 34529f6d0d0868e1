//! Compaction: rewrites the sealed segments of compacted topics, so that only the latest event of each key is
//! left.

mod due;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::LogCore;
use crate::disk::DiskFile;
use crate::error::{LogReadError, MaintenanceError};
use crate::file_io::write_all_at;
use crate::files::SegmentPart;
use crate::index::{DIR as INDEX_DIR, GhostEntry, IndexRun};
use crate::poison::lock;
use crate::read::ReadLimit;
use crate::record::RecordView;
use crate::runs::{run_error, run_io, run_item};
use crate::segment::{DIR, HEADER_BYTES, SAMPLE_BYTES, SAMPLE_EVERY, Sample, SegmentId, SegmentMeta};
use crate::topic::{Segment, Topic};

const BUFFER_BYTES: usize = 1024 * 1024;
/// Ghosts written as one run.
const GHOSTS_PER_RUN: usize = 256 * 1024;

/// How a look at one topic ended.
#[derive(PartialEq, Eq)]
enum Compaction {
    /// There is nothing left to do.
    Done,
    /// There is too little space beside the reserve.
    Waits,
}

impl LogCore {
    /// Compacts at most `most` topics that are due, those with the oldest new events first. A compaction that
    /// would need the reserve waits.
    pub(crate) fn compact_topics(&self, most: usize) -> Result<(), MaintenanceError> {
        let mut waits = false;
        let due = self.topics_due();
        for topic in due.iter().take(most) {
            if self.signals.stop.load(Ordering::Acquire) {
                return Ok(());
            }
            waits |= self.compact(topic)? == Compaction::Waits;
        }
        if waits || due.len() <= most {
            self.space.compaction_waits.store(waits, Ordering::Relaxed);
        }
        Ok(())
    }

    fn compact(&self, topic: &Topic) -> Result<Compaction, MaintenanceError> {
        self.check_writing()?;
        let _one_at_a_time = lock(&self.merging);
        // Read again under the lock: another thread may have compacted meanwhile, and a rewrite of the old
        // segments would take the names of its segments.
        let (now, hold) = (self.times.age(), self.hold_of(topic));
        let inputs = &topic.state().to_compact(hold, &self.options, now);
        if inputs.is_empty() || topic.is_deleted() {
            return Ok(Compaction::Done);
        }
        if !self.has_space_to_rewrite(inputs.iter().map(|meta| meta.bytes).sum()) {
            return Ok(Compaction::Waits);
        }
        // If the last of them has grown meanwhile, it is not sealed, and the swap below finds it changed.
        topic.state().seal_for(inputs);
        let generation = inputs.iter().map(|meta| meta.id.generation).max().unwrap_or(0) + 1;
        let mut writer = Rewriter::new(self, topic, generation, now);
        for meta in inputs {
            match writer.copy_segment(meta) {
                Ok(()) => {}
                // A damaged topic is left as it is: reading it reports the damage.
                Err(RewriteError::Read(_)) => {
                    writer.abandon();
                    return Ok(Compaction::Done);
                }
                Err(RewriteError::Io(error)) => {
                    writer.abandon();
                    return Err(self.compaction_failed(error));
                }
            }
        }
        if let Err(error) = writer.finish() {
            writer.abandon();
            return Err(self.compaction_failed(error));
        }
        self.swap_segments(topic, inputs, writer.done, writer.ghost_runs)?;
        Ok(Compaction::Done)
    }

    fn compaction_failed(&self, error: io::Error) -> MaintenanceError {
        self.rewrite_failed("a compacted segment", error, &self.space.compaction_waits)
    }

    fn swap_segments(
        &self,
        topic: &Topic,
        inputs: &[SegmentMeta],
        outputs: Vec<SegmentMeta>,
        ghosts: Vec<Arc<IndexRun>>,
    ) -> Result<(), MaintenanceError> {
        let upkeep = lock(&self.upkeep);
        let undisturbed = !upkeep.has_pending() && self.poison.reason().is_none();
        let hold = self.hold_of(topic);
        let sealed = if topic.is_deleted() { Vec::new() } else { topic.state().sealed_segments(hold) };
        let still_there = sealed.iter().filter(|meta| inputs.contains(meta)).count();
        if still_there != inputs.len() || !undisturbed {
            // Retention has removed a segment, or an unfinished checkpoint has noted the old segments.
            self.abandon_compacted(&outputs, &ghosts);
            return Ok(());
        }
        if let Err(error) = self.sync_compacted(&outputs, &ghosts) {
            let failed = self.upkeep_failed("a compacted segment", error, true);
            if self.poison.reason().is_none() {
                self.abandon_compacted(&outputs, &ghosts);
            }
            return Err(failed);
        }
        let mut manifest = lock(&self.manifest);
        manifest.next_run = self.index.next_number();
        let written = manifest.append_edit(|edit| {
            edit.dropped_segments = inputs.iter().map(|meta| meta.id).collect();
            edit.segments.clone_from(&outputs);
            edit.runs = ghosts.iter().map(|run| run_item(run.meta())).collect();
        });
        if let Err(failed) = written {
            let error = self.upkeep_failed("the manifest", failed.error, failed.syncing);
            if self.poison.reason().is_none() {
                self.abandon_compacted(&outputs, &ghosts);
            }
            return Err(error);
        }
        self.index.install(ghosts, &[], false);
        {
            let mut state = topic.state();
            state.segments.retain(|segment| !inputs.contains(&segment.meta));
            let rewritten =
                outputs.into_iter().map(|meta| Segment { sealed: true, ..Segment::new(meta, meta.bytes) });
            state.segments.splice(0..0, rewritten);
        }
        drop(manifest);
        drop(upkeep);
        inputs.iter().for_each(|meta| self.remove_segment(meta, false));
        Ok(())
    }

    /// Removes what a compaction wrote: no manifest names it.
    fn abandon_compacted(&self, outputs: &[SegmentMeta], ghosts: &[Arc<IndexRun>]) {
        outputs.iter().for_each(|meta| self.remove_segment(meta, false));
        self.discard_runs(ghosts);
    }

    fn sync_compacted(&self, outputs: &[SegmentMeta], ghosts: &[Arc<IndexRun>]) -> io::Result<()> {
        for meta in outputs {
            self.files.get(meta.id, SegmentPart::Records)?.sync()?;
            if meta.samples > 0 {
                self.files.get(meta.id, SegmentPart::Samples)?.sync()?;
            }
        }
        self.disk.sync_dir(DIR)?;
        for run in ghosts {
            run.file().sync()?;
        }
        if ghosts.is_empty() { Ok(()) } else { self.disk.sync_dir(INDEX_DIR) }
    }
}

enum RewriteError {
    Read(#[expect(dead_code, reason = "damage is noted where it is met")] LogReadError),
    Io(io::Error),
}

/// Writes the surviving records into new segments that cover the same offsets.
struct Rewriter<'a> {
    core: &'a LogCore,
    topic: &'a Topic,
    generation: u32,
    now: i64,
    done: Vec<SegmentMeta>,
    current: Option<SegmentOutput>,
    ghosts: Vec<GhostEntry>,
    ghost_runs: Vec<Arc<IndexRun>>,
    ghosts_appended: i64,
}

struct SegmentOutput {
    meta: SegmentMeta,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    written: u64,
    samples: Vec<Sample>,
    sampled_at: u64,
}

impl<'a> Rewriter<'a> {
    fn new(core: &'a LogCore, topic: &'a Topic, generation: u32, now: i64) -> Rewriter<'a> {
        let (done, ghosts, ghost_runs) = (Vec::new(), Vec::new(), Vec::new());
        Rewriter { core, topic, generation, now, done, current: None, ghosts, ghost_runs, ghosts_appended: 0 }
    }

    fn copy_segment(&mut self, meta: &SegmentMeta) -> Result<(), RewriteError> {
        let most = self.topic.state().policy.segment_bytes(self.core.options.segment_bytes);
        let ends = |output: &SegmentOutput| output.meta.bytes >= most / 2 || !self.joins(&output.meta, meta);
        if self.current.as_ref().is_some_and(ends) {
            self.close_output(meta.id.base).map_err(RewriteError::Io)?;
        }
        self.open_output(meta).map_err(RewriteError::Io)?;
        let limit = ReadLimit { events: usize::MAX, bytes: BUFFER_BYTES };
        let mut next = meta.id.base;
        while next < meta.end {
            let read = self.core.read_segment(self.topic, meta, next, limit);
            let page = read.map_err(RewriteError::Read)?;
            for (view, bytes) in page.iter_with_bytes() {
                if self.survives(&view, meta).map_err(RewriteError::Read)? {
                    self.keep(&view, bytes).map_err(RewriteError::Io)?;
                } else {
                    self.bury(&view, meta).map_err(RewriteError::Io)?;
                }
            }
            if page.next == next {
                break;
            }
            next = page.next;
        }
        if let Some(output) = &mut self.current {
            output.meta.end = meta.end;
            output.meta.last_append = output.meta.last_append.max(meta.last_append);
        }
        Ok(())
    }

    /// Whether a segment may go into one file with those before it. The last append of a file stands for all of
    /// its events, so a file of old and new events would keep old tombstones, and events beyond their age.
    fn joins(&self, before: &SegmentMeta, next: &SegmentMeta) -> bool {
        let state = self.topic.state();
        let (tombstone_ms, age_ms) = (state.policy.tombstone_ms, state.policy.age_ms);
        let span_ms = age_ms.map_or(u64::MAX, |age_ms| age_ms / 8).min(tombstone_ms / 4);
        let near = next.last_append.saturating_sub(before.first_append) <= span_ms as i64;
        let past = self.now.saturating_sub(next.last_append) > tombstone_ms as i64;
        near || (past && age_ms.is_none())
    }

    fn survives(&self, view: &RecordView<'_>, meta: &SegmentMeta) -> Result<bool, LogReadError> {
        let Some(key) = view.key else { return Ok(true) };
        let end = self.topic.end();
        let found = self.core.search_newest(self.topic, key, crate::batch::key_hash(key), end);
        let latest = found.map_err(run_error)??.map(|record| record.view().offset);
        if latest.is_some_and(|latest| latest != view.offset) {
            return Ok(false);
        }
        let keep_ms = self.topic.state().policy.tombstone_ms as i64;
        Ok(!(view.tombstone && self.now.saturating_sub(meta.last_append) > keep_ms))
    }

    fn keep(&mut self, view: &RecordView<'_>, bytes: &[u8]) -> io::Result<()> {
        let Some(output) = &mut self.current else { return Ok(()) };
        let pos = output.meta.bytes;
        if pos >= output.sampled_at + SAMPLE_EVERY {
            output.samples.push(Sample { offset: view.offset, max_ts: output.meta.max_ts, pos: pos as u32 });
            output.sampled_at = pos;
        }
        output.meta.add(view.offset, bytes.len(), view.ts, output.meta.last_append);
        output.buffer.extend_from_slice(bytes);
        if output.buffer.len() >= BUFFER_BYTES { output.flush() } else { Ok(()) }
    }

    /// Leaves an event out; its id stays as a ghost for the dedupe window.
    fn bury(&mut self, view: &RecordView<'_>, meta: &SegmentMeta) -> io::Result<()> {
        let window = self.topic.state().policy.dedupe_window_ms as i64;
        if self.now.saturating_sub(meta.last_append) >= window {
            return Ok(());
        }
        self.ghosts_appended = self.ghosts_appended.max(meta.last_append);
        self.ghosts.push(GhostEntry {
            topic: self.topic.id(),
            id: *view.id.as_bytes(),
            offset: view.offset,
            ts: view.ts,
            content: view.content_hash(),
        });
        if self.ghosts.len() >= GHOSTS_PER_RUN { self.flush_ghosts() } else { Ok(()) }
    }

    fn flush_ghosts(&mut self) -> io::Result<()> {
        let mut ghosts = std::mem::take(&mut self.ghosts);
        if ghosts.is_empty() {
            return Ok(());
        }
        ghosts.sort_unstable_by_key(|ghost| (ghost.topic, ghost.id));
        let run = self.core.index.write_ghosts(ghosts, self.ghosts_appended.max(0) as u64);
        self.ghost_runs.extend(run.map_err(run_io)?);
        Ok(())
    }

    fn open_output(&mut self, meta: &SegmentMeta) -> io::Result<()> {
        if self.current.is_some() {
            return Ok(());
        }
        let id = SegmentId { generation: self.generation, ..meta.id };
        let file = self.core.files.create(id, SegmentPart::Records)?;
        let fresh = SegmentMeta { first_append: meta.first_append, ..SegmentMeta::new(id, meta.last_append) };
        let buffer = id.encode_header().to_vec();
        self.current = Some(SegmentOutput {
            meta: fresh,
            file,
            buffer,
            written: 0,
            samples: Vec::new(),
            sampled_at: HEADER_BYTES,
        });
        Ok(())
    }

    fn close_output(&mut self, end: u64) -> io::Result<()> {
        let Some(output) = &mut self.current else { return Ok(()) };
        output.flush()?;
        output.meta.end = end;
        output.meta.samples = output.samples.len() as u32;
        if !output.samples.is_empty() {
            let bytes: Vec<u8> =
                output.samples.iter().flat_map(|sample| sample.encode(output.meta.id.topic)).collect();
            debug_assert_eq!(bytes.len(), output.samples.len() * SAMPLE_BYTES);
            write_all_at(&*self.core.files.create(output.meta.id, SegmentPart::Samples)?, &bytes, 0)?;
        }
        self.done.push(output.meta);
        self.current = None;
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let end = self.current.as_ref().map_or(0, |output| output.meta.end);
        self.close_output(end)?;
        self.flush_ghosts()
    }

    /// Removes the files that were written: no manifest names them.
    fn abandon(self) {
        let current = self.current.map(|output| output.meta);
        for meta in self.done.iter().chain(&current) {
            self.core.remove_segment(meta, false);
        }
        self.core.discard_runs(&self.ghost_runs);
    }
}

impl SegmentOutput {
    fn flush(&mut self) -> io::Result<()> {
        write_all_at(&*self.file, &self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
