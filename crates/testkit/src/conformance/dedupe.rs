//! Dedupe marks and their end.

use promethean_store::port::{Batch, CommitError, DedupeForget, DedupeMark};

use super::StoreUnderTest;
use super::support::*;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    a_mark_is_seen_until_it_expires(make().await).await;
    only_the_first_may_mark(make().await).await;
    sweeping_removes_what_expired(make().await).await;
    marks_of_a_scope_are_listed_and_forgotten(make().await).await;
}

fn mark(scope: &str, id: impl Into<String>, expires_at: i64) -> DedupeMark {
    DedupeMark { scope: scope.to_owned(), id: id.into(), expires_at, unless_seen_at: None }
}

async fn a_mark_is_seen_until_it_expires<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    assert!(!store.seen("s", "x", 0).await.unwrap());
    commit(&store, Batch::new().with(mark("s", "x", 100)).with(mark("sx", "", -5))).await;
    assert!(store.seen("s", "x", 99).await.unwrap());
    assert!(!store.seen("s", "x", 100).await.unwrap());
    assert!(store.seen("sx", "", -6).await.unwrap() && !store.seen("sx", "", 0).await.unwrap());
    assert!(!store.seen("", "sx", 0).await.unwrap() && !store.seen("s", "y", 0).await.unwrap());
    // Renewed, for longer and for shorter.
    commit(&store, Batch::new().with(mark("s", "x", 300))).await;
    assert!(store.seen("s", "x", 299).await.unwrap());
    commit(&store, Batch::new().with(mark("s", "x", 200))).await;
    assert!(!store.seen("s", "x", 200).await.unwrap());
    let store = match subject.reopen().await {
        Some(subject) => subject.store(),
        None => store,
    };
    assert!(store.seen("s", "x", 199).await.unwrap() && !store.seen("s", "x", 200).await.unwrap());
    let long = "x".repeat(10_000);
    assert_eq!(refused(&store, Batch::new().with(mark("s", long.clone(), 1))).await.code(), "too_large");
    assert!(!store.seen("s", &long, 0).await.unwrap());
}

async fn only_the_first_may_mark<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let first = |now| DedupeMark { unless_seen_at: Some(now), ..mark("s", "x", now + 100) };
    commit(&store, Batch::new().with(first(0))).await;
    let second = Batch::new().event(event("a", "x", "1")).with(row("r", "1")).with(first(99));
    let error = refused(&store, second).await;
    assert_eq!(error, CommitError::AlreadySeen { scope: "s".to_owned(), id: "x".to_owned() });
    assert_eq!(error.code(), "already_seen");
    assert_untouched(&store, &["a"]).await;
    commit(&store, Batch::new().with(first(100))).await;
    assert!(store.seen("s", "x", 199).await.unwrap());
    let twice = |id: &str| DedupeMark { id: id.to_owned(), ..first(0) };
    let error = refused(&store, Batch::new().with(twice("y")).with(twice("y"))).await;
    assert_eq!(error.code(), "already_seen");
    assert!(!store.seen("s", "y", 0).await.unwrap());
}

async fn sweeping_removes_what_expired<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    for chunk in 0..6 {
        let mut batch = Batch::new();
        for n in 0..300 {
            batch = batch.with(mark("s", format!("{chunk}-{n}"), 100 + n));
        }
        commit(&store, batch).await;
    }
    commit(&store, Batch::new().with(mark("s", "0-0", 1000))).await;
    let mut pieces = 1;
    while store.sweep(249).await.unwrap() {
        pieces += 1;
        assert!(pieces < 100, "sweeping never ends");
    }
    assert!(pieces > 1, "sweeping is done in bounded pieces");
    // A question with the earliest time shows which marks are still stored.
    assert!(store.seen("s", "0-0", 0).await.unwrap(), "renewed");
    assert!(!store.seen("s", "5-0", 0).await.unwrap() && !store.seen("s", "5-149", 0).await.unwrap());
    assert!(store.seen("s", "5-150", 0).await.unwrap());
    assert!(!store.sweep(249).await.unwrap());
}

async fn marks_of_a_scope_are_listed_and_forgotten<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let mut batch = Batch::new();
    for (scope, id) in [("s", "b"), ("s", "a"), ("sx", "a"), ("s", "c"), ("", "s")] {
        batch = batch.with(mark(scope, id, 100));
    }
    commit(&store, batch).await;
    assert_eq!(store.marks("s", 10).await.unwrap(), ["a", "b", "c"]);
    assert_eq!(store.marks("s", 2).await.unwrap(), ["a", "b"]);
    let forget = |id: &str| DedupeForget { scope: "s".to_owned(), id: id.to_owned() };
    commit(&store, Batch::new().with(forget("a")).with(forget("c")).with(forget("never marked"))).await;
    assert_eq!(store.marks("s", 10).await.unwrap(), ["b"]);
    assert_eq!(store.marks("sx", 10).await.unwrap(), ["a"]);
    assert!(!store.seen("s", "a", 0).await.unwrap() && store.seen("s", "b", 0).await.unwrap());
    // A new mark outlives the expiry of the mark that was removed.
    commit(&store, Batch::new().with(mark("s", "a", 300))).await;
    while store.sweep(200).await.unwrap() {}
    assert!(store.seen("s", "a", 200).await.unwrap());
    assert_eq!(store.marks("s", 10).await.unwrap(), ["a"]);
}
