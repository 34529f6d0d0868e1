//! A commit that the store has accepted is carried out, also when its caller drops the future.

use std::task::{Context, Poll, Waker};

use promethean_model::{Offset, TopicSettings};
use promethean_store::port::{Batch, SettingsOp, Store, Table, TopicOp, Watch};

use crate::suite::support::{Embedded, commit, event, row, row_text, topic};

/// Polls once, which hands the batch over, and drops the future.
fn start(store: &dyn Store, batch: Batch) {
    let mut commit = store.commit(batch);
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(commit.as_mut().poll(&mut context), Poll::Pending | Poll::Ready(Ok(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_caller_left_is_committed() {
    let subject = Embedded::new().await;
    let store = &*subject.store;
    let mut watch = store.watch(&topic("a"));
    for n in 0..50u64 {
        let name = n.to_string();
        start(store, Batch::new().event(event("a", &name)).with(row(Table::Attempts, "r", &name)));
        watch.past(Offset(n)).await.unwrap();
    }
    // A later batch is checked against all earlier batches and applied after them.
    let new = |key: &str| promethean_store::port::RowOp::Put {
        table: Table::Attempts,
        key: key.into(),
        value: Vec::new(),
        must_be_new: true,
    };
    assert_eq!(store.commit(Batch::new().with(new("r"))).await.unwrap_err().code(), "conflict");
    commit(store, Batch::new().with(new("s"))).await;
    assert_eq!(row_text(store, Table::Attempts, "r").await.as_deref(), Some("49"));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_deletions_are_carried_out() {
    let subject = Embedded::new().await;
    let store = &*subject.store;
    commit(store, Batch::new().event(event("a", "0")).event(event("b", "0"))).await;
    let mut watch = store.watch(&topic("a"));
    assert_eq!(watch.end(), Offset(1));
    let compacted = TopicSettings { compacted: true, ..TopicSettings::default() };
    start(store, Batch::new().with(SettingsOp::Put(topic("b"), compacted)));
    start(store, Batch::new().with(TopicOp::Delete(topic("a"))));
    assert_eq!(watch.changed().await, Some(Offset::ZERO));
    // Closing waits for both batches.
    subject.store.close().await;
    let subject = Embedded::open(subject.dir, subject.clock).await;
    assert_eq!(subject.store.durable_end(&topic("a")), Offset::ZERO);
    let mut keyless = event("b", "1");
    keyless.key = None;
    let error = subject.store.commit(Batch::new().event(keyless)).await.unwrap_err();
    assert_eq!(error.code(), "key_required");
}
