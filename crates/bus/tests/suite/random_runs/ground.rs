//! The store of a run: it can be closed, opened again, and lose power.

use std::path::PathBuf;
use std::sync::Arc;

use promethean_bus::{Bus, BusOptions};
use promethean_model::Clock as _;
use promethean_store::embedded::EmbeddedStore;
use promethean_store::memory::{self, MemoryStore};
use promethean_store::port::Store;
use promethean_testkit::{FaultDisk, FaultStore, ManualClock, SyncedFolder};
use tempfile::TempDir;

use crate::suite::bus::harness::{copy_folder, small_files};

pub(super) struct Ground {
    pub(super) clock: Arc<ManualClock>,
    pub(super) store: Arc<dyn Store>,
    /// The same store, to make it refuse writes.
    pub(super) faults: Arc<FaultStore>,
    embedded: Option<Arc<EmbeddedStore>>,
    /// Whether a power cut is due, or has come.
    pub(super) armed: bool,
    disk: Option<(FaultDisk, TempDir)>,
    /// The state engine's folder when it was synced last, as far as the run knows.
    synced: Option<SyncedFolder>,
    /// How many power cuts have torn the state engine's journal.
    pub(super) torn: u64,
}

impl Ground {
    pub(super) fn memory() -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let store = MemoryStore::new(Arc::clone(&clock) as _, memory::MemoryOptions::default());
        let faults = Arc::new(FaultStore::new(Arc::new(store)));
        Self {
            clock,
            store: Arc::clone(&faults) as _,
            faults,
            embedded: None,
            armed: false,
            disk: None,
            synced: None,
            torn: 0,
        }
    }

    pub(super) async fn embedded() -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
        let store = open(&disk, &dir, &clock).await.unwrap();
        let faults = Arc::new(FaultStore::new(Arc::clone(&store) as _));
        let embedded = Some(store);
        Self {
            clock,
            store: Arc::clone(&faults) as _,
            faults,
            embedded,
            armed: false,
            synced: Some(SyncedFolder::of(&state_of(&dir))),
            torn: 0,
            disk: Some((disk, dir)),
        }
    }

    fn set_store(&mut self, store: Arc<EmbeddedStore>) {
        self.faults = Arc::new(FaultStore::new(Arc::clone(&store) as _));
        self.store = Arc::clone(&self.faults) as _;
        self.embedded = Some(store);
    }

    /// Applies retention and makes a checkpoint. A disk without power cannot.
    pub(super) async fn maintain(&mut self) {
        match &self.embedded {
            Some(store) => {
                drop((store.maintain().await, store.checkpoint().await));
                self.remember_state();
            }
            None => drop(self.store.sweep(self.clock.wall_ms()).await.unwrap()),
        }
    }

    pub(super) const fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    pub(super) async fn bus(&self) -> Bus {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        Bus::open(store, clock, BusOptions::default()).await.unwrap()
    }

    /// Cuts the power within the next operations of the disk.
    pub(super) fn arm(&mut self, operations: u64, seed: u64) {
        if let Some((disk, _)) = &self.disk {
            self.armed = true;
            disk.stop_at(disk.ops() + 1 + operations, seed);
        }
    }

    fn remember_state(&mut self) {
        self.synced = self.disk.as_ref().map(|(_, dir)| SyncedFolder::of(&state_of(dir)));
    }

    /// Leaves no file descriptor for further files, or gives all of them back.
    pub(super) fn lack_descriptors(&self, lacks: bool) {
        if let Some((disk, _)) = &self.disk {
            disk.set_descriptors_max(lacks.then(|| disk.open_files()));
        }
    }

    pub(super) fn disarm(&mut self) {
        self.armed = false;
        if let Some((disk, _)) = &self.disk {
            disk.clear_faults();
        }
    }

    /// Cuts the power of an embedded store and opens it again. The state engine loses what it has not synced.
    pub(super) async fn crash(&mut self, seed: u64) {
        let Some((disk, dir)) = self.disk.take() else { return };
        let disk_after = disk.crash(seed);
        self.armed = false;
        // Closing writes to the folder, which a machine without power cannot.
        let cut = tempfile::tempdir().unwrap();
        copy_folder(&state_of(&dir), cut.path());
        self.store.close().await;
        std::fs::remove_dir_all(state_of(&dir)).unwrap();
        copy_folder(cut.path(), &state_of(&dir));
        let synced = self.synced.take();
        self.torn += u64::from(synced.is_some_and(|synced| synced.tear(&state_of(&dir), seed)));
        let store = open(&disk_after, &dir, &self.clock).await.unwrap();
        self.set_store(store);
        self.disk = Some((disk_after, dir));
        self.remember_state();
    }

    /// Closes the store and opens it again. The power may have been cut before, or is cut during this call.
    pub(super) async fn reopen(&mut self, seed: u64) {
        let Some((disk, dir)) = self.disk.take() else { return };
        self.store.close().await;
        let opened = open(&disk, &dir, &self.clock).await;
        self.disk = Some((disk, dir));
        match opened {
            Some(store) => {
                self.set_store(store);
                self.remember_state();
            }
            None => self.crash(seed).await,
        }
    }
}

/// The folder of the state engine.
fn state_of(dir: &TempDir) -> PathBuf {
    dir.path().join("state")
}

async fn open(disk: &FaultDisk, dir: &TempDir, clock: &Arc<ManualClock>) -> Option<Arc<EmbeddedStore>> {
    let (disk, clock) = (Arc::new(disk.clone()), Arc::clone(clock));
    let mut options = small_files();
    // A batch without room is refused soon, so that a lack of descriptors takes little time.
    options.log.room_wait_ms = 20;
    let opened = EmbeddedStore::open_on(disk, dir.path(), clock, options).await;
    opened.ok().map(|(store, _)| Arc::new(store))
}
