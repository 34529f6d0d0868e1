//! A full disk, row 9 of the fault model: what cannot be stored is refused in time, health says so, and writing resumes
//! without a restart when there is space again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use promethean_model::{Offset, SystemClock};
use promethean_store::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean_store::port::{Batch, EventReads, Keeping, PageLimit, RowReads, Store, Table, TopicOp};
use promethean_testkit::{FaultDisk, soon, until};

use crate::suite::support::{clock, commit, cursor, declare, doc, event, row, small, topic};

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

/// Topics are deleted while the disk becomes full. Each deletion is refused or carried out, and none leaves a note, which
/// would keep cursors of the topic from moving.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[expect(clippy::disallowed_methods, reason = "the tasks are joined below")]
async fn row_9_deletions_are_refused_or_carried_out() {
    const ROUNDS: u64 = 8;
    const TOPICS: u64 = 6;
    let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
    let mut options = small();
    options.log.maintenance_interval_ms = 1;
    options.log.checkpoint_bytes = 1 << 10;
    let opened = EmbeddedStore::open_on(Arc::new(disk.clone()), dir.path(), clock(), options).await;
    let store = Arc::new(opened.unwrap().0);
    let (mut made, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        for n in 0..TOPICS {
            let mut event = event(&format!("t{n}"), &format!("{round}"));
            event.payload = format!("\"{}\"", "x".repeat(2000));
            commit(&*store, Batch::new().event(event)).await;
        }
        let deletions: Vec<_> = (0..TOPICS)
            .map(|n| {
                let store = Arc::clone(&store);
                let batch = Batch::new().with(TopicOp::Delete(topic(&format!("t{n}"))));
                tokio::spawn(async move { store.commit(batch).await })
            })
            .collect();
        disk.set_files_max(Some(disk.files().len() as u64));
        until("the disk is full, or all is deleted", async || {
            store.health().refusing.is_some() || deletions.iter().all(|deletion| deletion.is_finished())
        })
        .await;
        disk.set_files_max(None);
        for (n, deletion) in deletions.into_iter().enumerate() {
            let name = format!("t{n}");
            match soon("a deletion", deletion).await.unwrap() {
                Ok(_) => made += 1,
                Err(error) => {
                    assert_eq!(error.code(), "storage_full", "{error}");
                    refused += 1;
                    continue;
                }
            }
            assert!(store.topic_info(&topic(&name)).await.unwrap().is_none(), "{name} is deleted");
        }
        until("the disk has room", async || store.health().refusing.is_none()).await;
        for n in 0..TOPICS {
            let name = format!("t{n}");
            commit(&*store, Batch::new().event(event(&name, &format!("{round} again")))).await;
            commit(&*store, Batch::new().with(cursor("g", &name, 1))).await;
            commit(&*store, Batch::new().with(TopicOp::Delete(topic(&name)))).await;
        }
    }
    assert!(made > 0, "{made} made, {refused} refused");
    a_full_disk_refuses_a_deletion(&store, &disk).await;
    soon("the close", store.close()).await;
}

/// A disk that is full before the deletion refuses it for certain.
async fn a_full_disk_refuses_a_deletion(store: &EmbeddedStore, disk: &FaultDisk) {
    let large = |n: u64| {
        let mut event = event("late", &format!("late {n}"));
        event.payload = format!("\"{}\"", "x".repeat(2000));
        Batch::new().event(event)
    };
    commit(store, large(0)).await;
    disk.set_files_max(Some(disk.files().len() as u64));
    let mut published = 1;
    while store.commit(large(published)).await.is_ok() {
        published += 1;
        assert!(published < 10_000, "the disk does not become full");
    }
    let deletion = || Batch::new().with(TopicOp::Delete(topic("late")));
    let error = soon("a refusal", store.commit(deletion())).await.expect_err("the disk is full");
    assert_eq!(error.code(), "storage_full", "{error}");
    assert!(store.topic_info(&topic("late")).await.unwrap().is_some(), "a refused deletion deletes nothing");
    disk.set_files_max(None);
    until("the disk has room", async || store.health().refusing.is_none()).await;
    commit(store, deletion()).await;
    assert!(store.topic_info(&topic("late")).await.unwrap().is_none());
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

fn tiny() -> EmbeddedOptions {
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

/// Another process takes all that is in reserve, and the state engine finds no space for its own journal. The engine
/// cannot go on, so health asks for a restart, and the restart has everything that was acknowledged.
async fn engine_without_space() {
    let dir = tempfile::tempdir().unwrap();
    let _tmpfs = Tmpfs::mount(dir.path(), 1000);
    let disk = FaultDisk::new();
    let opened = EmbeddedStore::open_on(Arc::new(disk.clone()), dir.path(), clock(), tiny()).await;
    let store = opened.unwrap().0;
    commit(&store, Batch::new().with(row(Table::Attempts, "before", "1"))).await;
    let ballast = dir.path().join("ballast");
    // The copy ends when there is no space left.
    std::io::copy(&mut std::io::repeat(1), &mut std::fs::File::create(&ballast).unwrap()).unwrap_err();
    let mut acknowledged = 0;
    let error = loop {
        let value = format!("{acknowledged:0>2000}");
        let batch = Batch::new().with(row(Table::Attempts, &format!("r{acknowledged}"), &value));
        match soon("a change of state", store.commit(batch)).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 100_000, "the engine never runs out of space");
    };
    assert_eq!(error.code(), "unknown_outcome", "{error}");
    let refused = store.commit(Batch::new().event(event("a", "1"))).await.unwrap_err();
    assert_eq!(refused.code(), "poisoned", "{refused}");
    let why = store.health().refusing.unwrap();
    assert!(why.contains("state") && why.contains("restart the server"), "{why}");
    std::fs::remove_file(&ballast).unwrap();
    soon("the close", store.close()).await;
    drop(store);
    let opened = EmbeddedStore::open_on(Arc::new(disk), dir.path(), clock(), tiny()).await;
    let store = opened.unwrap().0;
    for n in 0..acknowledged {
        let key = format!("r{n}");
        assert!(store.row(Table::Attempts, key.as_bytes()).await.unwrap().is_some(), "{key}");
    }
    assert_eq!(store.health().refusing, None);
    commit(&store, Batch::new().event(event("a", "1"))).await;
    store.close().await;
}

#[test]
fn row_9_a_state_engine_without_space_asks_for_a_restart() {
    if std::env::var_os(INSIDE).is_none() {
        return with_mounts("row_9_a_state_engine_without_space_asks_for_a_restart");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(engine_without_space());
}
