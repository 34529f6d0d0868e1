//! The rebuild of the index from the segments: runs are derived data.

use std::sync::Arc;

use crate::batch::{id_hash, key_hash};
use crate::core::LogCore;
use crate::error::{LogDamage, LogReadError, MaintenanceError};
use crate::index::{DIR, EntryKind, IndexRun, IndexRunError, Insert, MemTable, run_path};
use crate::poison::lock;
use crate::runs::run_error;
use crate::segment::SegmentMeta;
use crate::topic::Topic;

/// The events of one rebuilt run; more if there are too few ages for runs of this size.
const EVENTS_PER_RUN: u64 = 1_000_000;

impl LogCore {
    /// Replaces all id and key runs by new ones, unless the damaged run was replaced already.
    pub(crate) fn rebuild_index(&self, damaged: &str) -> Result<(), LogReadError> {
        let _one_at_a_time = lock(&self.merging);
        let runs = self.index.runs();
        let found = runs.all().find(|run| run_path(run.meta().number) == damaged).map(|run| *run.meta());
        match found {
            None => Ok(()),
            // Ghosts cannot be rebuilt, because their events are removed. A repeated id then counts as a new
            // one.
            Some(meta) if meta.kind == EntryKind::Ghost => {
                self.note_damage(&LogDamage {
                    topic: None,
                    file: damaged.to_owned(),
                    from_byte: 0,
                    to_byte: meta.file_bytes(),
                    from_offset: 0,
                    to_offset: 0,
                    what: "ids of removed events are forgotten early",
                });
                self.drop_runs(&[meta.number]).map_err(unwritable)
            }
            Some(_) => self.replace_runs(&[]),
        }
    }

    /// Builds all id and key runs again. Reads every segment as far as it is written; the entries of later
    /// records are in memory. `unusable` are runs that the manifest names and that could not be opened.
    ///
    /// Checkpoints continue meanwhile: the runs they add have higher ages and stay. Merges and compactions
    /// wait.
    pub(crate) fn replace_runs(&self, unusable: &[u64]) -> Result<(), LogReadError> {
        let plan = self.plan_rebuild(unusable);
        let per_run = plan.events_per_run();
        let mut builder =
            RunBuilder { core: self, table: MemTable::new(), age: 1, per_run, runs: Vec::new() };
        let built = plan.segments.iter().try_for_each(|(topic, meta)| builder.add_segment(topic, meta));
        if let Err(error) = built.and_then(|()| builder.spill()) {
            self.discard_runs(&builder.runs);
            return Err(error);
        }
        self.swap_runs(builder.runs, &plan.replaced).map_err(unwritable)
    }

    /// Notes the segments to read and the runs to replace. While `upkeep` is held no checkpoint is between
    /// memory and runs: each written event is in the segments noted here, and each other event is in a memory
    /// table with an age of at least `ages_end`.
    fn plan_rebuild(&self, unusable: &[u64]) -> RebuildPlan {
        let _no_checkpoint = lock(&self.upkeep);
        let ages_end = self.index.first_memory_age();
        let old = self.index.runs();
        let old = [EntryKind::Id, EntryKind::Key].into_iter().flat_map(|kind| old.of(kind));
        let mut replaced: Vec<u64> = old.map(|run| run.meta().number).collect();
        replaced.extend_from_slice(unusable);
        let mut topics: Vec<Topic> = self.read_catalog(|catalog| catalog.by_id.values().cloned().collect());
        topics.sort_by_key(Topic::id);
        let on_disk = |topic: &Topic| {
            let segments = topic.state().on_disk();
            segments.into_iter().map(|meta| (topic.clone(), meta)).collect::<Vec<_>>()
        };
        RebuildPlan { replaced, segments: topics.iter().flat_map(on_disk).collect(), ages_end }
    }

    fn swap_runs(&self, runs: Vec<Arc<IndexRun>>, removed: &[u64]) -> Result<(), MaintenanceError> {
        self.check_writing()?;
        self.disk.sync_all().map_err(|error| self.fail(format!("syncing index runs failed: {error}")))?;
        self.install_runs(runs, removed)
    }
}

fn unwritable(error: MaintenanceError) -> LogReadError {
    match error {
        MaintenanceError::Read(error) => error,
        other => LogReadError::Io {
            action: "write",
            file: DIR.to_owned(),
            message: other.to_string(),
            os_error: None,
        },
    }
}

/// The segments that a rebuild reads, and the runs that it replaces.
struct RebuildPlan {
    replaced: Vec<u64>,
    segments: Vec<(Topic, SegmentMeta)>,
    /// The first age that rebuilt runs may not use.
    ages_end: u64,
}

impl RebuildPlan {
    /// The events of each run. Each run needs an age below those of memory. The events came through as many
    /// tables as there are ages, so a run need not be larger than a table was.
    fn events_per_run(&self) -> u64 {
        let events: u64 = self.segments.iter().map(|(_, meta)| meta.records).sum();
        (events / self.ages_end.saturating_sub(1).max(1) + 1).max(EVENTS_PER_RUN)
    }
}

struct RunBuilder<'a> {
    core: &'a LogCore,
    table: MemTable,
    age: u64,
    per_run: u64,
    runs: Vec<Arc<IndexRun>>,
}

impl RunBuilder<'_> {
    /// Adds the entries of a segment. Damaged events get none.
    fn add_segment(&mut self, topic: &Topic, meta: &SegmentMeta) -> Result<(), LogReadError> {
        self.core.visit_segment(topic, meta, |page| {
            let mut pos = page.first_pos();
            for view in page.iter() {
                self.table.insert(&Insert {
                    topic: topic.id(),
                    pos: pos as u32,
                    offset: view.offset,
                    id_hash: id_hash(view.id),
                    id_ms: view.id.unix_ms(),
                    key_hash: view.key.map(key_hash),
                    appended_ms: meta.last_append.max(0) as u64,
                });
                pos += view.len as u64;
            }
            if self.table.len() as u64 >= self.per_run { self.spill() } else { Ok(()) }
        })
    }

    fn spill(&mut self) -> Result<(), LogReadError> {
        if self.table.len() > 0 {
            self.table.age = self.age;
            self.age += 1;
            let spilled = self.core.index.spill(&self.table).inspect_err(|error| {
                if let IndexRunError::Io { source, .. } = error {
                    self.core.note_shortage(source);
                }
            });
            self.runs.extend(spilled.map_err(run_error)?);
            self.table.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::SegmentId;
    use crate::topic::TopicState;

    #[test]
    fn rebuilt_runs_have_ages_below_those_of_memory_however_large_tables_were() {
        let topic = Topic::new(1, "t".parse().unwrap(), true, TopicState::default());
        let id = SegmentId { topic: 1, base: 0, generation: 0 };
        for (ages_end, records) in [(2, 9_000_000), (3, 5_000_001), (4, 3), (5, 0), (1 << 32, 9_000_000)] {
            let meta = SegmentMeta { records, ..SegmentMeta::new(id, 0) };
            let plan = RebuildPlan { replaced: Vec::new(), segments: vec![(topic.clone(), meta)], ages_end };
            // A run is closed once it has that many events; the last may have fewer.
            let runs = records / plan.events_per_run() + 1;
            assert!(runs < ages_end, "{runs} runs, ages below {ages_end}");
            assert!(plan.events_per_run() >= EVENTS_PER_RUN);
        }
    }
}
