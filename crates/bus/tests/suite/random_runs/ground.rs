//! The store of a run: it can be closed, opened again, and lose power.

use std::sync::Arc;

use promethean_bus::{Bus, BusOptions};
use promethean_store::embedded::EmbeddedStore;
use promethean_store::memory::{self, MemoryStore};
use promethean_store::port::Store;
use promethean_testkit::{FaultDisk, ManualClock};
use tempfile::TempDir;

use crate::suite::bus::harness::small_files;

pub(super) struct Ground {
    pub(super) clock: Arc<ManualClock>,
    pub(super) store: Arc<dyn Store>,
    disk: Option<(FaultDisk, TempDir)>,
}

impl Ground {
    pub(super) fn memory() -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, memory::Options::default()));
        Self { clock, store, disk: None }
    }

    pub(super) async fn embedded() -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
        let store = open(&disk, &dir, &clock).await.unwrap();
        Self { clock, store, disk: Some((disk, dir)) }
    }

    pub(super) const fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    pub(super) async fn bus(&self) -> Bus {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        Bus::open(store, clock, BusOptions::default()).await.unwrap()
    }

    /// Cuts the power within the next operations of the disk.
    pub(super) fn arm(&self, operations: u64, seed: u64) {
        if let Some((disk, _)) = &self.disk {
            disk.stop_at(disk.ops() + 1 + operations, seed);
        }
    }

    pub(super) fn disarm(&self) {
        if let Some((disk, _)) = &self.disk {
            disk.clear_faults();
        }
    }

    /// Cuts the power of an embedded store and opens it again.
    pub(super) async fn crash(&mut self, seed: u64) {
        let Some((disk, dir)) = self.disk.take() else { return };
        let disk_after = disk.crash(seed);
        self.store.close().await;
        self.store = open(&disk_after, &dir, &self.clock).await.unwrap();
        self.disk = Some((disk_after, dir));
    }

    /// Closes the store and opens it again. The power may have been cut before, or is cut during this call.
    pub(super) async fn reopen(&mut self, seed: u64) {
        let Some((disk, dir)) = self.disk.take() else { return };
        self.store.close().await;
        let opened = open(&disk, &dir, &self.clock).await;
        self.disk = Some((disk, dir));
        match opened {
            Some(store) => self.store = store,
            None => self.crash(seed).await,
        }
    }
}

async fn open(disk: &FaultDisk, dir: &TempDir, clock: &Arc<ManualClock>) -> Option<Arc<dyn Store>> {
    let (disk, clock) = (Arc::new(disk.clone()), Arc::clone(clock));
    let opened = EmbeddedStore::open_on(disk, dir.path(), clock, small_files()).await;
    opened.ok().map(|(store, _)| Arc::new(store) as _)
}
