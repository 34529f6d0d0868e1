//! A projector begins with snapshots although the store or a snapshot fails.

use std::sync::atomic::{AtomicUsize, Ordering};

use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_projections::{Activity, OnFailure, Projector};
use promethean_store::port::{Batch, CollectionOp, StateOp};
use serde_json::{Value, json};

use super::projector_begins_with_snapshots::{COUNT, compact, publish, seeded};
use super::world::*;
use promethean_testkit::{Fault, StoreCall};

on_both_stores!(
    a_snapshot_that_fails_becomes_a_dead_letter,
    a_snapshot_that_fails_halts_if_so_it_is_set,
    an_event_behind_the_snapshots_that_fails_becomes_a_dead_letter,
);

fn renames(batch: &Batch) -> bool {
    batch.state.iter().any(|op| matches!(op, StateOp::Collection(CollectionOp::Rename { .. })))
}

fn writes_docs(batch: &Batch) -> bool {
    batch.state.iter().any(|op| matches!(op, StateOp::Doc(_)))
}

type Meant = fn(&StoreCall<'_>) -> bool;

/// Every call of the store that a beginning with snapshots makes.
const ALL: [(&str, Meant); 7] = [
    (
        "where the compactor is",
        |asked| matches!(asked, StoreCall::Cursor(group) if group.as_str() == "compactor:in"),
    ),
    ("snapshots", |asked| matches!(asked, StoreCall::Read(topic) if topic.as_str() == "in.snapshot")),
    (
        "snapshots of keys",
        |asked| matches!(asked, StoreCall::LatestByKeys(topic) if topic.as_str() == "in.snapshot"),
    ),
    ("events behind them", |asked| matches!(asked, StoreCall::Read(topic) if topic.as_str() == "in")),
    ("documents", |asked| matches!(asked, StoreCall::Commit(batch) if writes_docs(batch))),
    ("comparing", |asked| matches!(asked, StoreCall::DocsByKey)),
    ("the swap", |asked| matches!(asked, StoreCall::Commit(batch) if renames(batch))),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_is_waited_for() {
    for (what, meant) in ALL {
        soon(what, waited_for(what, meant)).await;
    }
}

/// The call works once for snapshots, then fails three times, then works.
async fn waited_for(what: &str, meant: Meant) {
    let (world, store) = faulty().await;
    publish(&world, 0..700, 350).await;
    compact(&world).await;
    publish(&world, 700..710, 10).await;
    let (asked, skip) = (AtomicUsize::new(0), usize::from(what.starts_with("snapshots")));
    store.rule(move |what| {
        let nth = if meant(what) { asked.fetch_add(1, Ordering::SeqCst) } else { 0 };
        if meant(what) && (skip..skip + 3).contains(&nth) { Fault::Fail } else { Fault::None }
    });
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    let ended = |status: &promethean_projections::ProjectorStatus| {
        status.position == 710 || status.activity == Activity::Halted
    };
    let status = until(&projections, "p", ended).await;
    assert_eq!((status.activity, store.failed()), (Activity::Running, 3), "{what}: {:?}", status.last_error);
    assert_eq!((status.failures, status.dead_letters), (0, 0), "{what}");
    let docs = docs(&world, "docs").await;
    let seen: u64 = docs.iter().map(|doc| doc["seen"].as_u64().unwrap()).sum();
    assert_eq!((docs.len(), seen), (350, 360), "{what}");
    assert_eq!(payloads(&world, "out").await.len(), 10, "{what}");
    projections.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_snapshots_it_begins_with_the_log_when_the_store_works_again() {
    soon("the test", async {
        let (world, store) = faulty().await;
        publish(&world, 0..10, 1).await;
        let at_open = ALL[0].1;
        store.rule(move |asked| if at_open(asked) { Fault::Fail } else { Fault::None });
        let projections = world.open_projections(declared(seeded(COUNT))).await;
        until(&projections, "p", |status| status.activity == Activity::Retrying).await;
        store.heal();
        caught_up(&world, &projections, "p").await;
        assert_eq!(docs(&world, "docs").await[0]["seen"], 10);
        assert_eq!(payloads(&world, "out").await.len(), 10);
        assert_eq!(stored_collections(&world).await, ["docs", "docs:deleted"]);
        projections.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_can_be_stopped_while_it_waits() {
    for (what, meant) in ALL {
        soon(what, stopped_while_it_waits(what, meant)).await;
    }
}

/// The projector is stopped in the wait after its third failure: otherwise it would fail once more.
async fn stopped_while_it_waits(what: &str, meant: Meant) {
    let (world, store) = faulty().await;
    publish(&world, 0..20, 10).await;
    compact(&world).await;
    publish(&world, 20..22, 2).await;
    let asked = AtomicUsize::new(0);
    store.rule(move |what| match meant(what).then(|| asked.fetch_add(1, Ordering::SeqCst)) {
        None => Fault::None,
        Some(2) => Fault::HoldThenFail,
        Some(_) => Fault::Fail,
    });
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    store.reached().await;
    tokio::join!(projections.close(), async { store.let_through() });
    assert_eq!(store.failed(), 3, "{what}");
}

fn strict() -> String {
    format!(r#"if .payload.bad then error("bad " + .key) else {COUNT} end"#)
}

/// Publishes and compacts ten keys, two of which cannot be projected.
async fn with_bad_ones(world: &World) {
    publish(world, 0..20, 10).await;
    for key in ["k3", "k7"] {
        world.publish_json("in", key, r#"{"bad":true}"#).await;
    }
    compact(world).await;
}

async fn a_snapshot_that_fails_becomes_a_dead_letter(kind: StoreKind) {
    let mut world = World::running(kind).await;
    with_bad_ones(&world).await;
    let projector = Projector { retries: 2, ..seeded(&strict()) };
    let projections = world.open_projections(declared(projector.clone())).await;
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.activity, status.failures, status.dead_letters), (Activity::Running, 6, 2));
    assert_eq!(status.rebuild.unwrap().skipped, 0);
    assert_eq!(docs(&world, "docs").await.len(), 8);
    let letters = world.bus.dead_letters(&topic("in"), &group("p"), None, 100).await.unwrap().letters;
    assert_eq!(letters.iter().map(|letter| letter.offset.get()).collect::<Vec<_>>(), [20, 21]);
    let posted = payloads(&world, "in.dlq").await;
    assert!(posted[0]["reason"].as_str().unwrap().contains("bad k3"), "{}", posted[0]);
    assert_eq!((&posted[0]["attempts"], &posted[0]["event"]["key"]), (&json!(3), &json!("k3")));
    projections.close().await;
    world = world.restart().await;
    let projections = world.open_projections(declared(projector)).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(payloads(&world, "in.dlq").await.len(), 2);
    projections.close().await;
}

async fn a_snapshot_that_fails_halts_if_so_it_is_set(kind: StoreKind) {
    let mut world = World::running(kind).await;
    with_bad_ones(&world).await;
    let halting = |text: &str| Projector { on_failure: OnFailure::Halt, retries: 1, ..seeded(text) };
    let projections = world.open_projections(declared(halting(&strict()))).await;
    let halted = |failures: u64| {
        move |status: &promethean_projections::ProjectorStatus| {
            status.failures == failures && status.activity == Activity::Halted
        }
    };
    let status = until(&projections, "p", halted(2)).await;
    assert!(status.last_error.unwrap().contains("bad k3"));
    assert_eq!(payloads(&world, "in.dlq").await, Vec::<Value>::new());
    assert_eq!(docs(&world, "docs").await.len(), 0, "nothing takes its place before all is read");
    projections.resume(&group("p")).await.unwrap();
    until(&projections, "p", halted(4)).await;
    projections.rebuild(&group("p"), false).await.unwrap();
    until(&projections, "p", halted(6)).await;
    projections.close().await;
    world = world.restart().await;
    let projections = world.open_projections(declared(halting(COUNT))).await;
    caught_up(&world, &projections, "p").await;
    let docs = docs(&world, "docs").await;
    assert_eq!((docs.len(), docs.iter().all(|doc| doc["seen"] == 1)), (10, true));
    projections.close().await;
}

/// Events after the last snapshot of a key are read from the topic, before the projector has a cursor.
async fn an_event_behind_the_snapshots_that_fails_becomes_a_dead_letter(kind: StoreKind) {
    let world = World::running(kind).await;
    with_bad_ones(&world).await;
    world.publish_json("in", "k8", r#"{"bad":true}"#).await;
    publish(&world, 22..24, 10).await;
    let projections = world.open_projections(declared(seeded(&strict()))).await;
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.dead_letters, status.rebuild.unwrap().skipped), (3, 0));
    assert_eq!(docs(&world, "docs").await.len(), 9);
    projections.close().await;
}

/// A snapshot that was given up in a beginning that did not end stays one dead letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_up_is_left_out_when_it_begins_again() {
    soon("the test", async {
        let (world, store) = faulty().await;
        with_bad_ones(&world).await;
        let swap = ALL[6].1;
        store.rule(move |asked| if swap(asked) { Fault::Fail } else { Fault::None });
        let projections = world.open_projections(declared(seeded(&strict()))).await;
        until(&projections, "p", |status| status.dead_letters == 2 && status.activity == Activity::Retrying)
            .await;
        projections.close().await;
        store.heal();
        let projections = world.open_projections(declared(seeded(COUNT))).await;
        caught_up(&world, &projections, "p").await;
        assert_eq!((docs(&world, "docs").await.len(), payloads(&world, "in.dlq").await.len()), (8, 2));
        // The redrive publishes the state of the letter, so that the projector gets it as any event.
        let redriven =
            world.bus.redrive(&topic("in"), &group("p"), LetterChoice::All, RedriveTo::Topic).await;
        assert_eq!(redriven.unwrap().redriven, 2);
        caught_up(&world, &projections, "p").await;
        assert_eq!(docs(&world, "docs").await.len(), 10);
        projections.close().await;
    })
    .await;
}

/// The letter holds the whole state; the topic holds only its last change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redriven_snapshot_is_the_whole_state() {
    soon("the test", async {
        let world = World::running(StoreKind::Memory).await;
        for n in 0..5 {
            world.publish_json("in", "k", &json!({format!("f{n}"): n}).to_string()).await;
        }
        super::projector_begins_with_snapshots::snapshots(
            &world,
            super::projector_begins_with_snapshots::merging(),
        )
        .await;
        let once = r#"if .payload.f0 == 0 and .headers == null and .offset < 5 then error("not yet") else
            {upsert: {collection: "docs", key: .key, set: .payload}} end"#;
        let projections = world.open_projections(declared(seeded(once))).await;
        caught_up(&world, &projections, "p").await;
        assert_eq!(docs(&world, "docs").await.len(), 0);
        world.bus.redrive(&topic("in"), &group("p"), LetterChoice::All, RedriveTo::Topic).await.unwrap();
        caught_up(&world, &projections, "p").await;
        let whole = json!([{"_key": "k", "f0": 0, "f1": 1, "f2": 2, "f3": 3, "f4": 4}]);
        assert_eq!(Value::from(docs(&world, "docs").await), whole);
        projections.close().await;
    })
    .await;
}
