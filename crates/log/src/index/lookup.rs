//! Lookups over the memory tables and the runs.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use super::entry::{EntryKind, GhostEntry};
use super::event_index::{EventIndex, read};
use super::run::IndexRunError;

/// Entries copied from the active table under one lock.
const CHUNK: usize = 32;

/// A callback with offset and position of one entry. It returns whether to go on.
pub(crate) type VisitEntry<'a> = &'a mut dyn FnMut(u64, u32) -> ControlFlow<()>;

impl EventIndex {
    /// Appends offset and position of every entry under a hash, newest first, each once. Runs that cannot
    /// hold an id with the time `id_ms` (of a version 7 id) are not read.
    ///
    /// Does not rely on the order of ages: no entry is missed even if offsets of runs overlapped.
    pub(crate) fn candidates(
        &self,
        kind: EntryKind,
        topic: u32,
        hash: u64,
        id_ms: Option<u64>,
        out: &mut Vec<(u64, u32)>,
    ) -> Result<(), IndexRunError> {
        let mut found = Vec::new();
        found.extend(read(&self.active).chain(kind, topic, hash));
        if let Some(table) = self.frozen() {
            found.extend(table.chain(kind, topic, hash));
        }
        for run in self.runs().of(kind).iter().filter(|run| run.meta().may_hold(id_ms)) {
            run.find(topic, hash, &mut found)?;
        }
        // The entries are sorted already, unless one moved to the next table between two looks.
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        out.append(&mut found);
        Ok(())
    }

    /// Visits the entries under a hash from newest to oldest until `visit` stops. Older tables and runs are
    /// read only after all newer entries. No lock is held during a visit.
    pub(crate) fn newest_first(
        &self,
        kind: EntryKind,
        topic: u32,
        hash: u64,
        visit: VisitEntry<'_>,
    ) -> Result<(), IndexRunError> {
        self.newest_upto(kind, topic, hash, u64::MAX, visit)
    }

    /// Visits the entries under a hash from the offset `upto` downwards, so that a long history can be read
    /// in parts.
    pub(crate) fn newest_upto(
        &self,
        kind: EntryKind,
        topic: u32,
        hash: u64,
        upto: u64,
        visit: VisitEntry<'_>,
    ) -> Result<(), IndexRunError> {
        let mut left = Left { upto: Some(upto), visit };
        if self.walk_memory(kind, topic, hash, &mut left).is_break() {
            return Ok(());
        }
        for run in self.runs().of(kind) {
            let Some(upto) = left.upto else { return Ok(()) };
            if run.walk(topic, hash, upto, &mut |offset, pos| left.see(offset, pos))?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Visits the entries under a hash that are not in a run yet, newest first.
    pub(crate) fn recent(&self, kind: EntryKind, topic: u32, hash: u64, visit: VisitEntry<'_>) {
        let mut left = Left { upto: Some(u64::MAX), visit };
        let _ = self.walk_memory(kind, topic, hash, &mut left);
    }

    /// Finds the newest ghost of an id.
    pub(crate) fn find_ghost(&self, topic: u32, id: &[u8; 16]) -> Result<Option<GhostEntry>, IndexRunError> {
        for run in self.runs().of(EntryKind::Ghost) {
            if let Some(ghost) = run.find_ghost(topic, id)? {
                return Ok(Some(ghost));
            }
        }
        Ok(None)
    }

    fn walk_memory(&self, kind: EntryKind, topic: u32, hash: u64, left: &mut Left<'_>) -> ControlFlow<()> {
        self.walk_active(kind, topic, hash, left)?;
        if let Some(table) = self.frozen() {
            for (offset, pos) in table.chain(kind, topic, hash) {
                left.see(offset, pos)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Visits the entries of the active table. Copies a few at a time, because a visit may read the disk and
    /// inserts must not wait for that.
    fn walk_active(&self, kind: EntryKind, topic: u32, hash: u64, left: &mut Left<'_>) -> ControlFlow<()> {
        let mut resume = None;
        loop {
            let mut chunk = [(0, 0); CHUNK];
            let mut filled = 0;
            {
                let table = read(&self.active);
                let generation = self.generation.load(Ordering::Relaxed);
                let mut chain = match resume {
                    None => table.chain(kind, topic, hash),
                    Some((before, next)) if before == generation => table.chain_from(kind, next),
                    // The rest of the chain is in the frozen table now, or already in a run.
                    Some(_) => return ControlFlow::Continue(()),
                };
                for (place, entry) in chunk.iter_mut().zip(&mut chain) {
                    *place = entry;
                    filled += 1;
                }
                resume = Some((generation, chain.next));
            }
            for &(offset, pos) in chunk.iter().take(filled) {
                left.see(offset, pos)?;
            }
            if filled < CHUNK {
                return ControlFlow::Continue(());
            }
        }
    }
}

/// The entries that a walk has still to visit.
struct Left<'a> {
    /// The highest offset still to visit; `None` after offset 0. An entry that moves to the next table during
    /// the walk is met twice, and skipped the second time.
    upto: Option<u64>,
    visit: VisitEntry<'a>,
}

impl Left<'_> {
    fn see(&mut self, offset: u64, pos: u32) -> ControlFlow<()> {
        if self.upto.is_none_or(|upto| offset > upto) {
            return ControlFlow::Continue(());
        }
        self.upto = offset.checked_sub(1);
        (self.visit)(offset, pos)
    }
}
