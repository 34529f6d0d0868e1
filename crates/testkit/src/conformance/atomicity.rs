//! Batches are written all or nothing, also when many are committed at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use promethean_model::{Offset, TopicSettings};
use promethean_store::port::{
    Batch, CollectionOp, DedupeMark, DocPut, Expect, Keeping, OutboxOp, RowOp, SettingsOp, StateOp, Store,
    Table, TopicOp,
};
use tokio::task::JoinSet;

use super::StoreUnderTest;
use super::docs::{declare, people, put};
use super::support::*;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    a_batch_of_everything(make().await).await;
    derived_batches_write_what_can_be_computed_again(make().await).await;
    one_of_many_wins(make().await).await;
    no_update_is_lost(make().await).await;
    readers_see_whole_batches(make().await).await;
    a_closed_store_refuses(make().await).await;
}

fn everything() -> Batch {
    let mark = DedupeMark { scope: "s".to_owned(), id: "x".to_owned(), expires_at: 99, unless_seen_at: None };
    let outbox = OutboxOp::Add {
        id: id("row"),
        ts: 1,
        topic: topic("a"),
        key: None,
        meta: Vec::new(),
        payload: "1".to_owned(),
    };
    Batch::new()
        .event(event("a", "0", "0"))
        .event(event("b", "0", "0"))
        .event(event("a", "1", "1"))
        .with(cursor_put("g", "a", 0, 0, 1))
        .with(CollectionOp::Declare(people(Keeping::Durable)))
        .with(put("d", 1, "{\"mail\":\"m\"}"))
        .with(mark)
        .with(outbox)
        .with(SettingsOp::Put(topic("a"), TopicSettings { max_attempts: 7, ..TopicSettings::default() }))
        .with(row("r", "1"))
}

/// How many of the eight parts of the batch are written.
async fn parts(store: &Arc<dyn Store>) -> usize {
    let there = [
        read_all(store, "a").await.len() == 2,
        read_all(store, "b").await.len() == 1,
        store.cursor(&group("g"), &topic("a")).await.unwrap().is_some(),
        store.doc(&collection("people"), "d").await.unwrap().is_some(),
        store.seen("s", "x", 0).await.unwrap(),
        store.outbox_row(id("row")).await.unwrap().is_some(),
        store.settings(&topic("a")).await.unwrap().is_some(),
        rows(store).await.len() == 1,
    ];
    there.into_iter().filter(|part| *part).count()
}

async fn a_batch_of_everything<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let spoilers: [StateOp; 4] = [
        cursor_put("g", "b", 0, 7, 7).into(),
        put("e", 1, "{\"mail\":\"m\"}").into(),
        DocPut { expect: Expect::Absent, ..put("d", 1, "{}") }.into(),
        RowOp::Put { table: Table::Attempts, key: b"r".to_vec(), value: Vec::new(), must_be_new: true }
            .into(),
    ];
    for spoiler in spoilers {
        refused(&store, everything().with(spoiler)).await;
        assert_eq!(parts(&store).await, 0);
    }
    refused(&store, everything().expect_end(topic("b"), Offset(1))).await;
    refused(&store, everything().event(event("b", "0", "\"other\""))).await;
    assert_eq!(parts(&store).await, 0);
    assert_eq!(store.topics(None, 10).await.unwrap().topics, [], "a refused batch makes no topic");
    commit(&store, everything()).await;
    assert_eq!(parts(&store).await, 8);
    if let Some(subject) = subject.reopen().await {
        assert_eq!(parts(&subject.store()).await, 8);
    }
}

async fn derived_batches_write_what_can_be_computed_again<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let check = async |batch: Batch, code: &str| {
        assert_eq!(refused(&store, batch.with(row("r", "1"))).await.code(), code);
        assert_eq!(rows(&store).await, []);
    };
    check(Batch::derived().event(event("a", "x", "1")), "derived_with_events").await;
    check(Batch::derived().expect_end(topic("a"), Offset(0)), "derived_with_events").await;
    let mark = DedupeMark { scope: "s".to_owned(), id: "x".to_owned(), expires_at: 9, unless_seen_at: None };
    check(Batch::derived().with(mark), "not_derivable").await;
    check(Batch::derived().with(TopicOp::Create(topic("a"))), "not_derivable").await;
    check(Batch::derived().with(SettingsOp::Delete(topic("a"))), "not_derivable").await;
    check(Batch::derived().with(OutboxOp::Delete { id: id("x") }), "not_derivable").await;
    declare(&store, Keeping::Derived).await;
    let batch =
        Batch::derived().with(put("d", 1, "{}")).with(cursor_put("p", "a", 0, 0, 0)).with(row("r", "1"));
    let receipt = commit(&store, batch).await;
    assert_eq!((receipt.durability, receipt.durability_word()), (None, "memory"));
    assert!(store.doc(&collection("people"), "d").await.unwrap().is_some());
    let Some(subject) = subject.reopen().await else { return };
    assert!(subject.store().doc(&collection("people"), "d").await.unwrap().is_some());
}

