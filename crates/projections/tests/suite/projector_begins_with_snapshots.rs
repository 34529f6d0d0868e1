//! A projector begins with snapshots.

use promethean_bus::publish::Publish;
use promethean_model::{Offset, Retention, TopicSettings};
use promethean_projections::compactor::Compactor;
use promethean_projections::{
    Activity, ChangelogPrograms, CompactorOptions, OnFailure, Projector, Reducer, StartAt,
};
use serde_json::{Value, json};

use super::world::*;

on_both_stores!(
    it_begins_with_the_last_snapshot_of_each_key,
    snapshots_stand_in_for_events_that_are_gone,
    without_snapshots_it_begins_with_the_first_event,
    without_snapshots_of_what_is_gone_it_does_not_begin,
    folded_snapshots_and_the_events_after_them_count_once,
    a_rebuild_waits_until_the_projector_is_where_the_snapshots_are,
    a_halted_projector_is_not_overtaken_by_its_rebuild,
    a_projector_that_was_overtaken_is_rebuilt_from_snapshots,
    snapshots_of_some_keys_are_refused,
    folded_snapshots_stand_in_for_events_that_are_gone,
    snapshots_that_would_not_do_can_be_made_anew,
    a_compacted_snapshot_topic_is_left_alone_meanwhile,
    what_was_begun_and_not_ended_is_begun_again,
);

pub(super) const COUNT: &str = r#"
    {upsert: {collection: "docs", key: .key, set: .payload, inc: {seen: 1}}},
    {publish: {topic: "out", key: .key, payload: .payload}}
"#;

pub(super) fn seeded(text: &str) -> Projector {
    Projector { snapshots: Some(topic("in.snapshot")), ..projector(jq(text), &["docs"]) }
}

pub(super) async fn snapshots(world: &World, options: CompactorOptions) {
    let clock = world.clock.clone();
    let mut compactor = Compactor::open(&world.bus, world.store.clone(), clock, options).await.unwrap();
    compactor.run_round().await.unwrap();
}

pub(super) async fn compact(world: &World) {
    snapshots(world, CompactorOptions::new(topic("in"))).await;
}

pub(super) async fn publish(world: &World, range: std::ops::Range<u64>, keys: u64) {
    for n in range {
        world
            .publish_json("in", &format!("k{}", n % keys), &json!({"n": n, "f": "x".repeat(300)}).to_string())
            .await;
    }
}

/// Drops all but the last events, also events that projector and compactor still need.
async fn drop_all_but(world: &World, count: u64) {
    let retention = Retention { count: Some(count), ..Retention::default() };
    world.bus.set_topic(&topic("in"), TopicSettings { retention, ..TopicSettings::default() }).await.unwrap();
    lose(world, "in", "compactor:in").await;
    lose(world, "in", "p").await;
}

/// Key, `n` and `seen` of each document.
async fn seen(world: &World) -> Vec<Value> {
    let docs = docs(world, "docs").await;
    docs.iter().map(|doc| json!([doc["_key"], doc["n"], doc["seen"]])).collect()
}

async fn it_begins_with_the_last_snapshot_of_each_key(kind: StoreKind) {
    let world = World::running(kind).await;
    publish(&world, 0..30, 3).await;
    compact(&world).await;
    publish(&world, 30..40, 2).await;
    compact(&world).await;
    publish(&world, 40..43, 1).await;
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(seen(&world).await, [json!(["k0", 42, 4]), json!(["k1", 39, 1]), json!(["k2", 29, 1])]);
    let out = payloads(&world, "out").await;
    assert_eq!(out.len(), 3, "what came before it was is not published");
    // A document names the event that it comes from.
    let docs = world.store.docs_by_key(&collection("docs"), None, 10).await.unwrap();
    let from: Value = serde_json::from_str(&docs[2].body).unwrap();
    assert_eq!(from["_offset"], 29);
    projections.close().await;
}

async fn snapshots_stand_in_for_events_that_are_gone(kind: StoreKind) {
    let mut world = World::running(kind).await;
    publish(&world, 0..100, 10).await;
    compact(&world).await;
    publish(&world, 100..105, 1).await;
    drop_all_but(&world, 10).await;
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    caught_up(&world, &projections, "p").await;
    let mut expected = vec![json!(["k0", 104, 6])];
    expected.extend((1..10).map(|n| json!([format!("k{n}"), 90 + n, 1])));
    assert_eq!(seen(&world).await, expected);
    projections.close().await;
    world = world.restart().await;
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    publish(&world, 105..106, 1).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(seen(&world).await[0], json!(["k0", 105, 7]), "it goes on where it was");
    projections.close().await;
}

async fn without_snapshots_it_begins_with_the_first_event(kind: StoreKind) {
    let world = World::running(kind).await;
    publish(&world, 0..10, 1).await;
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(seen(&world).await, [json!(["k0", 9, 10])]);
    assert_eq!(payloads(&world, "out").await.len(), 10);
    assert_eq!(stored_collections(&world).await, ["docs", "docs:deleted"]);
    projections.close().await;
}

