//! Keeps the number of index runs small.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::checkpoint::run_item;
use crate::core::LogCore;
use crate::error::MaintenanceError;
use crate::index::{DIR, EntryKind, Merged, RunError, run_path};
use crate::poison::lock;

impl LogCore {
    /// Does one merge; says whether there was one to do.
    pub(crate) fn merge_runs(&self) -> Result<bool, MaintenanceError> {
        self.check_writing()?;
        let one_at_a_time = lock(&self.merging);
        let Some(task) = self.index.pick_merge() else { return Ok(false) };
        let on_disk_from = self.read_catalog(|catalog| {
            let all = catalog.by_id.values();
            all.map(|topic| (topic.id(), topic.state().on_disk_from())).collect::<HashMap<_, _>>()
        });
        // Entries come sorted by topic, so the last answer is nearly always the next one too.
        let last = Cell::new((0, on_disk_from.get(&0).copied()));
        let keep = |kind: EntryKind, topic: u32, offset: u64| {
            if last.get().0 != topic {
                last.set((topic, on_disk_from.get(&topic).copied()));
            }
            match (kind, last.get().1) {
                (_, None) => false,
                (EntryKind::Ghost, Some(_)) => true,
                // Trimmed events still answer for their ids until their segment goes and leaves ghosts.
                (_, Some(from)) => offset >= from,
            }
        };
        let merged = match self.index.merge(&task, &keep, &self.signals.stop) {
            Ok(merged) => merged,
            Err(RunError::Damaged { file, .. }) => {
                drop(one_at_a_time);
                self.rebuild_index(&file)?;
                return Ok(true);
            }
            Err(RunError::Io { file, source }) => return Err(self.upkeep_failed(&file, source, false)),
        };
        let added = match merged {
            Merged::Stopped => return Ok(false),
            Merged::Run(run) => vec![run],
            Merged::Empty => Vec::new(),
        };
        for run in &added {
            let path = run_path(run.meta().number);
            let synced = run.file().sync();
            let synced = synced.and_then(|()| self.disk.sync_dir(DIR));
            synced.map_err(|error| self.fail(format!("syncing {path} failed: {error}")))?;
        }
        let removed = task.numbers();
        let mut manifest = lock(&self.manifest);
        manifest.next_run = self.index.next_number();
        let written = manifest.append_edit(|edit| {
            edit.runs = added.iter().map(|run| run_item(run.meta())).collect();
            edit.dropped_runs = removed.clone();
        });
        written.map_err(|error| self.fail(format!("writing the manifest failed: {error}")))?;
        self.index.install(added.iter().map(Arc::clone).collect(), &removed, false);
        drop(manifest);
        for number in removed {
            // Left for the next open if it cannot be removed now: no manifest names it.
            let _ = self.disk.remove(&run_path(number));
        }
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}
