//! The merge of neighbouring runs into one. It streams, with memory in proportion to the number of inputs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::cursor::RunCursor;
use super::entry::{ENTRY_LEN, EntryKind, GHOST_LEN, SortKey, offset_in};
use super::footer::RunMeta;
use super::run::{IndexRun, IndexRunError};
use super::run_writer::RunWriter;
use super::tiers::MergeTask;
use crate::disk::Disk;

/// Entries between two looks at the stop flag.
const STOP_EVERY: u64 = 4096;

/// Decides whether the event at this offset of this topic keeps its entry.
pub(crate) type Keep<'a> = &'a dyn Fn(EntryKind, u32, u64) -> bool;

/// How a merge ended.
#[derive(Debug)]
pub(crate) enum Merged {
    /// This run replaces the inputs.
    Run(Arc<IndexRun>),
    /// Nothing was kept: the inputs can go.
    Empty,
    /// The stop flag was set. No file is left behind, and the inputs are still needed.
    Stopped,
}

/// Writes the kept entries of a task's inputs as one run, not synced.
pub(crate) fn merge(
    disk: &Arc<dyn Disk>,
    next: &AtomicU64,
    task: &MergeTask,
    keep: Keep<'_>,
    stop: &AtomicBool,
) -> Result<Merged, IndexRunError> {
    match task.kind {
        EntryKind::Id | EntryKind::Key => merge_sized::<ENTRY_LEN>(disk, next, task, keep, stop),
        EntryKind::Ghost => merge_sized::<GHOST_LEN>(disk, next, task, keep, stop),
    }
}

fn merge_sized<const N: usize>(
    disk: &Arc<dyn Disk>,
    next: &AtomicU64,
    task: &MergeTask,
    keep: Keep<'_>,
    stop: &AtomicBool,
) -> Result<Merged, IndexRunError> {
    let mut cursors = task.inputs.iter().map(IndexRun::cursor).collect::<Result<Vec<_>, _>>()?;
    // A copy of the keys, side by side: every step compares all of them.
    let mut keys: Vec<_> = cursors.iter().map(RunCursor::key).collect();
    let mut writer = RunWriter::create(disk, next, merged_meta(task))?;
    let mut passed = 0_u64;
    while let Some((nth, key)) = smallest(&keys) {
        if passed.is_multiple_of(STOP_EVERY) && stop.load(Ordering::Relaxed) {
            return Ok(Merged::Stopped);
        }
        passed += 1;
        let (Some(cursor), Some(head)) = (cursors.get_mut(nth), keys.get_mut(nth)) else { break };
        let Some(raw) = cursor.raw().first_chunk::<N>() else { break };
        if keep(task.kind, key.topic(), offset_in(task.kind, raw)) {
            writer.push(key, raw)?;
        }
        cursor.advance()?;
        *head = cursor.key();
    }
    Ok(writer.finish()?.map_or(Merged::Empty, |run| Merged::Run(Arc::new(run))))
}

/// The input with the smallest key; of equal keys, that of the newest run, which the writer then keeps.
fn smallest(keys: &[Option<SortKey>]) -> Option<(usize, SortKey)> {
    let mut best: Option<(usize, SortKey)> = None;
    for (nth, key) in keys.iter().enumerate() {
        if let Some(key) = *key
            && best.is_none_or(|(_, least)| key < least)
        {
            best = Some((nth, key));
        }
    }
    best
}

fn merged_meta(task: &MergeTask) -> RunMeta {
    let metas = || task.inputs.iter().map(|run| run.meta());
    RunMeta {
        number: 0,
        kind: task.kind,
        level: task.level,
        entries: 0,
        age_from: metas().map(|meta| meta.age_from).min().unwrap_or_default(),
        age_to: metas().map(|meta| meta.age_to).max().unwrap_or_default(),
        id_ms_min: metas().map(|meta| meta.id_ms_min).min().unwrap_or_default(),
        id_ms_max: metas().map(|meta| meta.id_ms_max).max().unwrap_or_default(),
        appended_max: metas().map(|meta| meta.appended_max).max().unwrap_or_default(),
    }
}
