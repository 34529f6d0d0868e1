//! The set of index runs on disk: merges, which keep their number small, and how runs are added and dropped.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::LogCore;
use crate::error::{LogDamage, LogReadError, MaintenanceError};
use crate::index::{DIR, EntryKind, IndexRun, IndexRunError, Merged, RunMeta, run_path};
use crate::manifest::RunItem;
use crate::poison::lock;

impl LogCore {
    /// Does one merge. Returns whether there was one to do. A merge that would need the reserve waits.
    pub(crate) fn merge_runs(&self) -> Result<bool, MaintenanceError> {
        self.check_writing()?;
        let one_at_a_time = lock(&self.merging);
        let task = self.index.pick_merge();
        let waits = task.as_ref().is_some_and(|task| !self.has_space_to_rewrite(task.bytes()));
        self.space.merge_waits.store(waits, Ordering::Relaxed);
        let Some(task) = task.filter(|_| !waits) else { return Ok(false) };
        let on_disk_from = self.read_catalog(|catalog| {
            let all = catalog.by_id.values();
            all.map(|topic| (topic.id(), topic.state().on_disk_from())).collect::<HashMap<_, _>>()
        });
        // Entries are sorted by topic, so the last answer is nearly always the next answer too.
        let last = Cell::new((0, on_disk_from.get(&0).copied()));
        let keep = |kind: EntryKind, topic: u32, offset: u64| {
            if last.get().0 != topic {
                last.set((topic, on_disk_from.get(&topic).copied()));
            }
            match (kind, last.get().1) {
                (_, None) => false,
                (EntryKind::Ghost, Some(_)) => true,
                // Entries of trimmed events are needed to find their ids, until ghosts replace their segment.
                (_, Some(from)) => offset >= from,
            }
        };
        let merged = match self.index.merge(&task, &keep, &self.signals.stop) {
            Ok(merged) => merged,
            Err(IndexRunError::Damaged { file, .. }) => {
                drop(one_at_a_time);
                self.rebuild_index(&file)?;
                return Ok(true);
            }
            Err(IndexRunError::Io { file, source }) => {
                return Err(self.rewrite_failed(&file, source, &self.space.merge_waits));
            }
        };
        let added = match merged {
            Merged::Stopped => return Ok(false),
            Merged::Run(run) => vec![run],
            Merged::Empty => Vec::new(),
        };
        for run in &added {
            let synced = run.file().sync().and_then(|()| self.disk.sync_dir(DIR));
            if let Err(error) = synced {
                let failed = self.upkeep_failed(&run.path(), error, true);
                self.give_up_runs(&added);
                return Err(failed);
            }
        }
        self.install_runs(added, &task.numbers())?;
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Names durable runs in the manifest, makes them visible, and removes the runs that they replace. After
    /// a failure the new runs are gone.
    pub(crate) fn install_runs(
        &self,
        added: Vec<Arc<IndexRun>>,
        removed: &[u64],
    ) -> Result<(), MaintenanceError> {
        let mut manifest = lock(&self.manifest);
        manifest.next_run = self.index.next_number();
        let written = manifest.append_edit(|edit| {
            edit.runs = added.iter().map(|run| run_item(run.meta())).collect();
            edit.dropped_runs = removed.to_vec();
        });
        if let Err(failed) = written {
            let error = self.upkeep_failed("the manifest", failed.error, failed.syncing);
            self.give_up_runs(&added);
            return Err(error);
        }
        self.index.install(added, removed, false);
        drop(manifest);
        self.remove_run_files(removed.iter().copied());
        Ok(())
    }

    /// Drops runs without a replacement.
    pub(crate) fn drop_runs(&self, numbers: &[u64]) -> Result<(), MaintenanceError> {
        if numbers.is_empty() {
            return Ok(());
        }
        self.check_writing()?;
        self.install_runs(Vec::new(), numbers)
    }

    /// Removes the files of new runs that will not be installed.
    pub(crate) fn discard_runs(&self, runs: &[Arc<IndexRun>]) {
        self.remove_run_files(runs.iter().map(|run| run.meta().number));
    }

    /// Removes new runs after a failure that did not stop the log. A stopped log writes nothing, and an edit
    /// whose sync failed may name the runs.
    fn give_up_runs(&self, runs: &[Arc<IndexRun>]) {
        if self.poison.reason().is_none() {
            self.discard_runs(runs);
        }
    }

    fn remove_run_files(&self, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            // If the file cannot be removed now, the next open removes it: no manifest names it.
            let _ = self.disk.remove(&run_path(number));
        }
    }
}

pub(crate) fn run_item(run: &RunMeta) -> RunItem {
    RunItem { number: run.number, kind: run.kind as u8, level: run.level }
}

/// The error of a run as an error of writing.
pub(crate) fn run_io(error: IndexRunError) -> io::Error {
    match error {
        IndexRunError::Io { source, .. } => source,
        damaged => io::Error::other(damaged),
    }
}

/// The error of a run as an error of reading.
pub(crate) fn run_error(error: IndexRunError) -> LogReadError {
    match error {
        IndexRunError::Io { file, source } => LogReadError::of_io("read", file, &source),
        IndexRunError::Damaged { file, from_byte, to_byte, what } => LogReadError::CorruptRange(LogDamage {
            topic: None,
            file,
            from_byte,
            to_byte,
            from_offset: 0,
            to_offset: 0,
            what,
        }),
    }
}
