//! Following the durable end of topics.

use std::future::Future;

use promethean_model::Offset;
use promethean_store::port::{Batch, TopicOp};
use tokio::task::JoinSet;

use super::StoreUnderTest;
use super::support::*;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    a_watch_follows_the_end(make().await).await;
    a_topic_may_be_watched_before_it_exists(make().await).await;
    nothing_is_missed_under_load(make().await).await;
    a_watch_ends_with_its_store(make().await).await;
}

async fn woken<T>(future: impl Future<Output = T>) -> T {
    crate::patience::soon("a follower is woken", future).await
}

async fn a_watch_follows_the_end<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    append(&store, event("a", "0", "1")).await;
    let mut watch = store.watch(&topic("a"));
    assert_eq!((watch.end(), watch.topic()), (Offset(1), &topic("a")));
    let mut other = store.watch(&topic("b"));
    append(&store, event("a", "1", "1")).await;
    assert_eq!(woken(watch.changed()).await, Some(Offset(2)));
    // A refused or duplicate event does not move the end; the next new event does.
    append(&store, event("a", "1", "1")).await;
    refused(&store, Batch::new().event(event("a", "1", "2"))).await;
    commit(
        &store,
        Batch::new().event(event("b", "0", "1")).event(event("a", "2", "1")).event(event("a", "3", "1")),
    )
    .await;
    assert_eq!(woken(watch.changed()).await, Some(Offset(4)));
    assert_eq!(woken(other.past(Offset(0))).await, Some(Offset(1)));
    commit(&store, Batch::new().with(TopicOp::Delete(topic("a")))).await;
    assert_eq!(woken(watch.changed()).await, Some(Offset(0)));
}

async fn a_topic_may_be_watched_before_it_exists<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let mut first = store.watch(&topic("a"));
    let mut second = store.watch(&topic("a"));
    assert_eq!(first.end(), Offset::ZERO);
    drop(store.watch(&topic("a")));
    append(&store, event("a", "0", "1")).await;
    assert_eq!(woken(first.past(Offset(0))).await, Some(Offset(1)));
    assert_eq!(woken(second.changed()).await, Some(Offset(1)));
}

/// A follower that reads each time it is woken sees every event once, in order.
async fn nothing_is_missed_under_load<S: StoreUnderTest>(subject: S) {
    const EVENTS: u64 = 200;
    let store = subject.store();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut watch = store.watch(&topic("a"));
            let mut next = 0;
            while next < EVENTS {
                woken(watch.past(Offset(next))).await.unwrap();
                let events = read_from(&store, "a", next).await;
                assert_eq!(events.first().map(|event| event.offset), Some(Offset(next)), "woken for nothing");
                next += events.len() as u64;
            }
        });
    }
    for writer in 0..4 {
        let store = store.clone();
        tasks.spawn(async move {
            for n in 0..EVENTS / 4 {
                append(&store, event("a", format!("{writer}-{n}"), "1")).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn a_watch_ends_with_its_store<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let mut watch = store.watch(&topic("a"));
    store.close().await;
    assert_eq!(woken(watch.changed()).await, None);
    assert_eq!(woken(watch.past(Offset(0))).await, None);
}
