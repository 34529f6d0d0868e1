//! A process without descriptors, row 11 of the fault model: the store keeps serving and goes on when they return.

use std::fs::File;
use std::process::Command;
use std::sync::Arc;

use promethean_model::{Offset, SystemClock};
use promethean_store::embedded::EmbeddedStore;
use promethean_store::port::{Batch, EventReads, PageLimit, Store, Table, Watch};
use promethean_testkit::{DiskFailure, FaultDisk, Matcher, OpKind, soon, until};

use crate::suite::support::{clock, commit, event, row, small, topic};

/// Set for the process that runs with few descriptors.
const INSIDE: &str = "PROMETHEAN_FEW_DESCRIPTORS";
const NAME: &str = "row_11_a_process_without_descriptors_keeps_publishing_or_says_that_it_cannot";
const LIMIT: u32 = 128;

/// Takes all descriptors that are left, as connections do.
fn take_all() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

async fn publish_without_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = small();
    options.log.journal_file_bytes = 64 << 10;
    options.log.checkpoint_bytes = 64 << 10;
    options.log.maintenance_interval_ms = 10;
    options.log.room_wait_ms = 100;
    let clock = Arc::new(SystemClock::new());
    let store = EmbeddedStore::open(dir.path(), clock.clone(), options.clone()).await.unwrap().0;
    let mut taken = take_all();
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for n in 0..2000 {
        // Whatever the log closes or gives up is taken as well.
        taken.extend(take_all());
        let mut event = event(&format!("topic{}", n % 40), &n.to_string());
        event.payload = format!("\"{}\"", "x".repeat(2000));
        match soon("a publish", store.commit(Batch::new().event(event))).await {
            Ok(_) => accepted.push(n),
            Err(error) => {
                assert_eq!((error.code(), error.is_retryable()), ("busy", true), "{error}");
                refused += 1;
            }
        }
        assert_eq!(store.health().refusing, None, "nothing stops for good");
        if refused > 20 {
            break;
        }
    }
    assert!(refused > 20, "the shortage was met: {} accepted", accepted.len());
    assert!(store.health().degraded.is_some_and(|why| why.contains("descriptor")), "health says so");
    drop(taken);
    until("publishing goes on", async || store.commit(Batch::new().event(event("after", "1"))).await.is_ok())
        .await;
    until("health is well again", async || store.health().degraded.is_none()).await;
    let ends: u64 = (0..40).map(|n| store.durable_end(&topic(&format!("topic{n}"))).get()).sum();
    assert_eq!(ends, accepted.len() as u64);
    let page = store.read(&topic("topic0"), Offset(0), PageLimit::default()).await.unwrap();
    assert!(!page.events.is_empty());
    soon("the close", store.close()).await;
    let store = EmbeddedStore::open(dir.path(), clock, options).await.unwrap().0;
    let ends: u64 = (0..40).map(|n| store.durable_end(&topic(&format!("topic{n}"))).get()).sum();
    assert_eq!(ends, accepted.len() as u64);
    assert!(store.verify(|_, _| {}).await.unwrap().is_clean());
    store.close().await;
}

/// A retry is recognised by the event that its first try wrote. If that event cannot be read for lack of descriptors, the
/// retry waits, is refused as busy, and succeeds later.
#[tokio::test(flavor = "multi_thread")]
async fn row_11_a_retry_without_descriptors_is_busy() {
    let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
    let mut options = small();
    options.log.room_wait_ms = 100;
    options.log.open_files = 8;
    let reopen = async || {
        let disk = Arc::new(disk.clone());
        EmbeddedStore::open_on(disk, dir.path(), clock(), options.clone()).await.unwrap().0
    };
    let store = reopen().await;
    let retry =
        || Batch { expected_ends: vec![(topic("a"), Offset(0))], ..Batch::new() }.event(event("a", "1"));
    commit(&store, retry()).await;
    let others: Vec<String> = (0..20).map(|n| format!("other{n}")).collect();
    for other in &others {
        commit(&store, Batch::new().event(event(other, "1"))).await;
    }
    store.checkpoint().await.unwrap();
    store.close().await;
    let store = reopen().await;
    // The log keeps few files open, so after these reads it has closed the segment of the event.
    for other in &others {
        store.read(&topic(other), Offset(0), PageLimit::default()).await.unwrap();
    }
    for failure in [DiskFailure::EMFILE, DiskFailure::ENFILE] {
        disk.fail_from(Matcher::op(OpKind::Open).path("segments"), failure);
        for batch in [retry(), retry().with(row(Table::Attempts, "r", "1"))] {
            let error = soon("a retry", store.commit(batch)).await.unwrap_err();
            assert_eq!((error.code(), error.is_retryable()), ("busy", true), "{error}");
            assert!(error.to_string().contains("descriptors"), "{error}");
        }
        disk.clear_faults();
    }
    let receipt = store.commit(retry()).await.unwrap();
    assert!(receipt.events.iter().all(|placed| placed.duplicate && placed.offset == Offset(0)));
    store.close().await;
}

#[test]
fn row_11_a_process_without_descriptors_keeps_publishing_or_says_that_it_cannot() {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(publish_without_descriptors());
    }
    let name = format!("{}::{NAME}", module_path!().split_once("::").unwrap().1);
    let script = format!("ulimit -n {LIMIT} && exec \"$0\" --exact \"$1\" --nocapture --test-threads=1");
    let exe = std::env::current_exe().unwrap();
    let output =
        Command::new("sh").arg("-c").arg(script).arg(exe).arg(name).env(INSIDE, "1").output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
