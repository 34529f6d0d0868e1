//! The `Disk` trait: names, folders, space and the lock.

use std::io;
use std::sync::{Arc, MutexGuard};

use promethean_log::disk::{Disk, DiskFile};

use super::disk::FaultDisk;
use super::faults::{FaultEffect, OpKind};
use super::file::{FaultFile, LockGuard};
use super::names::folder;
use super::state::{Admission, DiskState};
use super::trace::{CallOutcome, DiskCall};

/// Free bytes of a disk without a set capacity.
const FREE_BYTES_DEFAULT: u64 = 1 << 40;

impl Disk for FaultDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let call = DiskCall::on_path(OpKind::Create, path);
        let file = change(self.state(), &call, |state, _| {
            state.need_descriptor()?;
            let file = state.create(path)?;
            state.file_mut(file)?.handles += 1;
            Ok(file)
        })?;
        Ok(Arc::new(FaultFile { disk: self.clone(), file }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        state.admit(&DiskCall::on_path(OpKind::Open, path))?;
        let file = state.lookup(path)?;
        state.need_descriptor()?;
        state.file_mut(file)?.handles += 1;
        Ok(Arc::new(FaultFile { disk: self.clone(), file }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.admit(&DiskCall::on_path(OpKind::List, dir))?;
        state.need_folder(dir)?;
        let inside = state.names.files().map(|(path, _)| path).filter(|path| folder(path) == dir);
        Ok(inside.map(|path| path.rsplit('/').next().unwrap_or(path).to_owned()).collect())
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        change(self.state(), &DiskCall::on_path(OpKind::MakeDir, dir), |state, _| state.make_dir(dir))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let call = DiskCall::on_path(OpKind::Rename, &format!("{from} {to}"));
        change(self.state(), &call, |state, _| state.rename(from, to))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let call = DiskCall::on_path(OpKind::Link, &format!("{from} {to}"));
        change(self.state(), &call, |state, _| state.link(from, to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        change(self.state(), &DiskCall::on_path(OpKind::Remove, path), |state, _| state.remove(path))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        change(self.state(), &DiskCall::on_path(OpKind::SyncDir, dir), |state, how| {
            state.need_folder(dir)?;
            if !matches!(how, Admission::Lie) {
                state.names.sync_dir(dir);
                state.prune();
            }
            Ok(())
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        change(self.state(), &DiskCall::on_path(OpKind::SyncAll, ""), |state, mut how| {
            let lies = state.rules.lies_of_sync_all();
            let mut reaches = || match &mut how {
                Admission::Cut(rng) => rng.chance(50),
                _ => true,
            };
            if !lies.iter().any(|(lie, _)| *lie == FaultEffect::LieAboutNames) && reaches() {
                state.names.sync_all();
            }
            for file in state.files.values_mut() {
                let about = |(lie, part): &(FaultEffect, String)| {
                    *lie == FaultEffect::LieAboutBytes && file.path.contains(part)
                };
                if !lies.iter().any(about) && reaches() {
                    file.sync();
                }
            }
            state.prune();
            Ok(())
        })
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let mut state = self.state();
        state.admit(&DiskCall::on_path(OpKind::FreeBytes, ""))?;
        Ok(state.capacity.map_or(FREE_BYTES_DEFAULT, |capacity| capacity.saturating_sub(state.used())))
    }

    fn free_files(&self) -> io::Result<u64> {
        Ok(self.state().free_files())
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        let mut state = self.state();
        state.admit(&DiskCall::on_path(OpKind::Lock, path))?;
        if !state.locks.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(LockGuard { disk: self.clone(), path: path.to_owned() }))
    }
}

/// Runs a changing operation under its faults. When the power goes during it, the dice say whether it runs at all.
///
/// The result must not be a handle: dropping one takes the lock that is held here.
pub(super) fn change<T>(
    mut state: MutexGuard<'_, DiskState>,
    call: &DiskCall,
    run: impl FnOnce(&mut DiskState, Admission) -> io::Result<T>,
) -> io::Result<T> {
    match state.admit(call)? {
        Admission::Cut(mut rng) => {
            if rng.chance(66) {
                run(&mut state, Admission::Cut(rng))?;
            }
            Err(io::Error::other("power cut"))
        }
        how => {
            let done = match how {
                Admission::Short(count) => CallOutcome::Short(count),
                Admission::Lie => CallOutcome::Lied,
                Admission::Go | Admission::Cut(_) => CallOutcome::Done,
            };
            let out = run(&mut state, how);
            state.note(call, if out.is_ok() { done } else { CallOutcome::Failed });
            out
        }
    }
}