async fn one_of_many_wins<S: StoreUnderTest>(subject: S) {
    const WRITERS: usize = 24;
    let store = subject.store();
    for round in 0..5u64 {
        let mut writers = JoinSet::new();
        for n in 0..WRITERS {
            let store = Arc::clone(&store);
            writers.spawn(async move {
                let batch = match n % 3 {
                    0 => Batch::new()
                        .event(event("a", format!("{round}-{n}"), "1"))
                        .expect_end(topic("a"), Offset(round)),
                    1 => Batch::new().event(event("b", format!("{round}-{n}"), "1")).with(RowOp::Put {
                        table: Table::Attempts,
                        key: round.to_be_bytes().to_vec(),
                        value: Vec::new(),
                        must_be_new: true,
                    }),
                    _ => Batch::new().event(event("c", format!("{round}-{n}"), "1")).with(cursor_put(
                        "g",
                        "c",
                        round,
                        round,
                        round + 1,
                    )),
                };
                (n % 3, store.commit(batch).await)
            });
        }
        let mut wins = [0; 3];
        while let Some(done) = writers.join_next().await {
            let (kind, result) = done.unwrap();
            match result {
                Ok(_) => wins[kind] += 1,
                Err(error) => assert!(["conflict", "fenced"].contains(&error.code()), "{error}"),
            }
        }
        assert_eq!(wins, [1, 1, 1]);
    }
    for name in ["a", "b", "c"] {
        assert_eq!(read_all(&store, name).await.len(), 5);
    }
}

/// Counters kept in one document, raised by reading, adding and expecting the revision that was read.
async fn no_update_is_lost<S: StoreUnderTest>(subject: S) {
    const WRITERS: u64 = 8;
    const RAISES: u64 = 6;
    let store = subject.store();
    declare(&store, Keeping::Durable).await;
    commit(&store, Batch::new().with(put("n", 0, "{\"age\":0}"))).await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            for raise in 0..RAISES {
                while !raise_once(&store, &format!("{writer}-{raise}")).await {}
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    let doc = store.doc(&collection("people"), "n").await.unwrap().unwrap();
    assert_eq!(doc.body, format!("{{\"age\":{}}}", WRITERS * RAISES));
    let events = read_all(&store, "a").await;
    assert_eq!(events.len() as u64, WRITERS * RAISES);
    assert_eq!(events.iter().map(|event| event.id).collect::<BTreeSet<_>>().len(), events.len());
}

async fn raise_once(store: &Arc<dyn Store>, name: &str) -> bool {
    let doc = store.doc(&collection("people"), "n").await.unwrap().unwrap();
    let age: u64 = doc.body.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
    let raised = put("n", 0, &format!("{{\"age\":{}}}", age + 1));
    let batch = Batch::new()
        .event(event("a", name, "1"))
        .with(DocPut { expect: Expect::Revision(doc.revision), ..raised });
    match store.commit(batch).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.code(), "conflict", "{error}");
            false
        }
    }
}

/// A batch writes the same number to several rows; every reader of them sees one number.
async fn readers_see_whole_batches<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let batch = |n: u32| {
        let class = if n.is_multiple_of(2) { Batch::new() } else { Batch::derived() };
        (0..5).fold(class, |batch, key| batch.with(row(&format!("k{key}"), &n.to_string())))
    };
    commit(&store, batch(0)).await;
    let mut tasks = JoinSet::new();
    let writer = Arc::clone(&store);
    tasks.spawn(async move {
        for n in 1..60 {
            commit(&writer, batch(n)).await;
        }
    });
    for _ in 0..3 {
        let reader = Arc::clone(&store);
        tasks.spawn(async move {
            for _ in 0..60 {
                let values: BTreeSet<_> = rows(&reader).await.into_iter().map(|(_, value)| value).collect();
                assert_eq!(values.len(), 1, "{values:?}");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

async fn a_closed_store_refuses<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    append(&store, event("a", "0", "1")).await;
    assert_eq!(store.health().refusing, None);
    store.close().await;
    store.close().await;
    assert_eq!(refused(&store, Batch::new().event(event("a", "1", "1"))).await.code(), "closed");
    assert_eq!(refused(&store, Batch::derived().with(row("r", "1"))).await.code(), "closed");
    assert!(store.health().refusing.is_some());
}
