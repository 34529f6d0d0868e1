//! Retention that waits for projectors.

use promethean_model::{Offset, Retention, TopicSettings};
use promethean_projections::{Activity, CompactorOptions, Declared, OnFailure, Projections, Projector};
use serde_json::json;

use super::world::*;

on_both_stores!(
    retention_waits_for_a_projector_that_is_halted,
    retention_waits_over_a_restart,
    retention_does_not_wait_for_a_removed_projector,
    retention_waits_for_a_rebuild,
    retention_waits_for_a_compactor,
);

const STRICT: &str = r#"if .payload.bad then error("bad") else
    {upsert: {collection: "docs", key: .key, inc: {n: 1}}} end"#;

fn halting() -> Declared {
    declared(Projector { on_failure: OnFailure::Halt, ..projector(jq(STRICT), &["docs"]) })
}

async fn keep(world: &World, count: u64) {
    let retention = Retention { count: Some(count), ..Retention::default() };
    world.bus.set_topic(&topic("in"), TopicSettings { retention, ..TopicSettings::default() }).await.unwrap();
}

async fn fill(world: &World, events: usize) {
    for _ in 0..events {
        world.publish_json("in", "k", &json!({"filler": "x".repeat(500)}).to_string()).await;
    }
}

async fn earliest(world: &World) -> u64 {
    world.maintain().await;
    world.store.topic_info(&topic("in")).await.unwrap().unwrap().earliest.get()
}

async fn until_held(projections: &Projections, is_so: impl Fn(Option<u64>) -> bool) {
    let is_so = async || is_so(projections.held().get(&topic("in")).copied());
    promethean_testkit::until("retention waits", is_so).await;
}

/// A projector that is halted at offset 10 of 101.
async fn halted(world: &World) -> Projections {
    let projections = world.open_projections(halting()).await;
    fill(world, 10).await;
    world.publish_json("in", "k", r#"{"bad":true}"#).await;
    fill(world, 90).await;
    until(&projections, "p", |status| status.activity == Activity::Halted).await;
    projections
}

async fn retention_waits_for_a_projector_that_is_halted(kind: StoreKind) {
    let world = World::running(kind).await;
    keep(&world, 5).await;
    let projections = halted(&world).await;
    assert_eq!(earliest(&world).await, 10);
    until_held(&projections, |held| held == Some(86)).await;
    projections.close().await;
    // The repaired projector goes on without loss.
    let projections = world.open_projections(declared(projector(jq(STRICT), &["docs"]))).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "k", "n": 100})]);
    assert_eq!(earliest(&world).await, 96);
    until_held(&projections, |held| held.is_none()).await;
    projections.close().await;
}

async fn retention_waits_over_a_restart(kind: StoreKind) {
    let mut world = World::running(kind).await;
    keep(&world, 5).await;
    halted(&world).await.close().await;
    world = world.restart().await;
    assert_eq!(earliest(&world).await, 10, "before any projector is there");
    let projections = world.open_projections(halting()).await;
    assert_eq!(earliest(&world).await, 10);
    projections.close().await;
}

async fn retention_does_not_wait_for_a_removed_projector(kind: StoreKind) {
    let mut world = World::running(kind).await;
    keep(&world, 5).await;
    halted(&world).await.close().await;
    world = world.restart().await;
    let projections = world.open_projections(Declared::default()).await;
    assert_eq!(earliest(&world).await, 96);
    projections.close().await;
}

async fn retention_waits_for_a_rebuild(kind: StoreKind) {
    let world = World::running(kind).await;
    let projections = world.open_projections(declared(projector(jq(STRICT), &["docs"]))).await;
    fill(&world, 4_000).await;
    caught_up(&world, &projections, "p").await;
    projections.rebuild(&group("p"), false).await.unwrap();
    keep(&world, 5).await;
    let is_over = |projections: &Projections| {
        let status = projections.projector(&group("p")).unwrap();
        status.rebuild.is_some_and(|rebuild| !rebuild.running)
    };
    while !is_over(&projections) {
        world.maintain().await;
    }
    let rebuild = projections.projector(&group("p")).unwrap().rebuild.unwrap();
    assert_eq!((rebuild.error, rebuild.equal), (None, Some(true)));
    promethean_testkit::until("retention goes on", async || earliest(&world).await >= 3_995).await;
    projections.close().await;
}

async fn retention_waits_for_a_compactor(kind: StoreKind) {
    let world = World::running(kind).await;
    keep(&world, 5).await;
    fill(&world, 50).await;
    let compactors = vec![CompactorOptions::new(topic("in"))];
    let projections = world.open_projections(Declared { compactors, ..Declared::default() }).await;
    let mut snapshots = world.store.watch(&topic("in.snapshot"));
    snapshots.past(Offset::ZERO).await.unwrap();
    fill(&world, 50).await;
    let kept_from = earliest(&world).await;
    assert!(kept_from <= 50, "the next round is in half a minute: {kept_from}");
    projections.close().await;
}
