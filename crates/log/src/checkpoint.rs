//! Checkpoints: segments, runs and state are made durable up to one LSN, so that older journal files can be
//! used again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::apply::Unsynced;
use crate::core::{LogCore, ManifestState};
use crate::error::MaintenanceError;
use crate::file_io::WriteFailed;
use crate::index::{IndexRun, MemTable};
use crate::manifest::{Edit, TopicItem};
use crate::planted::{self, Bug};
use crate::poison::lock;
use crate::retention::Dropped;
use crate::runs::{run_io, run_item};
use crate::segment;
use crate::topic::Topic;

/// More dirty files than this are synced with one call for the whole file system.
const FILES_SYNCED_ONE_BY_ONE: usize = 8;
/// Journal files kept for reuse.
const SPARES_MAX: usize = 4;

/// The state of maintenance, held by the thread that does it.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    pub(crate) unsynced: Unsynced,
    /// A checkpoint that ran out of space, to be finished before the next begins.
    pending: Option<CheckpointCut>,
}

impl Upkeep {
    /// Whether a checkpoint waits to be finished: the segments it has noted must not change before that.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }
}

/// Everything that a checkpoint will make durable, noted at one moment.
#[derive(Debug)]
struct CheckpointCut {
    lsn: u64,
    redo_lsn: u64,
    next_topic: u32,
    topics: Vec<(Topic, u64)>,
    items: Vec<TopicItem>,
    segments: Vec<segment::SegmentMeta>,
    deleted: Vec<Topic>,
    dropped: Vec<Dropped>,
    frozen: Option<Arc<MemTable>>,
    /// The runs of this cut, once they are written.
    runs: Option<Vec<Arc<IndexRun>>>,
    rewrite: bool,
}

impl LogCore {
    /// Memory of the index for entries that are neither frozen nor in runs.
    pub(crate) fn index_memory(&self) -> u64 {
        self.index_bytes.load(Ordering::Relaxed)
    }

