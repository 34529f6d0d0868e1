//! Cursors and the epochs that fence them.

use promethean_model::Offset;
use promethean_store::port::{Batch, CommitError, Cursor, CursorOp};

use super::StoreUnderTest;
use super::support::*;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    a_cursor_is_what_was_put(make().await).await;
    an_epoch_fences(make().await).await;
    cursors_are_listed(make().await).await;
    derived_cursors(make().await).await;
    no_cursor_passes_the_end(make().await).await;
}

async fn a_cursor_is_what_was_put<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let (g, a) = (group("g"), topic("a"));
    fill(&store, "a", 9).await;
    assert_eq!(store.cursor(&g, &a).await.unwrap(), None);
    let put = |floor: u64, data: &[u8]| CursorOp::Put {
        group: g.clone(),
        topic: a.clone(),
        cursor: Cursor { floor: Offset(floor), epoch: 0, data: data.to_vec() },
        expected_epoch: 0,
    };
    commit(&store, Batch::new().with(put(3, b"\0x"))).await;
    // The later change of a batch wins, and a floor may go back: seeking is up to the bus.
    commit(&store, Batch::new().with(put(9, b"lost")).with(put(2, b"kept"))).await;
    let expected = Some(Cursor { floor: Offset(2), epoch: 0, data: b"kept".to_vec() });
    assert_eq!(store.cursor(&g, &a).await.unwrap(), expected);
    let store = match subject.reopen().await {
        Some(subject) => subject.store(),
        None => store,
    };
    assert_eq!(store.cursor(&g, &a).await.unwrap(), expected);
    let delete = CursorOp::Delete { group: g.clone(), topic: a.clone(), expected_epoch: None };
    commit(&store, Batch::new().with(delete.clone())).await;
    commit(&store, Batch::new().with(delete)).await;
    assert_eq!(store.cursor(&g, &a).await.unwrap(), None);
}

async fn an_epoch_fences<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    fill(&store, "a", 3).await;
    commit(&store, Batch::new().with(cursor_put("g", "a", 1, 0, 1))).await;
    commit(&store, Batch::new().with(cursor_put("g", "a", 2, 1, 1))).await;
    // Another owner takes over; a late write of the first owner is refused with its whole batch.
    commit(&store, Batch::new().with(cursor_put("g", "a", 2, 1, 2))).await;
    let late =
        Batch::new().event(event("b", "x", "1")).with(row("r", "1")).with(cursor_put("g", "a", 3, 1, 1));
    let error = refused(&store, late).await;
    let fenced =
        |expected, actual| CommitError::Fenced { group: group("g"), topic: topic("a"), expected, actual };
    assert_eq!((error.code(), &error), ("fenced", &fenced(1, 2)));
    assert_untouched(&store, &["b"]).await;
    // An epoch never falls, and a cursor that does not exist has epoch 0.
    assert_eq!(refused(&store, Batch::new().with(cursor_put("g", "a", 3, 2, 1))).await.code(), "fenced");
    let error = refused(&store, Batch::new().with(cursor_put("h", "a", 3, 5, 6))).await;
    assert_eq!(error, CommitError::Fenced { group: group("h"), topic: topic("a"), expected: 5, actual: 0 });
    let delete =
        |epoch| CursorOp::Delete { group: group("g"), topic: topic("a"), expected_epoch: Some(epoch) };
    assert_eq!(refused(&store, Batch::new().with(delete(1))).await, fenced(1, 2));
    let store = match subject.reopen().await {
        Some(subject) => subject.store(),
        None => store,
    };
    assert_eq!(refused(&store, Batch::new().with(cursor_put("g", "a", 3, 1, 1))).await, fenced(1, 2));
    commit(&store, Batch::new().with(cursor_put("g", "a", 3, 2, 2)).with(delete(2))).await;
    assert_eq!(store.cursor(&group("g"), &topic("a")).await.unwrap(), None);
}

async fn cursors_are_listed<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    for name in ["a", "a.b", "b"] {
        fill(&store, name, 1).await;
    }
    let mut batch = Batch::new();
    for (of, on) in [("g", "a"), ("g", "a.b"), ("G", "a"), ("g.x", "a"), ("h", "b")] {
        batch = batch.with(cursor_put(of, on, 1, 0, 0));
    }
    commit(&store, batch).await;
    let of_topic = store.cursors_of_topic(&topic("a")).await.unwrap();
    assert_eq!(of_topic.iter().map(|cursor| cursor.group.as_str()).collect::<Vec<_>>(), ["G", "g", "g.x"]);
    assert!(of_topic.iter().all(|cursor| cursor.topic == topic("a") && cursor.cursor.floor == Offset(1)));
    let of_group = store.cursors_of_group(&group("g")).await.unwrap();
    assert_eq!(of_group.iter().map(|cursor| cursor.topic.as_str()).collect::<Vec<_>>(), ["a", "a.b"]);
    assert_eq!(store.cursors_of_topic(&topic("none")).await.unwrap(), []);
    assert_eq!(store.cursors_of_group(&group("none")).await.unwrap(), []);
}

async fn derived_cursors<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    fill(&store, "a", 31).await;
    for floor in 0..20 {
        commit(&store, Batch::derived().with(cursor_put("p", "a", floor, 0, 0))).await;
        commit(&store, Batch::new().with(cursor_put("q", "a", floor, 0, 0))).await;
        assert_eq!(store.cursor(&group("p"), &topic("a")).await.unwrap().unwrap().floor, Offset(floor));
    }
    // Durable and derived batches may write one cursor, and fence each other.
    commit(&store, Batch::new().with(cursor_put("p", "a", 30, 0, 1))).await;
    let stale = Batch::derived().with(cursor_put("p", "a", 20, 0, 0));
    assert_eq!(refused(&store, stale).await.code(), "fenced");
    commit(&store, Batch::derived().with(cursor_put("p", "a", 31, 1, 1))).await;
    let Some(subject) = subject.reopen().await else { return };
    let store = subject.store();
    assert_eq!(store.cursor(&group("p"), &topic("a")).await.unwrap().unwrap().floor, Offset(31));
}

async fn no_cursor_passes_the_end<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    fill(&store, "a", 3).await;
    let beyond = |topic: &str, floor, end| CommitError::BeyondEnd {
        group: group("g"),
        topic: topic.parse().unwrap(),
        floor: Offset(floor),
        end: Offset(end),
    };
    for batch in [Batch::new(), Batch::derived()] {
        let error =
            refused(&store, batch.clone().with(row("r", "1")).with(cursor_put("g", "a", 4, 0, 0))).await;
        assert_eq!((error.code(), error), ("beyond_end", beyond("a", 4, 3)));
        assert_eq!(refused(&store, batch.with(cursor_put("g", "none", 1, 0, 0))).await, beyond("none", 1, 0));
    }
    assert_eq!(rows(&store).await, []);
    commit(&store, Batch::new().with(cursor_put("g", "a", 3, 0, 0)).with(cursor_put("g", "none", 0, 0, 0)))
        .await;
}
