//! An older version does not bring back a document that a newer version deleted.

use promethean_bus::publish::Publish;
use promethean_projections::{Projections, ProjectorStatus};
use serde_json::json;

use super::world::*;

on_both_stores!(
    an_older_version_does_not_bring_a_document_back,
    a_deletion_that_comes_first_counts,
    the_version_is_forgotten_after_a_day,
);

const VERSIONED: &str = r#"
    if .payload == null then {delete: {collection: "docs", key: .key}}
    elif .payload.gone then {delete: {collection: "docs", key: .key, version: .payload.v}}
    else {upsert: {collection: "docs", key: .key, set: {a: .payload.a}, version: .payload.v}} end"#;
const HOUR_MS: i64 = 3_600_000;
const START_MS: i64 = 1_700_000_000_000;

async fn publish(world: &World, key: &str, hour: i64, payload: &str) {
    let event = Publish::new(topic("in"), payload.to_owned()).key(key).ts(START_MS + hour * HOUR_MS);
    world.bus.publish(event).await.unwrap();
}

async fn open(world: &World) -> Projections {
    world.open_projections(declared(projector(jq(VERSIONED), &["docs"]))).await
}

/// Rebuilds, and checks that nothing has changed.
async fn rebuild(projections: &Projections) {
    projections.rebuild(&group("p"), false).await.unwrap();
    let is_over = |status: &ProjectorStatus| status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running);
    let status = until(projections, "p", is_over).await.rebuild.unwrap();
    assert_eq!((status.equal, status.skipped, &status.error), (Some(true), 0, &None));
}

/// How many versions of deleted documents the store has.
async fn kept(world: &World) -> usize {
    let docs = world.store.docs_by_key(&collection("docs:deleted"), None, 1_000).await.unwrap();
    docs.iter().filter(|doc| doc.version.is_some()).count()
}

async fn an_older_version_does_not_bring_a_document_back(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let mut projections = open(&world).await;
    publish(&world, "k", 0, r#"{"a":"x","v":5}"#).await;
    publish(&world, "k", 0, r#"{"gone":true,"v":6}"#).await;
    publish(&world, "k", 1, r#"{"a":"old","v":5}"#).await;
    // Also where the deletion has no version: the document's own counts.
    publish(&world, "j", 0, r#"{"a":"x","v":5}"#).await;
    publish(&world, "j", 0, "null").await;
    publish(&world, "j", 1, r#"{"a":"old","v":5}"#).await;
    for again in 0..3 {
        caught_up(&world, &projections, "p").await;
        assert!(docs(&world, "docs").await.is_empty(), "{again}");
        // Nothing of it is shown.
        let shown = projections.collections().await.unwrap();
        assert_eq!(
            shown.iter().map(|info| (info.collection.name.as_str(), info.docs)).collect::<Vec<_>>(),
            [("docs", 0)]
        );
        assert!(projections.list(&collection("docs:deleted"), &[], 0, 10).await.is_err());
        rebuild(&projections).await;
        assert_eq!(kept(&world).await, 2);
        projections.close().await;
        world = world.restart().await;
        projections = open(&world).await;
        publish(&world, "k", 2, r#"{"a":"old","v":4}"#).await;
        publish(&world, "j", 2, r#"{"a":"old","v":4}"#).await;
    }
    // A newer version does.
    publish(&world, "k", 3, r#"{"a":"new","v":7}"#).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "k", "a": "new", "_v": 7})]);
    assert_eq!(kept(&world).await, 1);
    rebuild(&projections).await;
    projections.close().await;
}

async fn a_deletion_that_comes_first_counts(kind: StoreKind) {
    let world = World::running(kind).await;
    let projections = open(&world).await;
    publish(&world, "k", 0, r#"{"gone":true,"v":6}"#).await;
    publish(&world, "k", 0, r#"{"a":"late","v":5}"#).await;
    publish(&world, "k", 0, r#"{"gone":true,"v":3}"#).await;
    publish(&world, "k", 0, r#"{"a":"late","v":6}"#).await;
    caught_up(&world, &projections, "p").await;
    assert!(docs(&world, "docs").await.is_empty());
    rebuild(&projections).await;
    projections.close().await;
}

async fn the_version_is_forgotten_after_a_day(kind: StoreKind) {
    let world = World::running(kind).await;
    let projections = open(&world).await;
    for n in 0..30 {
        publish(&world, &format!("k{n}"), 0, r#"{"gone":true,"v":6}"#).await;
    }
    publish(&world, "k1", 23, r#"{"a":"early","v":5}"#).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!((docs(&world, "docs").await, kept(&world).await), (vec![], 30));
    publish(&world, "k1", 24, r#"{"a":"a day later","v":5}"#).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(docs(&world, "docs").await, [json!({"_key": "k1", "a": "a day later", "_v": 5})]);
    // Later changes remove what is forgotten, some at a time.
    for v in 10..14 {
        publish(&world, "other", 25 + v, &json!({"a": "x", "v": v}).to_string()).await;
        caught_up(&world, &projections, "p").await;
    }
    assert_eq!(kept(&world).await, 0);
    rebuild(&projections).await;
    assert_eq!(docs(&world, "docs").await.len(), 2);
    projections.close().await;
}
