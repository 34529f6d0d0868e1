//! The index of all events: memory tables, runs, and how entries move from one to the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::entry::{EntryKind, GhostEntry};
use super::footer::RunMeta;
use super::memtable::{Insert, MemTable};
use super::merge::{self, Keep, Merged};
use super::run::{IndexRun, IndexRunError};
use super::run_writer::RunWriter;
use super::tiers::{MergeTask, RunSet};
use crate::disk::Disk;
use promethean_model::IgnorePoison;

/// Ages from this one on belong to tables that were filled after a rebuild began.
const REBUILT_BELOW: u64 = 1 << 32;

/// All entries of all topics. Any thread may look up and insert; freezing, spilling, merging and installing
/// are the work of one maintenance thread.
///
/// Locks are held for the time of a memory access only, never for I/O.
pub(crate) struct EventIndex {
    disk: Arc<dyn Disk>,
    /// The table that takes inserts.
    pub(super) active: RwLock<MemTable>,
    /// The table that is being spilled. It changes only while `active` is locked too, or after its runs are
    /// in `runs`.
    pub(super) frozen: RwLock<Option<Arc<MemTable>>>,
    pub(super) runs: RwLock<Arc<RunSet>>,
    /// The active table's age. Written with `active` locked.
    pub(super) generation: AtomicU64,
    /// A spilled table whose memory the next freeze reuses once no reader holds it.
    spare: Mutex<Option<Arc<MemTable>>>,
    ghost_age: AtomicU64,
    next_number: AtomicU64,
}

