//! An acknowledgement names the durability that it promises.

use std::sync::Arc;

use promethean_model::{Durability, Offset, SystemClock, TopicSettings};
use promethean_store::embedded::EmbeddedStore;
use promethean_store::port::{Batch, Class, SettingsOp, Store, Table, Watch};

use crate::suite::support::{commit, event, row, small, topic};

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_says_what_it_promises() {
    let dir = tempfile::tempdir().unwrap();
    // The real clock: events acknowledged as `os` are synced after some time.
    let (store, _) = EmbeddedStore::open(dir.path(), Arc::new(SystemClock::new()), small()).await.unwrap();
    let with = |durability| Batch::of(Class::Durable(Some(durability)));
    let word = async |batch: Batch| store.commit(batch).await.unwrap().durability_word();
    assert_eq!(word(Batch::new().event(event("a", "0"))).await, "fsync");
    assert_eq!(word(with(Durability::Os).event(event("a", "1"))).await, "os");
    // State is applied only after a sync, so a batch with state waits for one.
    assert_eq!(
        word(with(Durability::Os).event(event("a", "2")).with(row(Table::Attempts, "r", "1"))).await,
        "fsync"
    );
    assert_eq!(word(with(Durability::Os).event(event("a", "3"))).await, "os");
    store.watch(&topic("a")).past(Offset(3)).await.unwrap();
    for durability in [Durability::Majority, Durability::W1] {
        let error = store.commit(with(durability).event(event("a", "4"))).await.unwrap_err();
        assert_eq!(error.code(), "not_offered");
    }
    commit(&store, with(Durability::Os).event(event("a", "5"))).await;
    store.close().await;
    let (store, _) = EmbeddedStore::open(dir.path(), Arc::new(SystemClock::new()), small()).await.unwrap();
    assert_eq!(store.durable_end(&topic("a")), Offset(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durability_that_is_not_offered_is_refused_as_a_setting_of_a_topic() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = EmbeddedStore::open(dir.path(), Arc::new(SystemClock::new()), small()).await.unwrap();
    let set = |durability| {
        let settings = TopicSettings { durability: Some(durability), ..TopicSettings::default() };
        store.commit(Batch::new().with(SettingsOp::Put(topic("a"), settings)))
    };
    for durability in [Durability::Majority, Durability::W1] {
        let error = set(durability).await.unwrap_err();
        assert_eq!(error.code(), "not_offered");
        assert!(error.to_string().contains("`fsync`, `os`"), "{error}");
    }
    set(Durability::Os).await.unwrap();
    commit(&store, Batch::new().event(event("a", "0"))).await;
}
