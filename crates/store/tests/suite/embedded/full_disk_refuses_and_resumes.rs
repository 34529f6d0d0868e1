//! A full disk, row 9 of the fault model: what cannot be stored is refused in time, health says so, and writing resumes
//! without a restart when there is space again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use promethean_model::{Offset, SystemClock};
use promethean_store::embedded::{EmbeddedStore, Options};
use promethean_store::port::{Batch, EventReads, Keeping, PageLimit, Store, Table};
use promethean_testkit::{FaultDisk, soon, until};

use crate::suite::support::{clock, commit, declare, doc, event, row, small, topic};

#[tokio::test(flavor = "multi_thread")]
async fn row_9_derived_batches_keep_out_of_the_reserve() {
    let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
    disk.set_capacity(Some(16 << 20));
    let mut options = small();
    options.log.journal_file_bytes = 256 << 10;
    options.log.reserve_bytes = 4 << 20;
    let opened = EmbeddedStore::open_on(Arc::new(disk.clone()), dir.path(), clock(), options).await;
    let store = opened.unwrap().0;
    commit(&store, Batch::derived().with(declare("d", Keeping::Derived))).await;
    commit(&store, Batch::derived().with(doc("d", "1", 1))).await;
    disk.set_capacity(Some(4 << 20));
    let error = store.commit(Batch::derived().with(doc("d", "2", 2))).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable()), ("storage_full", true), "{error}");
    assert!(store.health().refusing.is_some());
    commit(&store, Batch::new().with(row(Table::Attempts, "ack", "1"))).await;
    assert!(!store.sweep(0).await.unwrap(), "the sweep makes space, so it may use the reserve");
    disk.set_capacity(Some(16 << 20));
    commit(&store, Batch::derived().with(doc("d", "2", 2))).await;
    assert_eq!(store.health().refusing, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_9_state_is_refused_after_a_write_found_no_space_and_goes_on_afterwards() {
    let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
    let mut options = small();
    options.log.maintenance_interval_ms = 10;
    options.log.checkpoint_bytes = 16 << 10;
    let opened = EmbeddedStore::open_on(Arc::new(disk.clone()), dir.path(), clock(), options).await;
    let store = opened.unwrap().0;
    commit(&store, Batch::derived().with(declare("d", Keeping::Derived))).await;
    disk.set_files_max(Some(disk.files().len() as u64));
    let mut accepted = 0;
    let error = loop {
        let mut event = event("a", &accepted.to_string());
        event.payload = format!("\"{}\"", "x".repeat(5000));
        match soon("a publish", store.commit(Batch::new().event(event))).await {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 10_000, "never full");
    };
    assert_eq!(error.code(), "storage_full", "{error}");
    for batch in [
        Batch::new().with(row(Table::Attempts, "ack", "1")),
        Batch::derived().with(doc("d", "1", 1)),
        Batch::new().event(event("b", "1")),
    ] {
        let error = soon("a batch", store.commit(batch)).await.unwrap_err();
        assert_eq!(error.code(), "storage_full", "{error}");
    }
    assert!(store.health().refusing.is_some());
    let page = store.read(&topic("a"), Offset(0), PageLimit::default()).await.unwrap();
    assert!(!page.events.is_empty(), "reads go on");
    disk.set_files_max(None);
    until("writing resumes", async || store.health().refusing.is_none()).await;
    commit(&store, Batch::new().with(row(Table::Attempts, "ack", "1"))).await;
    commit(&store, Batch::derived().with(doc("d", "1", 1))).await;
    commit(&store, Batch::new().event(event("b", "1"))).await;
}

/// Set for the process that runs with mounts of its own.
const INSIDE: &str = "PROMETHEAN_TMPFS_INSIDE";

/// Runs a test of this file in a process that may mount. A machine without `unshare`, and without the right to use it,
/// cannot run it; on the machine of the project that is a failure.
fn with_mounts(test: &str) {
    let exe = std::env::current_exe().unwrap();
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let possible = Command::new("unshare").args(["-Urm", "true"]).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "`unshare -Urm` must work where all tests must run");
        eprintln!("{test} was not run: `unshare -Urm` does not work here");
        return;
    }
    let output = Command::new("unshare")
        .arg("-Urm")
        .arg(exe)
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// A small file system in memory, which ends with the process.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(dir: &Path, inodes: u64) -> Self {
        let tmpfs = Self(dir.to_owned());
        tmpfs.run(&["-t", "tmpfs", "-o", &format!("size=32m,nr_inodes={inodes}"), "tmpfs"]);
        tmpfs
    }

    fn resize(&self, inodes: u64) {
        self.run(&["-o", &format!("remount,nr_inodes={inodes}")]);
    }

    fn run(&self, args: &[&str]) {
        let status = Command::new("mount").args(args).arg(&self.0).status().unwrap();
        assert!(status.success(), "mount {args:?}");
    }
}

fn tiny() -> Options {
    let mut options = small();
    options.log.journal_file_bytes = 256 << 10;
    options.log.checkpoint_bytes = 32 << 10;
    options.log.maintenance_interval_ms = 20;
    options
}

async fn inodes_run_out_and_return(reserve_files: u64) {
    const INODES: u64 = 120;
    let dir = tempfile::tempdir().unwrap();
    let tmpfs = Tmpfs::mount(dir.path(), INODES);
    let mut options = tiny();
    options.log.reserve_files = reserve_files;
    let opened = EmbeddedStore::open(dir.path(), Arc::new(SystemClock::new()), options.clone()).await;
    let store = opened.unwrap().0;
    let mut accepted = Vec::new();
    let error = loop {
        // Each topic has files of its own.
        let name = format!("topic{}", accepted.len());
        let mut event = event(&name, "1");
        event.payload = format!("\"{}\"", "x".repeat(3000));
        match soon("a publish", store.commit(Batch::new().event(event))).await {
            Ok(_) => accepted.push(name),
            Err(error) => break error,
        }
        assert!(accepted.len() < 2000, "never full");
    };
    assert_eq!(error.code(), "storage_full", "{error}");
    assert!(store.health().refusing.is_some(), "health says so");
    for _ in 0..20 {
        let refused = soon("an answer", store.commit(Batch::new().event(event("more", "1")))).await;
        assert_eq!(refused.unwrap_err().code(), "storage_full");
    }
    let first = topic(&accepted[0]);
    assert_eq!(store.read(&first, Offset(0), PageLimit::default()).await.unwrap().events.len(), 1);
    tmpfs.resize(4 * INODES + 4 * accepted.len() as u64);
    until("publishing resumes", async || store.commit(Batch::new().event(event("more", "1"))).await.is_ok())
        .await;
    assert_eq!(store.health().refusing, None);
    soon("the close", store.close()).await;
    let store = EmbeddedStore::open(dir.path(), Arc::new(SystemClock::new()), options).await.unwrap().0;
    for name in &accepted {
        let page = store.read(&topic(name), Offset(0), PageLimit::default()).await.unwrap();
        assert_eq!(page.events.len(), 1, "{name}");
    }
    assert!(store.verify(|_, _| {}).await.unwrap().is_clean());
    store.close().await;
}

#[test]
fn row_9_a_file_system_without_inodes_refuses_publishing_in_time() {
    if std::env::var_os(INSIDE).is_none() {
        return with_mounts("row_9_a_file_system_without_inodes_refuses_publishing_in_time");
    }
    for reserve_files in [0, 40] {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(inodes_run_out_and_return(reserve_files));
    }
}