    /// Writes out tails and takes a checkpoint if one is due.
    pub(crate) fn keep_up(&self) -> Result<(), MaintenanceError> {
        if self.tail_bytes.load(Ordering::Relaxed) >= self.tail_due.load(Ordering::Relaxed) {
            let mut upkeep = lock(&self.upkeep);
            self.apply_tails(&mut upkeep.unsynced)
                .map_err(|error| self.upkeep_failed("a segment", error, false))?;
            self.announce_room();
        }
        if lock(&self.upkeep).has_pending()
            || self.journal_bytes.load(Ordering::Relaxed) >= self.options.checkpoint_bytes
            || self.index_memory() >= self.options.index_bytes * 3 / 8
        {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// Takes a checkpoint now.
    pub(crate) fn checkpoint(&self) -> Result<(), MaintenanceError> {
        let mut upkeep = lock(&self.upkeep);
        let upkeep = &mut *upkeep;
        if let Some(mut cut) = upkeep.pending.take() {
            let result = self.finish_checkpoint(&mut cut, &mut upkeep.unsynced);
            if result.is_err() {
                upkeep.pending = Some(cut);
                return result;
            }
        }
        let mut cut = self.cut();
        let result = self.finish_checkpoint(&mut cut, &mut upkeep.unsynced);
        if result.is_err() {
            upkeep.pending = Some(cut);
        }
        result
    }

    fn cut(&self) -> CheckpointCut {
        let rewrite = lock(&self.manifest).manifest.wants_rewrite();
        let now = self.times.age();
        // While the committer is held no group is between sequencer and index: the frozen table has all
        // entries up to the cut.
        let committer = lock(&self.committer);
        let mut sequencer = lock(&self.sequencer);
        self.index.insert_all(&std::mem::take(&mut sequencer.group.inserts));
        sequencer.recent.0.clear();
        self.journal_bytes.store(0, Ordering::Relaxed);
        let mut topics = std::mem::take(&mut sequencer.dirty);
        for topic in &topics {
            topic.state().dirty = false;
        }
        if rewrite {
            topics = self.read_catalog(|catalog| catalog.by_id.values().cloned().collect());
        }
        let mut cut = CheckpointCut {
            lsn: sequencer.last_lsn(),
            redo_lsn: sequencer.redo_lsn,
            next_topic: self.read_catalog(|catalog| catalog.next_id),
            topics: Vec::with_capacity(topics.len()),
            items: Vec::with_capacity(topics.len()),
            segments: Vec::new(),
            deleted: std::mem::take(&mut sequencer.deleted),
            dropped: Vec::new(),
            frozen: self.freeze_index(),
            runs: None,
            rewrite,
        };
        drop(committer);
        for topic in topics {
            self.cut_topic(&mut cut, topic, now);
        }
        cut
    }

    fn freeze_index(&self) -> Option<Arc<MemTable>> {
        self.index_bytes.store(0, Ordering::Relaxed);
        self.index.freeze()
    }

    fn cut_topic(&self, cut: &mut CheckpointCut, topic: Topic, now: i64) {
        if topic.is_deleted() || !topic.is_created() {
            return;
        }
        let hold = self.hold_of(&topic);
        let mut state = topic.state();
        cut.dropped.extend(state.trim(&topic, now, hold));
        if !self.space.compaction_waits.load(Ordering::Relaxed) {
            state.seal_at_cut(hold, &self.options, now);
        }
        cut.items.push(TopicItem {
            id: topic.id(),
            name: topic.name().clone(),
            next_offset: state.next_offset,
            earliest: state.earliest,
            last_stamp: state.last_stamp,
        });
        for segment in &mut state.segments {
            let samples_changed = std::mem::take(&mut segment.samples_changed);
            if std::mem::take(&mut segment.changed) || samples_changed || cut.rewrite {
                cut.segments.push(segment.meta);
            }
        }
        // Records after the cut must not be in one chunk with records before it, or they would delay them.
        state.tail_closed = true;
        let next_offset = state.next_offset;
        drop(state);
        cut.topics.push((topic, next_offset));
    }

    fn finish_checkpoint(
        &self,
        cut: &mut CheckpointCut,
        unsynced: &mut Unsynced,
    ) -> Result<(), MaintenanceError> {
        self.reach(cut)?;
        let failed = |what: &'static str| move |error| (what, error);
        let written = self.write_cut(cut, unsynced);
        written.map_err(|(what, error)| self.upkeep_failed(what, error, false))?;
        let synced = self.sync_cut(cut, unsynced).map_err(failed("the checkpoint"));
        synced.map_err(|(what, error)| self.upkeep_failed(what, error, true))?;
        let state_lsn = self.sync_state()?;
        self.install(cut, state_lsn)?;
        self.free_journal()?;
        self.remove_dropped(cut);
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.announce_room();
        self.raise(|flags| flags.merge = true);
        Ok(())
    }

    /// Makes the state durable. Returns the LSN up to which it is.
    fn sync_state(&self) -> Result<u64, MaintenanceError> {
        let _step = self.counters.state_steps.enter(&*self.clock);
        // Read before the sync: redo that is applied between the two is not durable yet.
        let state_lsn = self
            .state
            .applied_lsn()
            .map_err(|error| self.fail(format!("asking the state failed: {error}")))?;
        if !planted::is(Bug::SkipStateSync) {
            self.state.sync().map_err(|error| self.fail(format!("syncing state failed: {error}")))?;
        }
        Ok(state_lsn)
    }

    /// Waits until everything below the cut is durable and applied to the state.
    fn reach(&self, cut: &CheckpointCut) -> Result<(), MaintenanceError> {
        loop {
            let progress = lock(&self.progress);
            if let Some(reason) = self.poison.reason() {
                return Err(MaintenanceError::Poisoned { reason: reason.to_owned() });
            }
            if progress.durable_lsn < cut.lsn {
                drop(progress);
                self.pump(true);
            } else if progress.state_lsn < cut.redo_lsn {
                drop(self.progressed.wait(progress));
            } else {
                return Ok(());
            }
        }
    }

    fn write_cut(
        &self,
        cut: &mut CheckpointCut,
        unsynced: &mut Unsynced,
    ) -> Result<(), (&'static str, io::Error)> {
        for (topic, next_offset) in &cut.topics {
            self.apply_topic(topic, *next_offset, unsynced).map_err(|error| ("a segment", error))?;
        }
        if cut.runs.is_none() {
            // Ghosts first: a failed spill leaves no file behind, and the ghosts can be discarded with it.
            let mut runs = self.write_ghosts(&cut.dropped).map_err(|error| ("an index run", error))?;
            if let Some(frozen) = &cut.frozen {
                match self.index.spill(frozen) {
                    Ok(spilled) => runs.extend(spilled),
                    Err(error) => {
                        self.discard_runs(&runs);
                        return Err(("an index run", run_io(error)));
                    }
                }
            }
            cut.runs = Some(runs);
        }
        Ok(())
    }

    fn sync_cut(&self, cut: &CheckpointCut, unsynced: &mut Unsynced) -> io::Result<()> {
        let runs = cut.runs.as_deref().unwrap_or_default();
        if planted::is(Bug::SkipSegmentSync) {
            return Ok(());
        }
        if unsynced.files.len() + runs.len() > FILES_SYNCED_ONE_BY_ONE {
            self.disk.sync_all()?;
        } else {
            for (id, part) in &unsynced.files {
                match self.files.get(*id, *part) {
                    // Retention has removed the file.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    file => file?.sync()?,
                }
            }
            for run in runs {
                run.file().sync()?;
            }
            if unsynced.created && !planted::is(Bug::SkipDirSync) {
                self.disk.sync_dir(segment::DIR)?;
            }
            if !runs.is_empty() && !planted::is(Bug::SkipDirSync) {
                self.disk.sync_dir(crate::index::DIR)?;
            }
        }
        *unsynced = Unsynced::default();
        Ok(())
    }

    /// Makes the checkpoint the one that recovery starts from.
    fn install(&self, cut: &mut CheckpointCut, state_lsn: u64) -> Result<(), MaintenanceError> {
        let journal_sequence = lock(&self.committer).journal.first_sequence_above(cut.lsn);
        let runs = cut.runs.clone().unwrap_or_default();
        let mut manifest = lock(&self.manifest);
        let mut edit = Edit {
            checkpoint_lsn: cut.lsn,
            journal_sequence,
            state_lsn,
            next_topic: cut.next_topic,
            next_run: self.index.next_number(),
            ..Edit::default()
        };
        edit.topics = std::mem::take(&mut cut.items);
        edit.segments = std::mem::take(&mut cut.segments);
        edit.runs = runs.iter().map(|run| run_item(run.meta())).collect();
        let result = if cut.rewrite {
            self.add_everything(&mut edit);
            manifest.manifest.rewrite(&edit)
        } else {
            edit.dropped_topics = cut.deleted.iter().map(Topic::id).collect();
            edit.dropped_segments = cut.dropped.iter().map(|dropped| dropped.meta.id).collect();
            manifest.manifest.append(&edit)
        };
        if let Err(failed) = result {
            // The cut stays as it was, for the next try.
            (cut.items, cut.segments) = (edit.topics, edit.segments);
            return Err(self.upkeep_failed("the manifest", failed.error, failed.syncing));
        }
        // Only after the write: later edits repeat these numbers, so the numbers must be durable before.
        manifest.adopt(&edit);
        (cut.frozen, cut.runs) = (None, None);
        self.index.install(runs, &[], true);
        drop(manifest);
        later(self.drop_old_ghosts())
    }

    fn add_everything(&self, edit: &mut Edit) {
        edit.runs.extend(self.index.runs().all().map(|run| run_item(run.meta())));
    }

    fn free_journal(&self) -> Result<(), MaintenanceError> {
        let needed_from = lock(&self.manifest).journal_sequence;
        let (spares, freed) = lock(&self.committer).journal.free_before(needed_from, SPARES_MAX);
        self.add_journal_room(spares);
        later(freed.map_err(|error| self.upkeep_failed("the journal's folder", error, false)))
    }

    fn remove_dropped(&self, cut: &CheckpointCut) {
        for dropped in &cut.dropped {
            dropped.topic.state().leaving.retain(|meta| meta.id != dropped.meta.id);
            self.remove_segment(&dropped.meta, dropped.damaged);
        }
        for topic in &cut.deleted {
            let (segments, tail) = {
                let mut state = topic.state();
                (std::mem::take(&mut state.segments), std::mem::take(&mut state.tail))
            };
            let waiting: u64 = tail.iter().map(|chunk| chunk.bytes.len() as u64).sum();
            self.tail_bytes.fetch_sub(waiting, Ordering::Relaxed);
            for segment in segments {
                self.remove_segment(&segment.meta, segment.damaged);
            }
        }
    }

    /// Removes a segment's files; damaged files are moved to quarantine instead. The next open removes a file
    /// that cannot be removed now, because no manifest names it.
    pub(crate) fn remove_segment(&self, meta: &segment::SegmentMeta, damaged: bool) {
        self.files.forget(meta.id);
        for path in [meta.id.path(), meta.id.samples_path()] {
            let file = path.rsplit('/').next().unwrap_or_default();
            let _left_for_the_next_open = if damaged {
                self.disk.rename(&path, &format!("quarantine/{file}"))
            } else {
                self.disk.remove(&path)
            };
        }
    }

    /// Fails if the log has stopped writing. Every maintenance step that writes calls it first.
    pub(crate) fn check_writing(&self) -> Result<(), MaintenanceError> {
        match self.poison.reason() {
            Some(reason) => Err(MaintenanceError::Poisoned { reason: reason.to_owned() }),
            None => Ok(()),
        }
    }

    pub(crate) fn fail(&self, reason: String) -> MaintenanceError {
        self.stop_writing(reason.clone());
        MaintenanceError::Poisoned { reason }
    }
}

/// Leaves work that lacks space or descriptors for the next checkpoint, which looks for it again.
fn later(result: Result<(), MaintenanceError>) -> Result<(), MaintenanceError> {
    match result {
        Err(MaintenanceError::NoSpace { .. } | MaintenanceError::NoDescriptors { .. }) => Ok(()),
        other => other,
    }
}

impl ManifestState {
    fn adopt(&mut self, edit: &Edit) {
        self.checkpoint_lsn = edit.checkpoint_lsn;
        self.journal_sequence = edit.journal_sequence;
        self.state_lsn = edit.state_lsn;
        self.next_topic = edit.next_topic;
        self.next_run = edit.next_run;
    }

    /// Writes an edit that concerns runs or sealed segments only.
    pub(crate) fn append_edit(&mut self, change: impl FnOnce(&mut Edit)) -> Result<(), WriteFailed> {
        let mut edit = self.edit();
        change(&mut edit);
        self.manifest.append(&edit)
    }
}
