//! The changes of a collection as a topic.

use promethean_bus::dead_letter::user_event;
use promethean_model::Offset;
use serde_json::json;

use super::world::*;

on_both!(every_change_is_an_event_once);

async fn every_change_is_an_event_once(mut world: World) {
    let logic = || {
        jq(r#"
            if .payload.drop then {delete: {collection: "docs", key: .key}}
            else {upsert: {collection: "docs", key: .key, inc: {n: 1}}},
                 {upsert: {collection: "docs", key: .key, set: .payload}} end
        "#)
    };
    let mut all = declared(projector(logic(), &["docs"]));
    all.collections[0].history = true;
    let projections = world.open(all.clone()).await;
    for (key, payload) in [
        ("a", r#"{"a":"x"}"#),
        ("b", "{}"),
        ("a", r#"{"drop":true}"#),
        ("a", r#"{"drop":true}"#),
        ("a", "{}"),
    ] {
        world.publish("in", key, payload).await;
    }
    caught_up(&world, &projections, "p").await;
    projections.close().await;
    world = world.restart().await;
    let projections = world.open(all).await;
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
    // A rebuild says nothing.
    projections.rebuild(&group("p"), false).await.unwrap();
    until(&projections, "p", |status| status.rebuild.as_ref().is_some_and(|rebuild| !rebuild.running)).await;
    assert_eq!(world.payloads("docs.changed").await.len(), 4);
    projections.close().await;
}
