//! The runs by kind and age, and which of them should be merged next.

use std::cmp::Reverse;
use std::sync::Arc;

use super::entry::EntryKind;
use super::run::Run;

/// Runs of a level that are worth a merge.
pub(crate) const FAN_OUT: usize = 4;
/// Runs that one merge reads at most; each costs it a buffer.
pub(crate) const INPUTS_MAX: usize = 8;

const _: () = assert!(FAN_OUT >= 2 && INPUTS_MAX >= FAN_OUT);

/// All runs. A set never changes; the next one replaces it.
#[derive(Debug, Default, Clone)]
pub(crate) struct RunSet {
    ids: Vec<Arc<Run>>,
    keys: Vec<Arc<Run>>,
    ghosts: Vec<Arc<Run>>,
}

impl RunSet {
    /// The runs of a kind, newest first. From newest to oldest their levels never fall.
    pub(crate) fn of(&self, kind: EntryKind) -> &[Arc<Run>] {
        match kind {
            EntryKind::Id => &self.ids,
            EntryKind::Key => &self.keys,
            EntryKind::Ghost => &self.ghosts,
        }
    }

    /// Every run.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Run>> {
        EntryKind::ALL.into_iter().flat_map(|kind| self.of(kind))
    }

    /// The set after a change. A merged run covers the ages of its inputs and so takes their place.
    pub(crate) fn with(&self, added: Vec<Arc<Run>>, removed: &[u64]) -> RunSet {
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

    /// A run whose ages overlap those of an older one, which no sequence of spills and merges leaves behind.
    pub(crate) fn overlapping(&self) -> Option<&Run> {
        EntryKind::ALL
            .into_iter()
            .find_map(|kind| {
                let pairs = self.of(kind).iter().zip(self.of(kind).iter().skip(1));
                pairs.into_iter().find(|(newer, older)| newer.meta().age_from <= older.meta().age_to)
            })
            .map(|(newer, _)| &**newer)
    }

    /// What to merge next: the oldest runs of the lowest level that has enough of them. The runs of a level are
    /// neighbours in age, so the result has a place among the others.
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

    fn of_mut(&mut self, kind: EntryKind) -> &mut Vec<Arc<Run>> {
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
    pub(crate) inputs: Vec<Arc<Run>>,
}

impl MergeTask {
    /// The runs that the result replaces.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.inputs.iter().map(|run| run.meta().number).collect()
    }
}
