//! Everything behind the disk's one mutex.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use super::bytes::FileBytes;
use super::faults::{DiskFailure, FaultEffect, OpKind, Rules, StopFault};
use super::names::{Entry, FileNames, NameOp, folder};
use super::trace::{CallOutcome, DiskCall, Trace};
use crate::rng::SeededRng;

/// Largest file it holds; a wild offset must not take the machine's memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The whole disk.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskState {
    pub(super) files: BTreeMap<u64, FileBytes>,
    pub(super) names: FileNames,
    pub(super) locks: BTreeSet<String>,
    pub(super) capacity: Option<u64>,
    pub(super) files_max: Option<u64>,
    pub(super) descriptors_max: Option<usize>,
    pub(super) rules: Rules,
    pub(super) trace: Trace,
    /// Changing operations so far.
    pub(super) ops: u64,
    pub(super) stop: Option<StopFault>,
    /// Why every operation fails, once the disk is dead.
    pub(super) dead: Option<&'static str>,
    files_made: u64,
}

/// How an operation may go on.
pub(super) enum Admission {
    Go,
    Short(u64),
    Lie,
    /// The power goes during the operation: the caller gets an error, whatever was done.
    Cut(SeededRng),
}

impl DiskState {
    /// Counts the operation and applies the faults that wait for it.
    pub(super) fn admit(&mut self, call: &DiskCall) -> io::Result<Admission> {
        if let Some(why) = self.dead {
            return Err(io::Error::other(why));
        }
        self.ops += u64::from(call.kind.mutates());
        if call.kind.mutates() && self.stop.as_ref().is_some_and(|stop| stop.at <= self.ops) {
            self.dead = Some("power cut");
            let rng = self.stop.take().map_or_else(|| SeededRng::new(0), |stop| stop.rng);
            self.note(call, CallOutcome::Cut);
            return Ok(Admission::Cut(rng));
        }
        match self.rules.meet(call.kind, &call.path, call.len) {
            Some(FaultEffect::Fail(failure)) => {
                self.note(call, CallOutcome::Failed);
                self.lose_pages(call);
                Err(failure.error())
            }
            Some(FaultEffect::Short(count)) => Ok(Admission::Short(count)),
            Some(FaultEffect::LieAboutBytes | FaultEffect::LieAboutNames) => Ok(Admission::Lie),
            None => Ok(Admission::Go),
        }
    }

    pub(super) fn note(&mut self, call: &DiskCall, outcome: CallOutcome) {
        if call.kind.mutates() || outcome != CallOutcome::Done {
            self.trace.push(self.ops, call.clone(), outcome);
        }
    }

    pub(super) fn file(&self, file: u64) -> io::Result<&FileBytes> {
        self.files.get(&file).ok_or_else(missing)
    }

    pub(super) fn file_mut(&mut self, file: u64) -> io::Result<&mut FileBytes> {
        self.files.get_mut(&file).ok_or_else(missing)
    }

    pub(super) fn lookup(&self, path: &str) -> io::Result<u64> {
        match self.names.get(path) {
            Some(Entry::File(file)) => Ok(file),
            Some(Entry::Folder) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(missing()),
        }
    }

    pub(super) fn need_folder(&self, dir: &str) -> io::Result<()> {
        match self.names.get(dir) {
            Some(Entry::Folder) => Ok(()),
            Some(Entry::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(missing()),
        }
    }

    /// Adds a file that has no name yet.
    pub(super) fn add_file(&mut self, path: &str, bytes: Vec<u8>) -> u64 {
        self.files_made += 1;
        self.files.insert(self.files_made, FileBytes::new(path.into(), bytes));
        self.files_made
    }

    pub(super) fn create(&mut self, path: &str) -> io::Result<u64> {
        self.need_folder(folder(path))?;
        if self.names.get(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if self.free_files() == 0 {
            return Err(DiskFailure::ENOSPC.error());
        }
        let file = self.add_file(path, Vec::new());
        self.names.change(NameOp::Create { path: path.to_owned(), file });
        Ok(file)
    }

    pub(super) fn make_dir(&mut self, path: &str) -> io::Result<()> {
        match self.names.get(path) {
            Some(Entry::Folder) => Ok(()),
            Some(Entry::File(_)) => Err(io::ErrorKind::AlreadyExists.into()),
            None => {
                self.need_folder(folder(path))?;
                self.names.change(NameOp::MakeDir { path: path.to_owned() });
                Ok(())
            }
        }
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let file = self.lookup(from)?;
        self.need_folder(folder(to))?;
        if self.names.get(to) == Some(Entry::Folder) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if from != to {
            self.file_mut(file)?.path = Arc::from(to);
            self.names.change(NameOp::Rename { from: from.to_owned(), to: to.to_owned(), file });
        }
        Ok(())
    }

    /// Gives a file a second name. The file keeps the first for its faults.
    pub(super) fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        let file = self.lookup(from)?;
        self.need_folder(folder(to))?;
        if self.names.get(to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.names.change(NameOp::Create { path: to.to_owned(), file });
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        self.lookup(path)?;
        self.names.change(NameOp::Remove { path: path.to_owned() });
        Ok(())
    }

    /// Files that can still be created.
    pub(super) fn free_files(&self) -> u64 {
        self.files_max.map_or(u64::MAX, |most| most.saturating_sub(self.names.files().count() as u64))
    }

    /// Handles that are open.
    pub(super) fn open_files(&self) -> usize {
        self.files.values().map(|file| file.handles).sum()
    }

    /// Fails if no further file may be open.
    pub(super) fn need_descriptor(&self) -> io::Result<()> {
        let full = self.descriptors_max.is_some_and(|most| self.open_files() >= most);
        if full { Err(DiskFailure::EMFILE.error()) } else { Ok(()) }
    }

    /// Forgets files without names and handles.
    pub(super) fn prune(&mut self) {
        let reachable = self.names.reachable();
        self.files.retain(|id, file| file.handles > 0 || reachable.contains(id));
    }

    /// Bytes the files take. Length counts, holes too; an unlinked file counts until it is closed.
    pub(super) fn used(&self) -> u64 {
        let named: BTreeSet<u64> = self.names.files().map(|(_, file)| file).collect();
        let held = self.files.iter().filter(|(id, file)| file.handles > 0 || named.contains(id));
        held.map(|(_, file)| file.len()).sum()
    }

    /// How far a file may reach, given that it wants to reach `end`.
    pub(super) fn limit(&self, file: u64, end: u64) -> io::Result<u64> {
        let len = self.file(file)?.len();
        if end > FILE_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let free = match self.capacity {
            Some(capacity) if end > len => capacity.saturating_sub(self.used()),
            _ => u64::MAX,
        };
        Ok(end.min(len.saturating_add(free)))
    }

    fn lose_pages(&mut self, call: &DiskCall) {
        let all = call.kind == OpKind::SyncAll;
        if call.kind == OpKind::Sync || all {
            let hit = self.files.iter_mut().filter(|(id, _)| all || **id == call.file);
            hit.for_each(|(_, file)| file.lose_pending());
        }
    }
}

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}