async fn without_snapshots_of_what_is_gone_it_does_not_begin(kind: StoreKind) {
    let world = World::running(kind).await;
    publish(&world, 0..100, 10).await;
    drop_all_but(&world, 10).await;
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    let status = until(&projections, "p", |status| status.activity == Activity::Halted).await;
    assert!(status.last_error.unwrap().contains("accept_loss"));
    // Snapshots that began too late miss the same events.
    compact(&world).await;
    assert_eq!(projections.rebuild(&group("p"), false).await.unwrap_err().code(), "history_gone");
    projections.rebuild(&group("p"), true).await.unwrap();
    caught_up(&world, &projections, "p").await;
    assert_eq!(seen(&world).await.len(), 10);
    projections.close().await;
}

/// The last snapshots of the keys are of different spans, so the events between are in some snapshots only.
async fn folded_snapshots_and_the_events_after_them_count_once(kind: StoreKind) {
    let world = World::running(kind).await;
    for n in 0..40_u64 {
        let key = if n % 7 == 0 { "rare" } else { "often" };
        world.publish_json("in", key, &json!({format!("f{n}"): n}).to_string()).await;
    }
    let options = CompactorOptions { reducer: Reducer::Merge, span: 6, ..CompactorOptions::new(topic("in")) };
    snapshots(&world, options).await;
    for n in 40..45_u64 {
        world.publish_json("in", "rare", &json!({format!("f{n}"): n}).to_string()).await;
    }
    let projections = world.open_projections(declared(changelog())).await;
    caught_up(&world, &projections, "p").await;
    let docs = docs(&world, "docs").await;
    let fields = |doc: &Value| doc.as_object().unwrap().len() - 1;
    assert_eq!((fields(&docs[0]), fields(&docs[1])), (34, 11));
    projections.close().await;
}

async fn a_rebuild_waits_until_the_projector_is_where_the_snapshots_are(kind: StoreKind) {
    let world = World::running(kind).await;
    let slow = Projector { batch: 1, ..seeded(COUNT) };
    let projections = world.open_projections(declared(slow)).await;
    publish(&world, 0..200, 3).await;
    compact(&world).await;
    projections.rebuild(&group("p"), false).await.unwrap();
    let status =
        until(&projections, "p", |status| status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running))
            .await;
    assert_eq!((status.rebuild.unwrap().error, status.position >= 200), (None, true));
    caught_up(&world, &projections, "p").await;
    assert_eq!(payloads(&world, "out").await.len(), 200, "the projector has done them all before");
    assert_eq!(seen(&world).await, [json!(["k0", 198, 1]), json!(["k1", 199, 1]), json!(["k2", 197, 1])]);
    projections.close().await;
}

