//! The history of a collection that has documents begins with these documents.

use promethean_projections::time_travel::feed::KeyPage;
use promethean_projections::{Declared, ProjectionError, Projections};
use serde_json::Value;

use super::world::*;

on_both_stores!(
    history_that_is_turned_on_later_has_all_documents,
    a_feed_that_was_deleted_begins_anew,
    history_that_was_off_for_a_while_has_a_gap,
);

const COPY: &str = r#"
    if .payload == null then {delete: {collection: "docs", key: .key}}
    else {upsert: {collection: "docs", key: .key, set: .payload}} end
"#;

fn with(history: bool) -> Declared {
    let mut all = declared(projector(jq(COPY), &["docs"]));
    all.collections[0].history = history;
    all
}

async fn at(projections: &Projections, at: i64) -> Result<Vec<Value>, ProjectionError> {
    let page = KeyPage { after: None, limit: 1000 };
    let found = projections.collection_at(&collection("docs"), at, page).await?;
    Ok(found.documents.iter().map(|doc| serde_json::from_str(doc.document.get()).unwrap()).collect())
}

/// Waits until the feed has the documents there are.
async fn begun(world: &World, projections: &Projections) {
    let wait = async {
        while at(projections, promethean_model::Clock::wall_ms(&*world.clock)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon("the history begins", wait).await;
    world.pass(1000);
}

async fn served(world: &World) -> Vec<Value> {
    let docs = world.store.docs_by_key(&collection("docs"), None, 10_000).await.unwrap();
    docs.iter().map(|doc| serde_json::from_str(&doc.body).unwrap()).collect()
}

/// Publishes an event, and lets some time pass. Returns the time between.
async fn publish(world: &World, key: &str, payload: &str) -> i64 {
    world.publish_json("in", key, payload).await;
    world.pass(500);
    let now = promethean_model::Clock::wall_ms(&*world.clock);
    world.pass(500);
    now
}

async fn history_that_is_turned_on_later_has_all_documents(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let projections = world.open_projections(with(false)).await;
    let mut before = 0;
    for n in 0..300 {
        before = publish(&world, &format!("k{n}"), r#"{"a":"x"}"#).await;
    }
    caught_up(&world, &projections, "p").await;
    projections.close().await;
    world = world.restart().await;
    let projections = world.open_projections(with(true)).await;
    begun(&world, &projections).await;
    let turned_on = publish(&world, "new", r#"{"a":"y"}"#).await;
    publish(&world, "k7", "null").await;
    caught_up(&world, &projections, "p").await;
    let now = publish(&world, "k8", r#"{"a":"z"}"#).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(at(&projections, now).await.unwrap(), served(&world).await);
    assert_eq!(at(&projections, turned_on).await.unwrap().len(), 301, "with `k7` and `new`");
    assert_eq!(at(&projections, before).await.unwrap_err().code(), "history_gone");
    let page = KeyPage { after: None, limit: 1000 };
    let difference = projections.difference(&collection("docs"), turned_on, now, page).await.unwrap();
    assert_eq!(difference.differences.len(), 2, "the removal of `k7`, and the change of `k8`");
    let error = projections.difference(&collection("docs"), before, now, page).await.unwrap_err();
    assert_eq!(error.code(), "history_gone");
    // The feed is not begun again by a restart.
    let count = world.store.durable_end(&topic("docs.changed"));
    projections.close().await;
    world = world.restart().await;
    let projections = world.open_projections(with(true)).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(world.store.durable_end(&topic("docs.changed")), count);
    assert_eq!(at(&projections, now).await.unwrap(), served(&world).await);
    projections.close().await;
}

async fn a_feed_that_was_deleted_begins_anew(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let projections = world.open_projections(with(true)).await;
    let first = publish(&world, "a", r#"{"a":"x"}"#).await;
    let second = publish(&world, "b", r#"{"a":"x"}"#).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(at(&projections, first).await.unwrap().len(), 1);
    world.bus.delete_topic(&topic("docs.changed")).await.unwrap();
    assert_eq!(at(&projections, second).await.unwrap_err().code(), "history_gone", "no empty list");
    projections.close().await;
    world = world.restart().await;
    let projections = world.open_projections(with(true)).await;
    begun(&world, &projections).await;
    let now = publish(&world, "c", r#"{"a":"x"}"#).await;
    caught_up(&world, &projections, "p").await;
    assert_eq!(at(&projections, now).await.unwrap(), served(&world).await);
    assert_eq!(at(&projections, second).await.unwrap_err().code(), "history_gone");
    projections.close().await;
}

async fn history_that_was_off_for_a_while_has_a_gap(kind: StoreKind) {
    let mut world = World::running(kind).await;
    let mut off = 0;
    for (history, key) in [(true, "a"), (false, "b"), (true, "c")] {
        let projections = world.open_projections(with(history)).await;
        if history {
            begun(&world, &projections).await;
        }
        let time = publish(&world, key, r#"{"a":"x"}"#).await;
        publish(&world, "a", &format!(r#"{{"a":"{key}"}}"#)).await;
        caught_up(&world, &projections, "p").await;
        if !history {
            off = time;
        }
        projections.close().await;
        world = world.restart().await;
    }
    let projections = world.open_projections(with(true)).await;
    let now = promethean_model::Clock::wall_ms(&*world.clock);
    assert_eq!(at(&projections, now).await.unwrap(), served(&world).await);
    assert_eq!(at(&projections, off).await.unwrap_err().code(), "history_gone");
    projections.close().await;
}
