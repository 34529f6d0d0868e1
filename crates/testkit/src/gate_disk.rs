//! A disk whose syncs or reads wait at a gate, for as long as a test wants.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use promethean_log::disk::{Disk, DiskFile};
use promethean_model::IgnorePoison;

/// Holds back the syncs, or the reads, of files whose path contains a given part, while it is closed.
#[derive(Debug, Clone)]
pub struct GateDisk {
    inner: Arc<dyn Disk>,
    gate: Arc<DiskGate>,
}

#[derive(Debug)]
struct DiskGate {
    path: String,
    reads: bool,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    closed: bool,
    waiting: usize,
}

impl GateDisk {
    /// An open gate before this disk, for files whose path contains `path`.
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>, path: &str) -> Self {
        Self::with(inner, path, false)
    }

    /// The same for reads instead of syncs.
    #[must_use]
    pub fn of_reads(inner: Arc<dyn Disk>, path: &str) -> Self {
        Self::with(inner, path, true)
    }

    fn with(inner: Arc<dyn Disk>, path: &str, reads: bool) -> Self {
        let gate =
            DiskGate { path: path.to_owned(), reads, state: Mutex::default(), changed: Condvar::new() };
        Self { inner, gate: Arc::new(gate) }
    }

    /// Closes the gate: syncs or reads from now on wait.
    pub fn close(&self) {
        self.gate.state().closed = true;
    }

    /// Opens the gate.
    pub fn open_gate(&self) {
        self.gate.state().closed = false;
        self.gate.changed.notify_all();
    }

    /// Waits until an operation waits at the gate.
    pub fn wait_until_stuck(&self) {
        let mut state = self.gate.state();
        while state.waiting == 0 {
            state = self.gate.changed.wait(state).ignore_poison();
        }
    }

    fn wrap(&self, path: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        if path.contains(&self.gate.path) {
            Arc::new(GateFile { inner: file, gate: Arc::clone(&self.gate) })
        } else {
            file
        }
    }
}

impl DiskGate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().ignore_poison()
    }

    fn pass(&self, reading: bool) {
        if reading != self.reads {
            return;
        }
        let mut state = self.state();
        state.waiting += 1;
        self.changed.notify_all();
        while state.closed {
            state = self.changed.wait(state).ignore_poison();
        }
        state.waiting -= 1;
    }
}

impl Disk for GateDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(path, self.inner.create(path)?))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.wrap(path, self.inner.open(path)?))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn make_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.make_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.link(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.inner.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.inner.free_bytes()
    }

    fn free_files(&self) -> io::Result<u64> {
        self.inner.free_files()
    }

    fn restore_reserve(&self) -> bool {
        self.inner.restore_reserve()
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn Send + Sync>> {
        self.inner.lock(path)
    }
}

#[derive(Debug)]
struct GateFile {
    inner: Arc<dyn DiskFile>,
    gate: Arc<DiskGate>,
}

impl DiskFile for GateFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        self.gate.pass(true);
        self.inner.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        self.inner.write_at(buf, at)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.gate.pass(false);
        self.inner.sync()
    }
}
