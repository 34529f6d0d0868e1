//! A disk that fails under a running store.

use std::sync::Arc;

use promethean_model::Offset;
use promethean_store::embedded::EmbeddedStore;
use promethean_store::port::{Batch, RowReads, Store, Table, Watch};
use promethean_testkit::{DiskFailure, FaultDisk, ManualClock, Matcher, OpKind};
use tempfile::TempDir;

use crate::suite::support::{clock, commit, event, row, row_text, small, topic};

async fn open(disk: &FaultDisk, dir: &TempDir) -> EmbeddedStore {
    let mut options = small();
    options.log.journal_file_bytes = 256 << 10;
    let clock: Arc<ManualClock> = clock();
    EmbeddedStore::open_on(Arc::new(disk.clone()), dir.path(), clock, options).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_stops_all_writing() {
    let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
    let store = open(&disk, &dir).await;
    commit(&store, Batch::new().event(event("a", "0")).with(row(Table::Attempts, "r", "0"))).await;
    disk.fail_next(Matcher::op(OpKind::Sync).path("journal"), DiskFailure::EIO);
    let batch = Batch::new().event(event("a", "1")).with(row(Table::Attempts, "r", "1"));
    let error = store.commit(batch).await.unwrap_err();
    assert_eq!((error.code(), error.has_no_side_effects()), ("unknown_outcome", false), "{error}");
    for batch in [
        Batch::new().event(event("a", "2")),
        Batch::new().with(row(Table::Attempts, "r", "2")),
        Batch::derived().with(row(Table::Attempts, "r", "2")),
    ] {
        let error = store.commit(batch).await.unwrap_err();
        assert_eq!((error.code(), error.has_no_side_effects()), ("poisoned", true), "{error}");
    }
    assert!(store.health().refusing.is_some());
    // The store serves what it acknowledged, and nothing else.
    assert_eq!(row_text(&store, Table::Attempts, "r").await.as_deref(), Some("0"));
    assert_eq!(store.durable_end(&topic("a")), Offset(1));
    store.close().await;
    let store = open(&disk.crash(1), &dir).await;
    assert!(["0", "1"].contains(&row_text(&store, Table::Attempts, "r").await.unwrap().as_str()));
    commit(&store, Batch::new().event(event("a", "1"))).await;
    assert_eq!(store.durable_end(&topic("a")), Offset(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_events_and_takes_acks() {
    let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
    disk.set_capacity(Some(8 << 20));
    let mut options = small();
    options.log.journal_file_bytes = 256 << 10;
    options.log.reserve_bytes = 4 << 20;
    let opened = EmbeddedStore::open_on(Arc::new(disk.clone()), dir.path(), clock(), options).await;
    let store = opened.unwrap().0;
    let mut accepted = 0;
    let error = loop {
        let mut big = event("a", &accepted.to_string());
        big.payload = format!("\"{}\"", "x".repeat(100_000));
        match store.commit(Batch::new().event(big)).await {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 1000, "never full");
    };
    assert_eq!((error.code(), error.is_retryable()), ("storage_full", true), "{error}");
    assert!(store.health().refusing.is_some());
    commit(&store, Batch::new().with(row(Table::Attempts, "ack", "1"))).await;
    assert!(store.row(Table::Attempts, b"ack").await.unwrap().is_some());
    assert_eq!(store.durable_end(&topic("a")), Offset(accepted));
}
