//! A directory that must not be opened is refused, with an error that says what to do.

use std::path::{Path, PathBuf};

use promethean_store::embedded::OpenError;
use promethean_store::port::{Batch, Keeping, RowReads, Store, Table};
use tempfile::TempDir;

use crate::suite::support::{
    Embedded, clock, commit, cursor, declare, doc, event, replace_state, row, row_text, try_open,
};

async fn check_refused(dir: &Path, code: &str, says: &str) -> OpenError {
    let error = try_open(dir, &clock()).await.expect_err("must not open");
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(says), "{error}");
    error
}

async fn filled(subject: &Embedded, range: std::ops::Range<u64>) {
    for n in range {
        let name = n.to_string();
        let batch = Batch::new().event(event("a", &name)).with(row(Table::Attempts, &name, &name));
        commit(&*subject.store, batch).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_in_use() {
    let subject = Embedded::new().await;
    check_refused(subject.dir.path(), "locked", "in use by another process").await;
    subject.store.close().await;
    try_open(subject.dir.path(), &clock()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_format_is_left_untouched() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("FORMAT"), "promethean-data 99\n").unwrap();
    check_refused(dir.path(), "format", "promethean-data 99").await;
    assert!(!dir.path().join("state").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_state_format() {
    let subject = Embedded::new().await;
    subject.store.close().await;
    {
        let db = fjall::Database::builder(subject.dir.path().join("state")).open().unwrap();
        let meta = db.keyspace("meta", fjall::KeyspaceCreateOptions::default).unwrap();
        meta.insert([0, 1], 99u64.to_be_bytes()).unwrap();
    }
    check_refused(subject.dir.path(), "format", "99").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_was_removed() {
    let subject = Embedded::new().await;
    filled(&subject, 0..20).await;
    subject.store.close().await;
    std::fs::remove_dir_all(subject.dir.path().join("state")).unwrap();
    check_refused(subject.dir.path(), "state_behind", "restore the `state` folder").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_newer_than_the_journal() {
    let subject = Embedded::new().await;
    filled(&subject, 0..20).await;
    let older = subject.image();
    filled(&subject, 20..30).await;
    let newer = subject.image();
    replace_state(older.path(), newer.path());
    check_refused(older.path(), "state_ahead", "restore both from one backup").await;
}

/// Derived batches are not in the journal, but their cursors say how far the log had come.
#[tokio::test(flavor = "multi_thread")]
async fn a_projection_newer_than_the_log() {
    let subject = Embedded::new().await;
    commit(&*subject.store, Batch::new().event(event("a", "0"))).await;
    let older = subject.image();
    commit(&*subject.store, Batch::new().event(event("a", "1"))).await;
    commit(&*subject.store, Batch::derived().with(cursor("p", "a", 2))).await;
    let newer = subject.image();
    replace_state(older.path(), newer.path());
    check_refused(older.path(), "state_ahead", "group `p` is at offset 2 of topic `a`, which ends at 1")
        .await;
}

/// For damage in any file of the state: the store refuses to open, or a read fails, or nothing is lost. The store never
/// serves wrong data.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_state_is_never_served() {
    let subject = Embedded::new().await;
    commit(&*subject.store, Batch::new().with(declare("c", Keeping::Durable))).await;
    for n in 0..200u64 {
        let value = format!("{n}-{}", "v".repeat(500));
        let batch = Batch::new().with(row(Table::Attempts, &n.to_string(), &value)).with(doc(
            "c",
            &format!("k{n}"),
            n,
        ));
        commit(&*subject.store, batch).await;
    }
    subject.store.close().await;
    let (mut refused, mut served) = (0, 0);
    for file in files(&subject.dir.path().join("state")) {
        let len = std::fs::metadata(&file).unwrap().len();
        for at in [0, len / 2, len.saturating_sub(1)] {
            let image = subject.image();
            let path = image.path().join(file.strip_prefix(subject.dir.path()).unwrap());
            let mut bytes = std::fs::read(&path).unwrap();
            let Some(byte) = bytes.get_mut(at as usize) else { continue };
            *byte ^= 0x55;
            std::fs::write(&path, bytes).unwrap();
            if serves_the_truth(&image).await { served += 1 } else { refused += 1 }
        }
    }
    assert!(refused > 0 && served > 0, "{refused} refused, {served} served");
}

async fn serves_the_truth(image: &TempDir) -> bool {
    let store = match try_open(image.path(), &clock()).await {
        Ok(store) => store,
        Err(error) => {
            assert!(["state_corrupt", "state_behind"].contains(&error.code()), "{}: {error}", error.code());
            return false;
        }
    };
    let mut truth = true;
    for n in 0..200u64 {
        match store.row(Table::Attempts, n.to_string().as_bytes()).await {
            Ok(value) => {
                let expected = format!("{n}-{}", "v".repeat(500));
                assert_eq!(value, Some(expected.into_bytes()), "row {n}");
            }
            Err(error) => {
                assert_eq!(error.code(), "storage_failed");
                truth = false;
            }
        }
    }
    if truth {
        assert_eq!(row_text(&store, Table::Attempts, "none").await, None);
    }
    store.close().await;
    truth
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}
