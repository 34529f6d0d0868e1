//! The entries of folders: the seen names, the durable names, and the changes between the two, in order.

use std::collections::{BTreeMap, BTreeSet};

use super::crash::Mood;
use crate::rng::SeededRng;

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    File(u64),
    Folder,
}

/// One change of the namespace. Each is atomic, a rename too: it survives in all the folders it touches or in none.
#[derive(Debug, Clone)]
pub(super) enum NameOp {
    Create { path: String, file: u64 },
    MakeDir { path: String },
    Rename { from: String, to: String, file: u64 },
    Remove { path: String },
}

/// The namespace. `durable` plus all of `pending` is `seen`.
#[derive(Debug, Clone, Default)]
pub(super) struct FileNames {
    seen: Tree,
    durable: Tree,
    pending: Vec<NameOp>,
}

type Tree = BTreeMap<String, Entry>;

impl FileNames {
    pub(super) fn get(&self, path: &str) -> Option<Entry> {
        if path.is_empty() { Some(Entry::Folder) } else { self.seen.get(path).copied() }
    }

    pub(super) fn get_durable(&self, path: &str) -> Option<Entry> {
        self.durable.get(path).copied()
    }

    /// Every file that is seen, in path order.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.seen.iter().filter_map(|(path, entry)| match entry {
            Entry::File(file) => Some((path.as_str(), *file)),
            Entry::Folder => None,
        })
    }

    /// Files that are seen, and files that a crash could bring back.
    pub(super) fn reachable(&self) -> BTreeSet<u64> {
        let named = self.seen.values().chain(self.durable.values()).filter_map(|entry| match entry {
            Entry::File(file) => Some(*file),
            Entry::Folder => None,
        });
        let pending = self.pending.iter().filter_map(|op| match op {
            NameOp::Create { file, .. } | NameOp::Rename { file, .. } => Some(*file),
            NameOp::MakeDir { .. } | NameOp::Remove { .. } => None,
        });
        named.chain(pending).collect()
    }

    /// Makes a change that is seen at once and not yet durable.
    pub(super) fn change(&mut self, op: NameOp) {
        op.apply(&mut self.seen);
        self.pending.push(op);
    }

    /// Makes a change that is durable at once.
    pub(super) fn change_durably(&mut self, op: NameOp) {
        self.change(op);
        self.sync_all();
    }

    pub(super) fn sync_all(&mut self) {
        self.pending.clear();
        self.durable.clone_from(&self.seen);
    }

    /// Makes the changes in one folder durable, and with them the earlier ones they build on.
    pub(super) fn sync_dir(&mut self, dir: &str) {
        let mut wanted: BTreeSet<String> = BTreeSet::new();
        let mut chosen = vec![false; self.pending.len()];
        for (op, chosen) in self.pending.iter().zip(&mut chosen).rev() {
            *chosen = op.folders().contains(&dir) || op.changes().any(|path| wanted.contains(path));
            if *chosen {
                wanted.extend(op.needs().map(str::to_owned));
            }
        }
        let mut chosen = chosen.into_iter();
        for op in std::mem::take(&mut self.pending) {
            if chosen.next() == Some(true) {
                op.apply(&mut self.durable);
            } else {
                self.pending.push(op);
            }
        }
    }

    /// The names that a power cut leaves.
    pub(super) fn crash(&self, rng: &mut SeededRng, mood: Mood) -> Self {
        let mut tree = self.durable.clone();
        let mut luck = Luck::draw(rng, mood);
        let mut lost: BTreeSet<&str> = BTreeSet::new();
        for op in &self.pending {
            let possible = !op.needs().any(|path| lost.contains(path));
            if luck.keeps(rng, op, possible) {
                op.apply(&mut tree);
            } else if matches!(op, NameOp::Rename { .. } | NameOp::MakeDir { .. }) {
                // A change that builds on a lost rename is lost too: otherwise its file could have no name, or two.
                lost.extend(op.changes());
            }
        }
        let whole = tree.clone();
        tree.retain(|path, _| ancestors(path).all(|dir| whole.contains_key(dir)));
        Self { seen: tree.clone(), durable: tree, pending: Vec::new() }
    }
}

impl NameOp {
    fn apply(&self, tree: &mut Tree) {
        match self {
            Self::Create { path, file } => {
                tree.insert(path.clone(), Entry::File(*file));
            }
            Self::MakeDir { path } => {
                tree.insert(path.clone(), Entry::Folder);
            }
            Self::Rename { from, to, file } => {
                tree.remove(from);
                tree.insert(to.clone(), Entry::File(*file));
            }
            Self::Remove { path } => {
                tree.remove(path);
            }
        }
    }

    fn paths(&self) -> (&str, Option<&str>) {
        match self {
            Self::Create { path, .. } | Self::MakeDir { path } | Self::Remove { path } => (path, None),
            Self::Rename { from, to, .. } => (from, Some(to)),
        }
    }

    /// Paths that name another file, or none, after the change.
    fn changes(&self) -> impl Iterator<Item = &str> {
        let (first, second) = self.paths();
        std::iter::once(first).chain(second)
    }

    /// Paths whose earlier changes this one builds on. A created file goes with its folder; a renamed one must not.
    fn needs(&self) -> impl Iterator<Item = &str> {
        let home = match self {
            Self::Rename { to: path, .. } | Self::MakeDir { path } => Some(folder(path)),
            Self::Create { .. } | Self::Remove { .. } => None,
        };
        self.changes().chain(home)
    }

    fn folders(&self) -> [&str; 2] {
        let (first, second) = self.paths();
        [folder(first), folder(second.unwrap_or(first))]
    }
}

/// How a crash picks among the pending changes.
enum Luck<'a> {
    /// Each on its own.
    Each { percent: u64 },
    /// A folder's changes up to some point, as a metadata journal keeps them.
    Prefix { percent: u64, ended: BTreeSet<&'a str> },
}

impl<'a> Luck<'a> {
    fn draw(rng: &mut SeededRng, mood: Mood) -> Self {
        let percent = match mood {
            Mood::Nothing => 0,
            Mood::Everything => 100,
            Mood::Mixed => *rng.choose(&[0, 20, 50, 80, 95, 100]).unwrap_or(&50),
        };
        if rng.chance(50) { Self::Each { percent } } else { Self::Prefix { percent, ended: BTreeSet::new() } }
    }

    fn keeps(&mut self, rng: &mut SeededRng, op: &'a NameOp, possible: bool) -> bool {
        match self {
            Self::Each { percent } => rng.chance(*percent) && possible,
            Self::Prefix { percent, ended } => {
                let open = op.folders().iter().all(|dir| !ended.contains(dir));
                let keep = rng.chance(*percent) && possible && open;
                if !keep {
                    ended.extend(op.folders());
                }
                keep
            }
        }
    }
}

/// The folder a path is in; `""` is the data directory.
pub(super) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}
