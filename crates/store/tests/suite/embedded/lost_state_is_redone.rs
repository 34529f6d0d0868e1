//! After the state engine has lost what it had not synced, redo brings durable batches back; derived batches are gone,
//! each with all batches that depend on it.

use promethean_model::Offset;
use promethean_store::port::{Batch, CursorReads, DocReads, Keeping, Store, Table, Watch};

use crate::suite::support::{
    Embedded, clock, commit, cursor, declare, doc, event, replace_state, row, row_text, topic, try_open,
};

async fn step(store: &dyn Store, n: u64) {
    let name = n.to_string();
    let durable = Batch::new()
        .event(event("a", &name))
        .with(row(Table::Attempts, &name, &name))
        .with(row(Table::Attempts, "last", &name))
        .with(doc("durable", &format!("k{}", n % 7), n))
        .with(cursor("g", "a", n));
    commit(store, durable).await;
    let derived = Batch::derived()
        .with(doc("derived", &format!("k{}", n % 7), n))
        .with(cursor("p", "a", n))
        .with(row(Table::Projectors, "last", &name));
    commit(store, derived).await;
}

async fn started() -> Embedded {
    let subject = Embedded::new().await;
    commit(&*subject.store, Batch::new().with(declare("durable", Keeping::Durable))).await;
    commit(&*subject.store, Batch::derived().with(declare("derived", Keeping::Derived))).await;
    for n in 0..40 {
        step(&*subject.store, n).await;
    }
    subject
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_state_is_redone_and_derived_state_is_whole() {
    let subject = started().await;
    subject.store.checkpoint().await.unwrap();
    let at_sync = subject.image();
    for n in 40..90 {
        step(&*subject.store, n).await;
    }
    let after = subject.image();
    replace_state(after.path(), at_sync.path());
    let store = try_open(after.path(), &clock()).await.unwrap();
    assert_eq!(row_text(&store, Table::Attempts, "last").await.as_deref(), Some("89"));
    for n in 0..90 {
        assert_eq!(row_text(&store, Table::Attempts, &n.to_string()).await, Some(n.to_string()));
    }
    let found = store.cursors_of_topic(&topic("a")).await.unwrap();
    let floors: Vec<_> = found.iter().map(|found| (found.group.as_str(), found.cursor.floor)).collect();
    // Documents, row and cursor of the projector went back together to the last sync of the engine.
    assert_eq!(floors, [("g", Offset(89)), ("p", Offset(39))]);
    assert_eq!(row_text(&store, Table::Projectors, "last").await.as_deref(), Some("39"));
    for (name, last) in [("durable", 89), ("derived", 39)] {
        let doc = store.doc(&name.parse().unwrap(), &format!("k{}", last % 7)).await.unwrap().unwrap();
        assert_eq!(doc.body, format!("{{\"n\":{last}}}"));
    }
    let report = store.verify(|_, _| {}).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    // The store goes on from there.
    step(&store, 90).await;
    store.close().await;
    let store = try_open(after.path(), &clock()).await.unwrap();
    assert_eq!(row_text(&store, Table::Projectors, "last").await.as_deref(), Some("90"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_checkpoint_everything_is_redone() {
    let subject = started().await;
    let image = subject.image();
    std::fs::remove_dir_all(image.path().join("state")).unwrap();
    let store = try_open(image.path(), &clock()).await.unwrap();
    assert_eq!(row_text(&store, Table::Attempts, "last").await.as_deref(), Some("39"));
    assert_eq!(row_text(&store, Table::Projectors, "last").await, None);
    assert_eq!(store.collections(None, 10).await.unwrap().len(), 1);
    let report = store.verify(|_, _| {}).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_crash_during_redo_changes_nothing() {
    let subject = started().await;
    subject.store.checkpoint().await.unwrap();
    let at_sync = subject.image();
    for n in 40..60 {
        step(&*subject.store, n).await;
    }
    let after = subject.image();
    for _ in 0..3 {
        replace_state(after.path(), at_sync.path());
        let store = try_open(after.path(), &clock()).await.unwrap();
        assert_eq!(row_text(&store, Table::Attempts, "last").await.as_deref(), Some("59"));
        assert_eq!(store.durable_end(&topic("a")), Offset(60));
        // Not closed: no checkpoint is taken, as in a crash.
        drop(store);
    }
}