impl EventIndex {
    /// Opens the runs that the manifest names, reading their footers. Memory tables start empty. New runs get
    /// numbers from `next_number` on. An error comes with the number of its run.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        named: &[(u64, EntryKind, u8)],
        next_number: u64,
    ) -> Result<EventIndex, (u64, IndexRunError)> {
        Self::open_from(disk, named, next_number, 1)
    }

    /// Opens an index whose other runs will be rebuilt while newer entries are in memory already: ages below
    /// `REBUILT_BELOW` are left free for the rebuilt runs.
    pub(crate) fn open_to_rebuild(
        disk: Arc<dyn Disk>,
        named: &[(u64, EntryKind, u8)],
        next_number: u64,
    ) -> Result<EventIndex, (u64, IndexRunError)> {
        Self::open_from(disk, named, next_number, REBUILT_BELOW)
    }

    fn open_from(
        disk: Arc<dyn Disk>,
        named: &[(u64, EntryKind, u8)],
        next_number: u64,
        first_age: u64,
    ) -> Result<EventIndex, (u64, IndexRunError)> {
        let mut runs = Vec::with_capacity(named.len());
        for &(number, kind, level) in named {
            let run = IndexRun::open(&*disk, number, level).map_err(|err| (number, err))?;
            if run.meta().kind != kind {
                return Err((number, whole_run_damaged(&run, "another kind than the manifest says")));
            }
            runs.push(Arc::new(run));
        }
        let runs = RunSet::default().with(runs, &[]);
        if let Some(run) = runs.overlapping() {
            return Err((run.meta().number, whole_run_damaged(run, "ages overlap those of another run")));
        }
        let age_after = |kinds: &[EntryKind]| {
            let metas = runs.all().map(|run| run.meta()).filter(|meta| kinds.contains(&meta.kind));
            metas.map(|meta| meta.age_to + 1).max().unwrap_or(1)
        };
        let generation = age_after(&[EntryKind::Id, EntryKind::Key]).max(first_age);
        let ghost_age = age_after(&[EntryKind::Ghost]);
        let mut active = MemTable::new();
        active.age = generation;
        let next_number = named.iter().map(|(number, ..)| number + 1).fold(next_number, u64::max);
        Ok(EventIndex {
            disk,
            active: RwLock::new(active),
            frozen: RwLock::new(None),
            runs: RwLock::new(Arc::new(runs)),
            generation: AtomicU64::new(generation),
            spare: Mutex::new(None),
            ghost_age: AtomicU64::new(ghost_age),
            next_number: AtomicU64::new(next_number),
        })
    }

    /// Adds an event under its id and its key. Offsets of a topic must come in ascending order.
    pub(crate) fn insert_pair(&self, new: &Insert) {
        write(&self.active).insert(new);
    }

    /// Adds several events under one lock.
    pub(crate) fn insert_all(&self, batch: &[Insert]) {
        write(&self.active).insert_all(batch);
    }

    /// Replaces the active table by an empty one and returns the full table for spilling. `None` if the last
    /// frozen table is still there: it must be spilled and installed first.
    pub(crate) fn freeze(&self) -> Option<Arc<MemTable>> {
        let mut fresh = self.recycled();
        let mut active = write(&self.active);
        let mut frozen = write(&self.frozen);
        if frozen.is_some() {
            drop((active, frozen));
            *self.spare() = Some(Arc::new(fresh));
            return None;
        }
        fresh.age = active.age + 1;
        self.generation.store(fresh.age, Ordering::Release);
        // Both locks are held: a reader that sees the empty table then sees the frozen one.
        let full = Arc::new(std::mem::replace(&mut *active, fresh));
        *frozen = Some(Arc::clone(&full));
        Some(full)
    }

    /// The table that waits for its spill.
    pub(crate) fn frozen(&self) -> Option<Arc<MemTable>> {
        read(&self.frozen).clone()
    }

    /// Writes a frozen table as one run per kind, at level 0 and not synced; a kind without entries gets no
    /// run. After an error no file is left.
    pub(crate) fn spill(&self, table: &MemTable) -> Result<Vec<Arc<IndexRun>>, IndexRunError> {
        let mut runs: Vec<Arc<IndexRun>> = Vec::new();
        for kind in [EntryKind::Id, EntryKind::Key] {
            match self.spill_kind(table, kind) {
                Ok(run) => runs.extend(run),
                Err(error) => {
                    // If a file cannot be removed now, the next open removes it: no manifest names it.
                    runs.iter().for_each(|run| drop(self.disk.remove(&run.path())));
                    return Err(error);
                }
            }
        }
        Ok(runs)
    }

    fn spill_kind(&self, table: &MemTable, kind: EntryKind) -> Result<Option<Arc<IndexRun>>, IndexRunError> {
        if table.entries(kind) == 0 {
            return Ok(None);
        }
        let meta = RunMeta {
            number: 0,
            kind,
            level: 0,
            entries: 0,
            age_from: table.age,
            age_to: table.age,
            id_ms_min: table.id_ms_min,
            id_ms_max: table.id_ms_max,
            appended_max: table.appended_max,
        };
        let mut writer = RunWriter::create(&self.disk, &self.next_number, meta)?;
        for entry in table.sorted(kind) {
            writer.push(entry.key(), &entry.encode())?;
        }
        Ok(writer.finish()?.map(Arc::new))
    }

    /// Writes ghosts, which must be sorted by topic and id, as one run, not synced; `None` if there are no
    /// ghosts. Of ghosts with the same topic and id the first is written. `appended_max` is when the last
    /// event was appended.
    pub(crate) fn write_ghosts(
        &self,
        ghosts: impl IntoIterator<Item = GhostEntry>,
        appended_max: u64,
    ) -> Result<Option<Arc<IndexRun>>, IndexRunError> {
        let age = self.ghost_age.fetch_add(1, Ordering::Relaxed);
        let (number, entries) = (0, 0);
        let (age_from, age_to, id_ms_min, id_ms_max) = (age, age, u64::MAX, 0);
        let kind = EntryKind::Ghost;
        let meta =
            RunMeta { number, kind, level: 0, entries, age_from, age_to, id_ms_min, id_ms_max, appended_max };
        let mut writer = RunWriter::create(&self.disk, &self.next_number, meta)?;
        for ghost in ghosts {
            writer.push(ghost.key(), &ghost.encode())?;
        }
        Ok(writer.finish()?.map(Arc::new))
    }

    /// Picks the runs to merge next. Until the result of a task is installed, the same task may be picked
    /// again.
    pub(crate) fn pick_merge(&self) -> Option<MergeTask> {
        self.runs().pick_merge()
    }

    /// Merges a task's inputs into a run that is neither synced nor installed.
    pub(crate) fn merge(
        &self,
        task: &MergeTask,
        keep: Keep<'_>,
        stop: &AtomicBool,
    ) -> Result<Merged, IndexRunError> {
        merge::merge(&self.disk, &self.next_number, task, keep, stop)
    }

    /// Makes added runs visible and removed runs invisible. With `drop_frozen` it then drops the frozen
    /// table, whose runs must be among the added. Call it when the manifest durably names the added runs;
    /// after it, the files of removed runs can be deleted.
    pub(crate) fn install(&self, added: Vec<Arc<IndexRun>>, removed: &[u64], drop_frozen: bool) {
        {
            let mut runs = write(&self.runs);
            *runs = Arc::new(runs.with(added, removed));
        }
        if !drop_frozen {
            return;
        }
        let spilled = write(&self.frozen).take();
        if let Some(mut table) = spilled {
            if let Some(table) = Arc::get_mut(&mut table) {
                table.clear();
            }
            *self.spare() = Some(table);
        }
    }

    /// The number of the active table; it grows at each freeze. While it stays the same, `recent` finds all
    /// new entries.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The lowest age of a memory table: lower ages belong to runs only.
    pub(crate) fn first_memory_age(&self) -> u64 {
        let active = self.generation();
        read(&self.frozen).as_ref().map_or(active, |frozen| frozen.age.min(active))
    }

    /// The number of the next run; the manifest keeps it.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    /// The runs as they are now.
    pub(crate) fn runs(&self) -> Arc<RunSet> {
        Arc::clone(&read(&self.runs))
    }

    /// The number of events in the active table, and the memory they need.
    pub(crate) fn active_size(&self) -> (usize, usize) {
        let active = read(&self.active);
        (active.len(), active.bytes())
    }

    /// The number of entries of a kind in runs.
    pub(crate) fn entries(&self, kind: EntryKind) -> u64 {
        self.runs().of(kind).iter().map(|run| run.meta().entries).sum()
    }

    /// Reads every page of every run. Returns the first damage of each damaged run, with the run's number.
    pub(crate) fn verify(&self) -> Vec<(u64, IndexRunError)> {
        let runs = self.runs();
        runs.all().filter_map(|run| run.verify().err().map(|err| (run.meta().number, err))).collect()
    }

    fn recycled(&self) -> MemTable {
        let spare = self.spare().take();
        let mut table = spare.and_then(Arc::into_inner).unwrap_or_else(MemTable::new);
        if table.len() > 0 {
            table.clear();
        }
        table
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Option<Arc<MemTable>>> {
        self.spare.lock().ignore_poison()
    }
}

// A panic under one of these locks leaves whole values behind. At worst an entry is missing, and the caller
// that inserted it panicked too. So lock poison is ignored.
pub(super) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().ignore_poison()
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().ignore_poison()
}

fn whole_run_damaged(run: &IndexRun, what: &'static str) -> IndexRunError {
    IndexRunError::Damaged { file: run.path(), from_byte: 0, to_byte: run.meta().file_bytes(), what }
}
