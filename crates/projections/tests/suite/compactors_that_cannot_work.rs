//! Compactors that are removed, that fail, or whose reducer has changed, and what is known of the state meanwhile.

use std::time::Duration;

use promethean_model::{Retention, TopicSettings};
use promethean_projections::compactor::CompactorOptions;
use promethean_projections::time_travel::Reducer;
use promethean_projections::{Declared, Projections};
use promethean_testkit::{Fault, StoreCall, until as until_true};

use super::world::*;

fn compacting(reducer: &Reducer) -> CompactorOptions {
    let every = Duration::from_millis(5);
    CompactorOptions { every, reducer: reducer.clone(), ..CompactorOptions::new(topic("in")) }
}

fn with(compactor: Option<CompactorOptions>, reducer: &Reducer) -> Declared {
    Declared {
        compactors: compactor.into_iter().collect(),
        reducers: [(topic("in"), reducer.clone())].into(),
        ..Declared::default()
    }
}

/// Waits until the compactor has snapshots of all events.
async fn compacted(world: &World, projections: &Projections) {
    let end = world.store.durable_end(&topic("in"));
    until_true("the compactor", async || projections.compactors()[0].status.position == end).await;
}

/// Removes all events but the last.
async fn keep_one(world: &World) {
    let retention = Retention { count: Some(1), ..Retention::default() };
    let settings = TopicSettings { retention, ..TopicSettings::default() };
    world.bus.set_topic(&topic("in"), settings).await.unwrap();
    world.maintain().await;
}

async fn state(projections: &Projections, key: &str) -> Result<String, &'static str> {
    match projections.state_at(&topic("in"), key, i64::MAX).await {
        Ok(found) => Ok(found.state.get().to_owned()),
        Err(error) => Err(error.code()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_compactor_leaves_state_unknown_until_it_is_back() {
    let merge = Reducer::Merge;
    let world = World::running(StoreKind::Memory).await;
    let projections = world.open_projections(with(Some(compacting(&merge)), &merge)).await;
    world.publish_json("in", "k", r#"{"a":1}"#).await;
    world.publish_json("in", "other", "{}").await;
    compacted(&world, &projections).await;
    keep_one(&world).await;
    assert_eq!(state(&projections, "k").await.unwrap(), r#"{"a":1}"#);
    projections.close().await;
    let world = world.restart().await;
    let projections = world.open_projections(with(None, &merge)).await;
    let error = projections.state_at(&topic("in"), "k", i64::MAX).await.unwrap_err();
    assert_eq!(error.code(), "history_gone");
    assert!(error.to_string().contains("declare a compactor"), "{error}");
    projections.close().await;
    let world = world.restart().await;
    let projections = world.open_projections(with(Some(compacting(&merge)), &merge)).await;
    assert_eq!(state(&projections, "k").await.unwrap(), r#"{"a":1}"#);
    projections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_compactor_is_counted_and_its_snapshots_are_used() {
    let merge = Reducer::Merge;
    let (world, faults) = faulty().await;
    let projections = world.open_projections(with(Some(compacting(&merge)), &merge)).await;
    world.publish_json("in", "k", r#"{"a":1}"#).await;
    world.publish_json("in", "other", "{}").await;
    compacted(&world, &projections).await;
    keep_one(&world).await;
    assert_eq!(projections.failing_compactors(), 0);
    // The cursor cannot move, so that every round fails.
    faults.rule(|call| match call {
        StoreCall::Commit(batch) if batch.events.is_empty() => Fault::Fail,
        _ => Fault::None,
    });
    world.publish_json("in", "k", r#"{"b":2}"#).await;
    until_true("the compactor fails", async || projections.failing_compactors() == 1).await;
    assert_eq!(state(&projections, "k").await.unwrap(), r#"{"a":1,"b":2}"#, "folded from the last snapshot");
    faults.heal();
    until_true("the compactor goes on", async || projections.failing_compactors() == 0).await;
    compacted(&world, &projections).await;
    projections.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_reducer_is_refused_at_the_start() {
    let (latest, merge) = (Reducer::Latest, Reducer::Merge);
    let world = World::running(StoreKind::Memory).await;
    let projections = world.open_projections(with(Some(compacting(&latest)), &latest)).await;
    world.publish_json("in", "k", r#"{"a":1}"#).await;
    compacted(&world, &projections).await;
    projections.close().await;
    let world = world.restart().await;
    let open = async |declared| {
        let clock = std::sync::Arc::clone(&world.clock) as _;
        Projections::open(world.bus.clone(), std::sync::Arc::clone(&world.store), clock, declared).await
    };
    let error = open(with(Some(compacting(&merge)), &merge)).await.unwrap_err();
    assert_eq!(error.code(), "bad_declaration");
    let message = error.to_string();
    for part in ["`in.snapshot`", "`latest`", "`merge`", "name another topic"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // Each way out works: another topic, and the old reducer.
    let elsewhere = CompactorOptions { snapshot_topic: Some(topic("states")), ..compacting(&merge) };
    let projections = open(with(Some(elsewhere), &merge)).await.unwrap();
    compacted(&world, &projections).await;
    assert_eq!(state(&projections, "k").await.unwrap(), r#"{"a":1}"#);
    projections.close().await;
    let projections = open(with(Some(compacting(&latest)), &latest)).await.unwrap();
    assert_eq!(state(&projections, "k").await.unwrap(), r#"{"a":1}"#);
    projections.close().await;
}
