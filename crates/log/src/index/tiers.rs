//! The runs by kind and age, and which of them should be merged next.

use std::cmp::Reverse;
use std::sync::Arc;

use super::entry::EntryKind;
use super::run::IndexRun;

/// A level with this many runs is merged.
pub(crate) const FAN_OUT: usize = 4;
/// The most runs that one merge reads; each needs a buffer.
pub(crate) const INPUTS_MAX: usize = 8;

const _: () = assert!(FAN_OUT >= 2 && INPUTS_MAX >= FAN_OUT);

/// All runs. A set never changes; a new set replaces it.
#[derive(Debug, Default, Clone)]
pub(crate) struct RunSet {
    ids: Vec<Arc<IndexRun>>,
    keys: Vec<Arc<IndexRun>>,
    ghosts: Vec<Arc<IndexRun>>,
}

impl RunSet {
    /// The runs of a kind, newest first. From newest to oldest their levels never decrease.
    pub(crate) fn of(&self, kind: EntryKind) -> &[Arc<IndexRun>] {
        match kind {
            EntryKind::Id => &self.ids,
            EntryKind::Key => &self.keys,
            EntryKind::Ghost => &self.ghosts,
        }
    }

    /// Every run.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<IndexRun>> {
        EntryKind::ALL.into_iter().flat_map(|kind| self.of(kind))
    }

    /// Makes the set after a change. A merged run has the ages of its inputs and so takes their place in the
    /// order.
    pub(crate) fn with(&self, added: Vec<Arc<IndexRun>>, removed: &[u64]) -> RunSet {
        let mut next = self.clone();
        for kind in EntryKind::ALL {
            next.of_mut(kind).retain(|run| !removed.contains(&run.meta().number));
        }
        for run in added {
            next.of_mut(run.meta().kind).push(run);
        }
        for kind in EntryKind::ALL {
            next.of_mut(kind).sort_by_key(|run| Reverse(run.meta().age_to));
        }
        next
    }

    /// Finds a run whose ages overlap those of an older run. Spills and merges never leave such runs.
    pub(crate) fn overlapping(&self) -> Option<&IndexRun> {
        EntryKind::ALL
            .into_iter()
            .find_map(|kind| {
                let pairs = self.of(kind).iter().zip(self.of(kind).iter().skip(1));
                pairs.into_iter().find(|(newer, older)| newer.meta().age_from <= older.meta().age_to)
            })
            .map(|(newer, _)| &**newer)
    }

    /// Picks the runs to merge next: the oldest runs of the lowest level that has enough of them. The runs of
    /// a level are neighbours in age, so the result fits into the order of ages.
    pub(crate) fn pick_merge(&self) -> Option<MergeTask> {
        let group = EntryKind::ALL
            .into_iter()
            .flat_map(|kind| self.of(kind).chunk_by(|a, b| a.meta().level == b.meta().level))
            .filter(|group| group.len() >= FAN_OUT)
            .min_by_key(|group| group.first().map(|run| run.meta().level))?;
        let first = group.first()?;
        Some(MergeTask {
            kind: first.meta().kind,
            level: first.meta().level.saturating_add(1),
            inputs: group.iter().skip(group.len().saturating_sub(INPUTS_MAX)).cloned().collect(),
        })
    }

    fn of_mut(&mut self, kind: EntryKind) -> &mut Vec<Arc<IndexRun>> {
        match kind {
            EntryKind::Id => &mut self.ids,
            EntryKind::Key => &mut self.keys,
            EntryKind::Ghost => &mut self.ghosts,
        }
    }
}

/// Runs to merge into one.
#[derive(Debug)]
pub(crate) struct MergeTask {
    /// Their kind.
    pub(crate) kind: EntryKind,
    /// The level of the result.
    pub(crate) level: u8,
    /// Neighbours in age, newest first.
    pub(crate) inputs: Vec<Arc<IndexRun>>,
}

impl MergeTask {
    /// The numbers of the runs that the result replaces.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.inputs.iter().map(|run| run.meta().number).collect()
    }

    /// The bytes of the inputs; the result has at most as many.
    pub(crate) fn bytes(&self) -> u64 {
        self.inputs.iter().map(|run| run.meta().file_bytes()).sum()
    }
}
