//! The `DiskFile` trait, and the guard of the directory's lock.

use std::io;

use promethean_log::disk::DiskFile;

use super::disk::FaultDisk;
use super::faults::{DiskFailure, OpKind};
use super::state::{Admission, DiskState};
use super::trace::DiskCall;
use super::volume::change;

/// An open file; it goes on working when its name is removed, as files do.
#[derive(Debug)]
pub(super) struct FaultFile {
    pub(super) disk: FaultDisk,
    pub(super) file: u64,
}

impl FaultFile {
    fn call(&self, state: &DiskState, kind: OpKind, at: u64, len: u64) -> DiskCall {
        let path = state.files.get(&self.file).map_or_else(|| "".into(), |file| file.path.clone());
        DiskCall { kind, path, file: self.file, at, len }
    }
}

impl DiskFile for FaultFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        let call = self.call(&state, OpKind::Read, at, buf.len() as u64);
        state.admit(&call)?;
        Ok(state.file(self.file)?.read(buf, at))
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let call = self.call(&state, OpKind::Write, at, buf.len() as u64);
        change(state, &call, |state, how| {
            let wanted = match how {
                Admission::Short(count) => count.min(call.len),
                Admission::Cut(mut rng) => rng.range(0..2 * call.len + 2).min(call.len),
                Admission::Go | Admission::Lie => call.len,
            };
            let limit = state.limit(self.file, at.saturating_add(wanted))?;
            let count = wanted.min(limit.saturating_sub(at));
            if count == 0 && wanted > 0 {
                return Err(DiskFailure::ENOSPC.error());
            }
            state.file_mut(self.file)?.write(&buf[..count as usize], at);
            Ok(count as usize)
        })
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        let call = self.call(&state, OpKind::Len, 0, 0);
        state.admit(&call)?;
        Ok(state.file(self.file)?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let state = self.disk.state();
        let call = self.call(&state, OpKind::SetLen, 0, len);
        change(state, &call, |state, _| {
            if state.limit(self.file, len)? < len {
                return Err(DiskFailure::ENOSPC.error());
            }
            state.file_mut(self.file)?.set_len(len);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        let state = self.disk.state();
        let call = self.call(&state, OpKind::Sync, 0, 0);
        change(state, &call, |state, how| {
            let file = state.file_mut(self.file)?;
            if !matches!(how, Admission::Lie) {
                file.sync();
            }
            Ok(())
        })
    }
}

impl Drop for FaultFile {
    fn drop(&mut self) {
        if let Some(file) = self.disk.state().files.get_mut(&self.file) {
            file.handles = file.handles.saturating_sub(1);
        }
    }
}

/// Gives the lock back when dropped.
pub(super) struct LockGuard {
    pub(super) disk: FaultDisk,
    pub(super) path: String,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.disk.state().locks.remove(&self.path);
    }
}