async fn a_halted_projector_is_not_overtaken_by_its_rebuild(kind: StoreKind) {
    let world = World::running(kind).await;
    // Snapshots have no headers, so that the snapshot of the event does not fail.
    let text = format!(r#"if .headers["x-bad"] then error("bad") else {COUNT} end"#);
    let halting = Projector { on_failure: OnFailure::Halt, ..seeded(&text) };
    let projections = world.open_projections(declared(halting)).await;
    publish(&world, 0..5, 1).await;
    let bad = Publish::new(topic("in"), r#"{"n":99}"#).key("k9").header("x-bad", "1");
    world.bus.publish(bad).await.unwrap();
    publish(&world, 5..10, 1).await;
    until(&projections, "p", |status| status.activity == Activity::Halted).await;
    compact(&world).await;
    projections.rebuild(&group("p"), false).await.unwrap();
    let ended = |status: &promethean_projections::ProjectorStatus| {
        status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running)
    };
    let status = until(&projections, "p", ended).await;
    assert!(status.rebuild.unwrap().error.unwrap().contains("accept_loss"));
    assert_eq!((status.position, seen(&world).await), (5, vec![json!(["k0", 4, 5])]));
    projections.rebuild(&group("p"), true).await.unwrap();
    let status = until(&projections, "p", |status| status.activity == Activity::Running).await;
    let rebuild = status.rebuild.unwrap();
    assert_eq!((rebuild.error, rebuild.skipped), (None, 0));
    caught_up(&world, &projections, "p").await;
    assert_eq!(seen(&world).await, [json!(["k0", 9, 1]), json!(["k9", 99, 1])]);
    projections.close().await;
}

async fn a_projector_that_was_overtaken_is_rebuilt_from_snapshots(kind: StoreKind) {
    let world = World::running(kind).await;
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    publish(&world, 0..1, 1).await;
    caught_up(&world, &projections, "p").await;
    projections.close().await;
    publish(&world, 1..100, 4).await;
    compact(&world).await;
    drop_all_but(&world, 3).await;
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    until(&projections, "p", |status| status.activity == Activity::Halted).await;
    projections.rebuild(&group("p"), false).await.unwrap();
    caught_up(&world, &projections, "p").await;
    assert_eq!(until(&projections, "p", |_| true).await.activity, Activity::Running);
    assert_eq!(seen(&world).await.len(), 4);
    projections.close().await;
}

async fn snapshots_of_some_keys_are_refused(kind: StoreKind) {
    let world = World::running(kind).await;
    publish(&world, 0..10, 3).await;
    let keys = Some(["k1".to_owned()].into());
    snapshots(&world, CompactorOptions { keys, ..CompactorOptions::new(topic("in")) }).await;
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    let status = until(&projections, "p", |status| status.activity == Activity::Halted).await;
    assert!(status.last_error.unwrap().contains("some keys only"));
    projections.close().await;
    let latest = Projector { from: StartAt::Latest, ..seeded(COUNT) };
    let refused = declared(latest).validate().unwrap_err();
    assert!(refused.to_string().contains("`start` or `from`"), "{refused}");
}

/// A projector has no cursor before it has read all snapshots, so a restart in between counts no event twice.
async fn what_was_begun_and_not_ended_is_begun_again(kind: StoreKind) {
    let mut world = World::running(kind).await;
    publish(&world, 0..2_000, 1_000).await;
    compact(&world).await;
    for _ in 0..3 {
        let projections = world.open_projections(declared(seeded(COUNT))).await;
        let moved = |status: &promethean_projections::ProjectorStatus| status.rebuild.is_some();
        until(&projections, "p", moved).await;
        projections.close().await;
        world = world.restart().await;
    }
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    caught_up(&world, &projections, "p").await;
    assert!(docs(&world, "docs").await.iter().all(|doc| doc["seen"] == 1));
    assert_eq!(docs(&world, "docs").await.len(), 1_000);
    assert_eq!(world.store.durable_end(&topic("out")), Offset::ZERO);
    projections.close().await;
}

fn changelog() -> Projector {
    let programs = ChangelogPrograms {
        collection: collection("docs"),
        key: None,
        map: None,
        tombstone: None,
        version: None,
    };
    let whole =
        Projector::new(group("p"), topic("in"), programs.logic().unwrap()).writes([collection("docs")]);
    Projector { snapshots: Some(topic("in.snapshot")), ..whole }
}

pub(super) fn merging() -> CompactorOptions {
    CompactorOptions { reducer: Reducer::Merge, ..CompactorOptions::new(topic("in")) }
}

/// The snapshots of one span ask for all events from its start on; the cursor of the compactor shows that they need not be
/// read.
async fn folded_snapshots_stand_in_for_events_that_are_gone(kind: StoreKind) {
    let world = World::running(kind).await;
    for n in 0..100_u64 {
        let payload = json!({format!("f{n}"): "x".repeat(300)});
        world.publish_json("in", &format!("k{}", n % 2), &payload.to_string()).await;
    }
    snapshots(&world, merging()).await;
    drop_all_but(&world, 3).await;
    let projections = world.open_projections(declared(changelog())).await;
    caught_up(&world, &projections, "p").await;
    let docs = docs(&world, "docs").await;
    let fields: Vec<usize> = docs.iter().map(|doc| doc.as_object().unwrap().len() - 1).collect();
    assert_eq!(fields, [50, 50]);
    projections.close().await;
}

async fn snapshots_that_would_not_do_can_be_made_anew(kind: StoreKind) {
    let world = World::running(kind).await;
    publish(&world, 0..10, 3).await;
    let keys = Some(["k1".to_owned()].into());
    snapshots(&world, CompactorOptions { keys, ..CompactorOptions::new(topic("in")) }).await;
    let projections = world.open_projections(declared(seeded(COUNT))).await;
    until(&projections, "p", |status| status.activity == Activity::Halted).await;
    world.bus.delete_topic(&topic("in.snapshot")).await.unwrap();
    compact(&world).await;
    projections.rebuild(&group("p"), false).await.unwrap();
    caught_up(&world, &projections, "p").await;
    assert_eq!(until(&projections, "p", |_| true).await.activity, Activity::Running);
    assert_eq!(seen(&world).await, [json!(["k0", 9, 1]), json!(["k1", 7, 1]), json!(["k2", 8, 1])]);
    projections.close().await;
}

/// Otherwise compaction would remove snapshots of keys that change meanwhile from below the end that the projector reads to.
async fn a_compacted_snapshot_topic_is_left_alone_meanwhile(kind: StoreKind) {
    let world = World::running(kind).await;
    let settings = TopicSettings { compacted: true, ..TopicSettings::default() };
    world.bus.set_topic(&topic("in.snapshot"), settings).await.unwrap();
    let field = |n: u64| json!({format!("f{n}"): n, "filler": "x".repeat(200)}).to_string();
    for n in 0..3_000_u64 {
        world.publish_json("in", &format!("k{}", n % 1_000), &field(n / 1_000)).await;
    }
    snapshots(&world, merging()).await;
    let projections = world.open_projections(declared(changelog())).await;
    for n in 0..1_000_u64 {
        world.publish_json("in", &format!("k{n}"), &field(9)).await;
    }
    snapshots(&world, merging()).await;
    world.maintain().await;
    caught_up(&world, &projections, "p").await;
    let docs = docs(&world, "docs").await;
    assert_eq!(docs.len(), 1_000);
    assert!(docs.iter().all(|doc| doc.as_object().unwrap().len() == 6), "{}", docs[0]);
    projections.close().await;
}
