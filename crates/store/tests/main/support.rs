//! An embedded store in a folder of its own.

use std::sync::Arc;

use promethean_store::embedded::{EmbeddedStore, Options};
use promethean_testkit::ManualClock;
use tempfile::TempDir;

pub(crate) struct Embedded {
    pub(crate) store: Arc<EmbeddedStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) dir: TempDir,
}

impl Embedded {
    pub(crate) async fn open(dir: TempDir, clock: Arc<ManualClock>) -> Self {
        let opened = EmbeddedStore::open(dir.path(), Arc::<ManualClock>::clone(&clock), small()).await;
        let (store, _) = opened.unwrap();
        Self { store: Arc::new(store), clock, dir }
    }
}

/// Small files, so that tests meet many of them.
pub(crate) fn small() -> Options {
    let log = promethean_log::Options {
        journal_file_bytes: 1 << 20,
        checkpoint_bytes: 2 << 20,
        segment_bytes: 8 << 10,
        reserve_bytes: 0,
        ..promethean_log::Options::default()
    };
    Options { log, ..Options::default() }
}
