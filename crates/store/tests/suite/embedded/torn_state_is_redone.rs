//! A power cut tears what the state engine has not synced. The store opens, redo brings durable batches back, and derived
//! batches are there up to one of them. Damage to what was synced is refused, and the file stays as it is.

use std::path::Path;

use promethean_store::embedded::EmbeddedStore;
use promethean_store::port::{Batch, CursorReads, Keeping, Store, Table};
use promethean_testkit::{SyncedFolder, seeds};

use crate::suite::support::{
    Embedded, clock, commit, copy_dir, cursor, declare, doc, event, row, row_text, topic, try_open,
};

const BEFORE: u64 = 20;
const STEPS: u64 = 50;

/// The value of a row, longer than a few sectors.
fn value(n: u64) -> String {
    format!("{n} {}", "x".repeat((n as usize % 5) * 900))
}

async fn step(store: &dyn Store, n: u64) {
    let name = n.to_string();
    let durable = Batch::new()
        .event(event("a", &name))
        .with(row(Table::Attempts, &name, &value(n)))
        .with(doc("durable", &format!("k{}", n % 7), n));
    commit(store, durable).await;
    let derived = Batch::derived().with(cursor("p", "a", n)).with(row(Table::Projectors, "last", &name));
    commit(store, derived).await;
}

async fn started() -> Embedded {
    let subject = Embedded::new().await;
    commit(&*subject.store, Batch::new().with(declare("durable", Keeping::Durable))).await;
    for n in 0..BEFORE {
        step(&*subject.store, n).await;
    }
    subject
}

/// Checks that all durable batches are there, and derived batches up to one at or after `synced`.
async fn check(store: &EmbeddedStore, synced: u64, what: &str) {
    for n in 0..STEPS {
        let found = row_text(store, Table::Attempts, &n.to_string()).await;
        assert_eq!(found, Some(value(n)), "{what}: row {n}");
    }
    let cursor = store.cursor(&"p".parse().unwrap(), &topic("a")).await.unwrap();
    let last = row_text(store, Table::Projectors, "last").await;
    assert_eq!(cursor.as_ref().map(|cursor| cursor.floor.to_string()), last, "{what}");
    assert!(cursor.is_some_and(|cursor| cursor.floor.get() + 1 >= synced), "{what}: {last:?}");
    let report = store.verify(|_, _| {}).await.unwrap();
    assert!(report.is_clean(), "{what}: {report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn torn_tails_are_cut_and_redone() {
    let subject = started().await;
    subject.store.checkpoint().await.unwrap();
    let synced = SyncedFolder::of(&subject.dir.path().join("state"));
    for n in BEFORE..STEPS {
        step(&*subject.store, n).await;
    }
    let after = subject.image();
    for seed in seeds("TORN", 60, &[], 20) {
        let torn = tempfile::tempdir().unwrap();
        copy_dir(after.path(), torn.path());
        assert!(synced.tear(&torn.path().join("state"), seed), "TORN_SEED={seed}");
        let opened = try_open(torn.path(), &clock()).await;
        let store = opened.unwrap_or_else(|error| panic!("TORN_SEED={seed}: {error}"));
        check(&store, BEFORE, &format!("TORN_SEED={seed}")).await;
        // The store goes on from there, and the next open finds nothing to mend.
        step(&store, STEPS).await;
        store.close().await;
        let store = try_open(torn.path(), &clock()).await.unwrap();
        let last = row_text(&store, Table::Projectors, "last").await;
        assert_eq!(last, Some(STEPS.to_string()), "TORN_SEED={seed}");
    }
}

/// Another power cut, while the store opens after the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_during_the_mending_changes_nothing() {
    let subject = started().await;
    subject.store.checkpoint().await.unwrap();
    let synced = SyncedFolder::of(&subject.dir.path().join("state"));
    for n in BEFORE..STEPS {
        step(&*subject.store, n).await;
    }
    let after = subject.image();
    synced.tear(&after.path().join("state"), 2);
    // The journal is aside, and its whole part is or is not in its place.
    for left in [None, Some(Vec::new()), Some(vec![0; 100])] {
        let torn = tempfile::tempdir().unwrap();
        copy_dir(after.path(), torn.path());
        let (journal, aside) = (torn.path().join("state/0.jnl"), torn.path().join("state/0.jnl.torn"));
        std::fs::rename(&journal, &aside).unwrap();
        if let Some(left) = left {
            std::fs::write(&journal, left).unwrap();
        }
        let store = try_open(torn.path(), &clock()).await.unwrap();
        check(&store, BEFORE, "mended twice").await;
        store.close().await;
        assert!(journal.exists() && !aside.exists());
    }
}

async fn check_refused(dir: &Path, damage: impl Fn(&mut Vec<u8>)) {
    let journal = dir.join("state/0.jnl");
    let mut bytes = std::fs::read(&journal).unwrap();
    damage(&mut bytes);
    std::fs::write(&journal, &bytes).unwrap();
    for _ in 0..2 {
        let error = try_open(dir, &clock()).await.expect_err("must not open");
        assert_eq!(error.code(), "state_corrupt", "{error}");
        assert!(error.to_string().contains("0.jnl is damaged after byte"), "{error}");
        assert!(std::fs::read(&journal).unwrap() == bytes, "the damaged journal is left as it is");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_to_what_was_synced_is_refused() {
    let subject = started().await;
    subject.store.checkpoint().await.unwrap();
    for n in BEFORE..STEPS {
        step(&*subject.store, n).await;
    }
    for at in [0, 40, 600, 2000] {
        check_refused(subject.image().path(), |bytes| bytes[at] ^= 0x40).await;
        check_refused(subject.image().path(), |bytes| bytes[at..at + 512].fill(0)).await;
    }
}

/// A crash while the folder of the engine is made for the first time leaves a folder of another name.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_was_not_finished_is_made_anew() {
    let subject = started().await;
    let image = subject.image();
    let (state, unfinished) = (image.path().join("state"), image.path().join("state.new"));
    std::fs::rename(&state, &unfinished).unwrap();
    std::fs::remove_file(unfinished.join("version")).unwrap();
    let store = try_open(image.path(), &clock()).await.unwrap();
    assert_eq!(row_text(&store, Table::Attempts, "9").await, Some(value(9)));
    assert!(state.exists() && !unfinished.exists());
}
