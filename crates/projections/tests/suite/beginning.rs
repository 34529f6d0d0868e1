//! Beginning with snapshots where something is in the way.

use std::sync::atomic::{AtomicUsize, Ordering};

use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_projections::{Activity, OnFailure, Projector};
use promethean_store::port::{Batch, CollectionOp, StateOp};
use serde_json::{Value, json};

use super::seed::{COUNT, compact, publish, seeded};
use super::shaky::{Answer, Asked};
use super::world::*;

on_both!(
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

type Meant = fn(&Asked<'_>) -> bool;

/// Everything that a beginning asks of the store.
const ALL: [(&str, Meant); 7] = [
    (
        "where the compactor is",
        |asked| matches!(asked, Asked::Cursor(group) if group.as_str() == "compactor:in"),
    ),
    ("snapshots", |asked| matches!(asked, Asked::Events(topic) if topic.as_str() == "in.snapshot")),
    ("snapshots of keys", |asked| matches!(asked, Asked::Latest(topic) if topic.as_str() == "in.snapshot")),
    ("events behind them", |asked| matches!(asked, Asked::Events(topic) if topic.as_str() == "in")),
    ("documents", |asked| matches!(asked, Asked::Commit(batch) if writes_docs(batch))),
    ("comparing", |asked| matches!(asked, Asked::Docs)),
    ("the swap", |asked| matches!(asked, Asked::Commit(batch) if renames(batch))),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_is_waited_for() {
    for (what, meant) in ALL {
        within(waited_for(what, meant)).await;
    }
}

/// Works once, then fails three times, then works.
async fn waited_for(what: &str, meant: Meant) {
    let (world, shaky) = World::shaky().await;
    publish(&world, 0..700, 350).await;
    compact(&world).await;
    publish(&world, 700..710, 10).await;
    let (asked, skip) = (AtomicUsize::new(0), usize::from(what.starts_with("snapshots")));
    shaky.rule(move |what| {
        let nth = if meant(what) { asked.fetch_add(1, Ordering::SeqCst) } else { 0 };
        if meant(what) && (skip..skip + 3).contains(&nth) { Answer::Fails } else { Answer::Works }
    });
    let projections = world.open(declared(seeded(COUNT))).await;
    let ended = |status: &promethean_projections::ProjectorStatus| {
        status.position == 710 || status.activity == Activity::Halted
    };
    let status = until(&projections, "p", ended).await;
    assert_eq!((status.activity, shaky.failed()), (Activity::Running, 3), "{what}: {:?}", status.last_error);
    assert_eq!((status.failures, status.dead_letters), (0, 0), "{what}");
    let docs = world.docs("docs").await;
    let seen: u64 = docs.iter().map(|doc| doc["seen"].as_u64().unwrap()).sum();
    assert_eq!((docs.len(), seen), (350, 360), "{what}");
    assert_eq!(world.payloads("out").await.len(), 10, "{what}");
    projections.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_snapshots_it_begins_with_the_log_when_the_store_works_again() {
    within(async {
        let (world, shaky) = World::shaky().await;
        publish(&world, 0..10, 1).await;
        let at_open = ALL[0].1;
        shaky.rule(move |asked| if at_open(asked) { Answer::Fails } else { Answer::Works });
        let projections = world.open(declared(seeded(COUNT))).await;
        until(&projections, "p", |status| status.activity == Activity::Retrying).await;
        shaky.heal();
        caught_up(&world, &projections, "p").await;
        assert_eq!(world.docs("docs").await[0]["seen"], 10);
        assert_eq!(world.payloads("out").await.len(), 10);
        assert_eq!(world.store.collections(None, 10).await.unwrap().len(), 1);
        projections.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_can_be_stopped_while_it_waits() {
    for (what, meant) in ALL {
        within(stopped_while_it_waits(what, meant)).await;
    }
}

/// It hears of it in the wait after its third failure: otherwise it would fail once more.
async fn stopped_while_it_waits(what: &str, meant: Meant) {
    let (world, shaky) = World::shaky().await;
    publish(&world, 0..20, 10).await;
    compact(&world).await;
    publish(&world, 20..22, 2).await;
    let asked = AtomicUsize::new(0);
    shaky.rule(move |what| match meant(what).then(|| asked.fetch_add(1, Ordering::SeqCst)) {
        None => Answer::Works,
        Some(2) => Answer::HeldFails,
        Some(_) => Answer::Fails,
    });
    let projections = world.open(declared(seeded(COUNT))).await;
    shaky.reached().await;
    tokio::join!(projections.close(), async { shaky.let_through() });
    assert_eq!(shaky.failed(), 3, "{what}");
}

fn strict() -> String {
    format!(r#"if .payload.bad then error("bad " + .key) else {COUNT} end"#)
}

/// Two keys that cannot be projected among ten.
async fn with_bad_ones(world: &World) {
    publish(world, 0..20, 10).await;
    for key in ["k3", "k7"] {
        world.publish("in", key, r#"{"bad":true}"#).await;
    }
    compact(world).await;
}

async fn a_snapshot_that_fails_becomes_a_dead_letter(mut world: World) {
    with_bad_ones(&world).await;
    let projector = Projector { retries: 2, ..seeded(&strict()) };
    let projections = world.open(declared(projector.clone())).await;
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.activity, status.failures, status.dead_letters), (Activity::Running, 6, 2));
    assert_eq!(status.rebuild.unwrap().skipped, 0);
    assert_eq!(world.docs("docs").await.len(), 8);
    let letters = world.bus.dead_letters(&topic("in"), &group("p"), None, 100).await.unwrap().letters;
    assert_eq!(letters.iter().map(|letter| letter.offset.get()).collect::<Vec<_>>(), [20, 21]);
    let posted = world.payloads("in.dlq").await;
    assert!(posted[0]["reason"].as_str().unwrap().contains("bad k3"), "{}", posted[0]);
    assert_eq!((&posted[0]["attempts"], &posted[0]["event"]["key"]), (&json!(3), &json!("k3")));
    projections.close().await;
    world = world.restart().await;
    let projections = world.open(declared(projector)).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(world.payloads("in.dlq").await.len(), 2);
    projections.close().await;
}

async fn a_snapshot_that_fails_halts_if_so_it_is_set(mut world: World) {
    with_bad_ones(&world).await;
    let halting = |text: &str| Projector { on_failure: OnFailure::Halt, retries: 1, ..seeded(text) };
    let projections = world.open(declared(halting(&strict()))).await;
    let halted = |failures: u64| {
        move |status: &promethean_projections::ProjectorStatus| {
            status.failures == failures && status.activity == Activity::Halted
        }
    };
    let status = until(&projections, "p", halted(2)).await;
    assert!(status.last_error.unwrap().contains("bad k3"));
    assert_eq!(world.payloads("in.dlq").await, Vec::<Value>::new());
    assert_eq!(world.docs("docs").await.len(), 0, "nothing takes its place before all is read");
    projections.resume(&group("p")).await.unwrap();
    until(&projections, "p", halted(4)).await;
    projections.rebuild(&group("p"), false).await.unwrap();
    until(&projections, "p", halted(6)).await;
    projections.close().await;
    world = world.restart().await;
    let projections = world.open(declared(halting(COUNT))).await;
    caught_up(&world, &projections, "p").await;
    let docs = world.docs("docs").await;
    assert_eq!((docs.len(), docs.iter().all(|doc| doc["seen"] == 1)), (10, true));
    projections.close().await;
}

/// Those between the last snapshots of different keys are read from the topic, before the projector has a place.
async fn an_event_behind_the_snapshots_that_fails_becomes_a_dead_letter(world: World) {
    with_bad_ones(&world).await;
    world.publish("in", "k8", r#"{"bad":true}"#).await;
    publish(&world, 22..24, 10).await;
    let projections = world.open(declared(seeded(&strict()))).await;
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.dead_letters, status.rebuild.unwrap().skipped), (3, 0));
    assert_eq!(world.docs("docs").await.len(), 9);
    projections.close().await;
}

/// Given up in a beginning that did not end: it stays a dead letter, of which there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_given_up_is_left_out_when_it_begins_again() {
    within(async {
        let (world, shaky) = World::shaky().await;
        with_bad_ones(&world).await;
        let swap = ALL[6].1;
        shaky.rule(move |asked| if swap(asked) { Answer::Fails } else { Answer::Works });
        let projections = world.open(declared(seeded(&strict()))).await;
        until(&projections, "p", |status| status.dead_letters == 2 && status.activity == Activity::Retrying)
            .await;
        projections.close().await;
        shaky.heal();
        let projections = world.open(declared(seeded(COUNT))).await;
        caught_up(&world, &projections, "p").await;
        assert_eq!((world.docs("docs").await.len(), world.payloads("in.dlq").await.len()), (8, 2));
        // What the letter holds is published, so that it comes to the projector as any event.
        let redriven =
            world.bus.redrive(&topic("in"), &group("p"), LetterChoice::All, RedriveTo::Topic).await;
        assert_eq!(redriven.unwrap().redriven, 2);
        caught_up(&world, &projections, "p").await;
        assert_eq!(world.docs("docs").await.len(), 10);
        projections.close().await;
    })
    .await;
}

/// The letter has the state, the topic the last change of it only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redriven_snapshot_is_the_whole_state() {
    within(async {
        let world = World::memory().await;
        for n in 0..5 {
            world.publish("in", "k", &json!({format!("f{n}"): n}).to_string()).await;
        }
        super::seed::snapshots(&world, super::seed::merging()).await;
        let once = r#"if .payload.f0 == 0 and .headers == null and .offset < 5 then error("not yet") else
            {upsert: {collection: "docs", key: .key, set: .payload}} end"#;
        let projections = world.open(declared(seeded(once))).await;
        caught_up(&world, &projections, "p").await;
        assert_eq!(world.docs("docs").await.len(), 0);
        world.bus.redrive(&topic("in"), &group("p"), LetterChoice::All, RedriveTo::Topic).await.unwrap();
        caught_up(&world, &projections, "p").await;
        let whole = json!([{"_key": "k", "f0": 0, "f1": 1, "f2": 2, "f3": 3, "f4": 4}]);
        assert_eq!(Value::from(world.docs("docs").await), whole);
        projections.close().await;
    })
    .await;
}
