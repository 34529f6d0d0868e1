//! The feed: the changes of a collection as events of a topic.

use promethean_bus::user_event;
use promethean_model::{Offset, TopicSettings};
use promethean_projections::{Direction, Index, Projector};
use serde_json::json;

use super::world::*;

on_both_stores!(
    every_change_is_an_event_once,
    a_feed_tells_only_what_happened,
    what_one_leaves_another_takes
);

async fn every_change_is_an_event_once(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let logic = || {
        jq(r#"
            if .payload.drop then {delete: {collection: "docs", key: .key}}
            else {upsert: {collection: "docs", key: .key, inc: {n: 1}}},
                 {upsert: {collection: "docs", key: .key, set: .payload}} end
        "#)
    };
    let mut all = declared(projector(logic(), &["docs"]));
    all.collections[0].history = true;
    let projections = world.open_projections(all.clone()).await;
    for (key, payload) in [
        ("a", r#"{"a":"x"}"#),
        ("b", "{}"),
        ("a", r#"{"drop":true}"#),
        ("a", r#"{"drop":true}"#),
        ("a", "{}"),
    ] {
        world.publish_json("in", key, payload).await;
    }
    caught_up(&world, &projections, "p").await;
    projections.close().await;
    world = world.restart().await;
    let projections = world.open_projections(all).await;
    caught_up(&world, &projections, "p").await;
    let page = world.store.read(&topic("docs.changed"), Offset::ZERO, Default::default()).await.unwrap();
    let mut seen = Vec::new();
    for event in &page.events {
        let event = user_event(event).unwrap();
        let headers = event.headers.unwrap();
        let offset: u64 = headers["x-source-offset"].parse().unwrap();
        let source = world.bus.event_at(&topic("in"), Offset(offset)).await.unwrap().unwrap();
        assert_eq!((event.ts, event.caused_by.unwrap()), (source.ts, vec![source.id]));
        assert_eq!(headers["x-source-topic"], "in");
        let payload: serde_json::Value = serde_json::from_str(event.payload.get()).unwrap();
        seen.push((offset, event.key.unwrap(), payload["n"].clone(), payload["a"].clone()));
    }
    let (one, none) = (json!(1), json!(null));
    let expected = [
        (0, "a".to_owned(), one.clone(), json!("x")),
        (1, "b".to_owned(), one.clone(), none.clone()),
        (2, "a".to_owned(), none.clone(), none.clone()),
        (4, "a".to_owned(), one, none),
    ];
    assert_eq!(seen, expected, "what changes nothing is no change, and two changes of one event are one");
    // A rebuild publishes nothing to the feed.
    projections.rebuild(&group("p"), false).await.unwrap();
    until(&projections, "p", |status| status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running)).await;
    assert_eq!(payloads(&world, "docs.changed").await.len(), 4);
    projections.close().await;
}

/// The latest payload of each key of a feed.
async fn folded(world: &World) -> Vec<serde_json::Value> {
    let page = world.store.read(&topic("docs.changed"), Offset::ZERO, Default::default()).await.unwrap();
    let mut latest = std::collections::BTreeMap::new();
    for event in &page.events {
        let payload: serde_json::Value = serde_json::from_slice(event.payload()).unwrap();
        latest.insert(event.key().unwrap().to_owned(), payload);
    }
    let plain = |mut doc: serde_json::Value| {
        doc.as_object_mut().unwrap().retain(|name, _| name != "_ts" && name != "_offset");
        doc
    };
    latest.into_values().filter(|doc| !doc.is_null()).map(plain).collect()
}

async fn a_feed_tells_only_what_happened(kind: StoreKind) {
    let world = World::running(kind).await;
    let logic = jq(r#"{upsert: {collection: "docs", key: .key, inc: {n: 1}, set: .payload.set}},
           (.payload.to | select(. != null) | {publish: {topic: ., payload: 1}})"#);
    let mut all = declared(projector(logic, &["docs"]));
    all.collections[0].history = true;
    all.collections[0].indexes =
        vec![Index { fields: vec![("a".to_owned(), Direction::Ascending)], unique: true }];
    world
        .bus
        .set_topic(&topic("strict"), TopicSettings { compacted: true, ..TopicSettings::default() })
        .await
        .unwrap();
    // All in one page: an event whose publish is refused, an event with a taken unique value, and good events around them.
    for (key, payload) in [
        ("k", r#"{"to":"strict","set":{}}"#),
        ("k", r#"{"set":{"a":"x"}}"#),
        ("m", r#"{"set":{"a":"x"}}"#),
        ("k", r#"{"set":{}}"#),
        ("n", r#"{"set":{"a":"y"},"to":"out"}"#),
    ] {
        world.publish_json("in", key, payload).await;
    }
    let projections = world.open_projections(all).await;
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.projected, status.dead_letters), (3, 2), "{status:?}");
    let docs = docs(&world, "docs").await;
    assert_eq!(docs, [json!({"_key": "k", "a": "x", "n": 2}), json!({"_key": "n", "a": "y", "n": 1})]);
    assert_eq!(folded(&world).await, docs);
    assert_eq!(payloads(&world, "docs.changed").await.len(), 3);
    projections.close().await;
}

/// Also if one event makes both changes, in any order of keys.
async fn what_one_leaves_another_takes(kind: StoreKind) {
    let world = World::running(kind).await;
    let logic = jq(
        r#".payload | {delete: {collection: "docs", key: .from}}, {upsert: {collection: "docs", key: .to, set: {a: "x"}}}"#,
    );
    // Each event in a commit of its own: events folded together leave few documents.
    let mut all = declared(Projector { batch: 1, ..projector(logic, &["docs"]) });
    all.collections[0].indexes =
        vec![Index { fields: vec![("a".to_owned(), Direction::Ascending)], unique: true }];
    let projections = world.open_projections(all).await;
    for n in 0..40 {
        let payload = json!({"from": format!("k{}", n * 7 % 11), "to": format!("k{}", (n + 1) * 7 % 11)});
        world.publish_json("in", "k", &payload.to_string()).await;
    }
    let status = caught_up(&world, &projections, "p").await;
    assert_eq!((status.failures, status.last_error), (0, None));
    assert_eq!(docs(&world, "docs").await.len(), 1);
    projections.close().await;
}
