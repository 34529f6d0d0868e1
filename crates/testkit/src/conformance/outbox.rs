//! The outbox.

use promethean_store::port::{Batch, CommitError, OutboxOp, OutboxReads, OutboxStatus, Store};

use super::StoreUnderTest;
use super::support::*;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    rows_wait_in_order(make().await).await;
    adding_is_idempotent(make().await).await;
    a_row_is_sent_with_its_event(make().await).await;
}

fn add(name: &str, payload: &str) -> OutboxOp {
    OutboxOp::Add {
        id: id(name),
        ts: 5,
        topic: topic("a"),
        key: Some(format!("key of {name}")),
        meta: vec![0, 255],
        payload: payload.to_owned(),
    }
}

fn status(name: &str, status: OutboxStatus, error: Option<&str>) -> OutboxOp {
    OutboxOp::Status { id: id(name), status, error: error.map(str::to_owned) }
}

async fn payloads_of(store: &(impl OutboxReads + ?Sized), status: OutboxStatus) -> Vec<String> {
    let rows = store.outbox(status, None, 1000).await.unwrap();
    assert!(rows.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert!(rows.iter().all(|row| row.status == status));
    rows.into_iter().map(|row| row.payload).collect()
}

async fn rows_wait_in_order<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    for name in ["z", "y", "x"] {
        commit(
            &store,
            Batch::new().with(add(name, &format!("\"{name}\""))).with(add(&format!("{name}2"), "2")),
        )
        .await;
    }
    assert_eq!(payloads_of(&*store, OutboxStatus::Pending).await, ["\"z\"", "2", "\"y\"", "2", "\"x\"", "2"]);
    let first = store.outbox(OutboxStatus::Pending, None, 2).await.unwrap();
    let next = store.outbox(OutboxStatus::Pending, Some(first[1].seq), 2).await.unwrap();
    assert_eq!(next.iter().map(|row| row.payload.as_str()).collect::<Vec<_>>(), ["\"y\"", "2"]);
    let refused_row = status("y", OutboxStatus::Error, Some("no such topic"));
    commit(&store, Batch::new().with(status("z", OutboxStatus::Sent, None)).with(refused_row)).await;
    for name in ["z2", "y2", "x2"] {
        commit(&store, Batch::new().with(OutboxOp::Delete { id: id(name) })).await;
    }
    let store = match subject.reopen().await {
        Some(subject) => subject.store(),
        None => store,
    };
    assert_eq!(payloads_of(&*store, OutboxStatus::Pending).await, ["\"x\""]);
    assert_eq!(payloads_of(&*store, OutboxStatus::Sent).await, ["\"z\""]);
    let row = store.outbox_row(id("y")).await.unwrap().unwrap();
    assert_eq!((row.status, row.error.as_deref(), row.ts), (OutboxStatus::Error, Some("no such topic"), 5));
    assert_eq!(
        (row.key.as_deref(), row.meta.as_slice(), &row.topic),
        (Some("key of y"), &[0, 255][..], &topic("a"))
    );
    assert_eq!(store.outbox_row(id("y2")).await.unwrap(), None);
    // The row is back in its old place.
    commit(&store, Batch::new().with(status("y", OutboxStatus::Pending, None)).with(add("w", "1"))).await;
    assert_eq!(payloads_of(&*store, OutboxStatus::Pending).await, ["\"y\"", "\"x\"", "1"]);
    assert_eq!(payloads_of(&*store, OutboxStatus::Error).await, Vec::<String>::new());
    let unknown = Batch::new().with(row_marker()).with(status("none", OutboxStatus::Sent, None));
    assert_eq!(refused(&store, unknown).await, CommitError::UnknownOutboxRow { id: id("none") });
    assert_eq!(rows(&store).await, []);
    commit(&store, Batch::new().with(OutboxOp::Delete { id: id("none") })).await;
}

fn row_marker() -> promethean_store::port::RowOp {
    row("r", "1")
}

async fn adding_is_idempotent<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    commit(&store, Batch::new().with(add("x", "1")).with(add("y", "2")).with(add("x", "1"))).await;
    commit(&store, Batch::new().with(status("x", OutboxStatus::Sent, None))).await;
    commit(&store, Batch::new().with(add("x", "1"))).await;
    assert_eq!(store.outbox_row(id("x")).await.unwrap().unwrap().status, OutboxStatus::Sent);
    let error = refused(&store, Batch::new().with(add("z", "1")).with(add("x", "2"))).await;
    assert_eq!((error.code(), error), ("id_conflict", CommitError::OutboxConflict { id: id("x") }));
    assert_eq!(payloads_of(&*store, OutboxStatus::Pending).await, ["2"]);
}

async fn a_row_is_sent_with_its_event<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    commit(&store, Batch::new().with(add("x", "1"))).await;
    let drain = || Batch::new().event(event("a", "x", "1")).with(status("x", OutboxStatus::Sent, None));
    commit(&store, drain()).await;
    // A drainer that got no answer tries again.
    let again = commit(&store, drain()).await;
    assert!(again.events[0].duplicate);
    assert_eq!(payloads(&store, "a").await, ["1"]);
    assert_eq!(payloads_of(&*store, OutboxStatus::Sent).await, ["1"]);
    let store: &dyn Store = &*store;
    assert_eq!(payloads_of(store, OutboxStatus::Pending).await, Vec::<String>::new());
}
