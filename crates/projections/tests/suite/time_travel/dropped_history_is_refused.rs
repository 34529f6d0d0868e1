//! Questions about history that retention or compaction has dropped are refused or answered from snapshots.

use promethean_jq::Program;
use promethean_projections::ProjectionError;
use promethean_projections::time_travel::Reducer;
use serde_json::json;

use crate::suite::time_travel::world::{TopicWorld, patch, snapshots};

fn earliest(error: &ProjectionError) -> Option<i64> {
    assert_eq!(error.code(), "history_gone", "{error}");
    let ProjectionError::HistoryGone { earliest, .. } = error else { unreachable!() };
    *earliest
}

#[tokio::test]
async fn the_latest_of_a_dropped_history() {
    let mut world = TopicWorld::in_memory().await;
    for (key, ts) in [("a", 10), ("b", 20), ("a", 30), ("b", 40)] {
        world.publish(key, ts, patch(ts)).await;
    }
    world.keep(2).await;
    let latest = Reducer::Latest;
    let found = world.state_at("a", 35, &latest, None).await.unwrap();
    assert_eq!(found, Some((patch(30), 30, 2)));
    let error = world.state_at("a", 29, &latest, None).await.unwrap_err();
    assert_eq!(earliest(&error), Some(30));
    // The key had an event before that, which is gone.
    let error = world.state_at("b", 39, &latest, None).await.unwrap_err();
    assert_eq!(earliest(&error), Some(30));
    assert!(error.to_string().contains("ask for a later time"), "{error}");
    assert!(world.state_at("b", 40, &latest, None).await.unwrap().is_some(), "the advice helps");
    // The key may have had events.
    let error = world.state_at("x", 99, &latest, None).await.unwrap_err();
    assert_eq!(earliest(&error), Some(30));
    assert!(error.to_string().contains("declare a compactor"), "{error}");
    world.close().await;
}

/// The only event of a key was dropped: the state is known from the snapshots that the refusal advises.
#[tokio::test]
async fn the_only_event_of_a_key_is_gone() {
    for with_snapshots in [false, true] {
        let mut world = TopicWorld::in_memory().await;
        let latest = Reducer::Latest;
        world.publish("a", 10, patch(1)).await;
        if with_snapshots {
            world.round(&latest, 10).await;
        }
        world.publish("b", 20, patch(2)).await;
        world.keep(1).await;
        let from = with_snapshots.then(|| snapshots(&latest));
        let found = world.state_at("a", 30, &latest, from.as_ref()).await;
        match with_snapshots {
            true => assert_eq!(found.unwrap(), Some((patch(1), 10, 0))),
            false => assert_eq!(earliest(&found.unwrap_err()), Some(20)),
        }
        world.close().await;
    }
}

/// What the refusal of a fold advises helps.
#[tokio::test]
async fn a_key_begins_anew_after_its_history_is_gone() {
    let mut world = TopicWorld::in_memory().await;
    let merge = Reducer::Merge;
    world.publish("a", 10, json!({"x": 1})).await;
    world.publish("a", 20, json!({"y": 2})).await;
    world.keep(1).await;
    let error = world.state_at("a", 30, &merge, None).await.unwrap_err();
    assert!(error.to_string().contains("publish `null`"), "{error}");
    world.publish("a", 30, json!(null)).await;
    world.publish("a", 40, json!({"x": 1, "y": 2})).await;
    world.round(&merge, 10).await;
    // The compactor has read the new state: its snapshot outlasts the events.
    world.publish("b", 50, json!({})).await;
    world.maintain().await;
    assert_eq!(world.events("t").await.len(), 1);
    let found = world.state_at("a", 60, &merge, Some(&snapshots(&merge))).await.unwrap();
    assert_eq!(found, Some((json!({"x": 1, "y": 2}), 40, 3)));
    let error = world.state_at("a", 25, &merge, Some(&snapshots(&merge))).await.unwrap_err();
    assert!(error.to_string().contains("ask for a later time"), "{error}");
    world.close().await;
}

#[tokio::test]
async fn a_topic_that_has_nothing_left() {
    let mut world = TopicWorld::in_memory().await;
    world.publish("a", 10, patch(1)).await;
    world.round(&Reducer::Latest, 10).await;
    let retention = promethean_model::Retention { bytes: Some(1), ..Default::default() };
    let settings = promethean_model::TopicSettings { retention, ..Default::default() };
    world.bus.set_topic(&world.topic, settings).await.unwrap();
    world.maintain().await;
    let error = world.state_at("a", 99, &Reducer::Latest, None).await.unwrap_err();
    assert_eq!(earliest(&error), None);
    let known = world.state_at("a", 99, &Reducer::Latest, Some(&snapshots(&Reducer::Latest))).await.unwrap();
    assert_eq!(known, Some((patch(1), 10, 0)), "the snapshot still knows");
    world.close().await;
}

#[tokio::test]
async fn folding_needs_all_or_a_snapshot_of_what_is_gone() {
    let mut world = TopicWorld::in_memory().await;
    let merge = Reducer::Merge;
    let from = snapshots(&merge);
    world.publish("a", 10, json!({"x": 1})).await;
    world.publish("b", 20, json!({"x": 2})).await;
    world.round(&merge, 10).await;
    world.publish("a", 30, json!({"y": 3})).await;
    world.keep(1).await;
    let error = world.state_at("a", 40, &merge, None).await.unwrap_err();
    assert_eq!(earliest(&error), Some(30));
    assert!(error.to_string().contains("compactor"), "{error}");
    // The snapshots hold the dropped events: of this key, and of a key without kept events.
    let whole = Some((json!({"x": 1, "y": 3}), 30, 2));
    assert_eq!(world.state_at("a", 40, &merge, Some(&from)).await.unwrap(), whole);
    assert_eq!(world.state_at("b", 40, &merge, Some(&from)).await.unwrap(), Some((json!({"x": 2}), 20, 1)));
    // The snapshot is of a later time.
    let error = world.state_at("b", 19, &merge, Some(&from)).await.unwrap_err();
    assert_eq!(earliest(&error), Some(30));
    world.close().await;
}

#[tokio::test]
async fn a_tombstone_that_is_kept_begins_anew() {
    let mut world = TopicWorld::in_memory().await;
    world.publish("a", 10, json!({"x": 1})).await;
    world.publish("a", 20, json!(null)).await;
    world.publish("a", 30, json!({"y": 2})).await;
    world.keep(2).await;
    for reducer in [Reducer::Merge, Reducer::Jq(Program::compile(".event.payload").unwrap())] {
        let found = world.state_at("a", 30, &reducer, None).await.unwrap();
        assert_eq!(found, Some((json!({"y": 2}), 30, 2)));
        assert_eq!(world.state_at("a", 29, &reducer, None).await.unwrap(), None);
        assert!(world.state_at("a", 19, &reducer, None).await.is_err());
    }
    world.close().await;
}

#[tokio::test]
async fn events_lost_before_they_were_seen_are_not_forgotten_by_later_snapshots() {
    let mut world = TopicWorld::in_memory().await;
    let merge = Reducer::Merge;
    let from = snapshots(&merge);
    world.publish("a", 10, json!({"x": 1})).await;
    world.round(&merge, 10).await;
    world.publish("a", 20, json!({"lost": true})).await;
    world.publish("b", 20, json!({"x": 1})).await;
    world.keep(1).await;
    world.publish("a", 30, json!({"y": 1})).await;
    world.round(&merge, 10).await;
    for (key, at) in [("a", 15), ("a", 40), ("b", 40)] {
        let error = world.state_at(key, at, &merge, Some(&from)).await.unwrap_err();
        assert_eq!(error.code(), "history_gone", "{key} at {at}");
    }
    world.publish("a", 50, json!(null)).await;
    world.publish("a", 60, json!({"z": 1})).await;
    world.round(&merge, 10).await;
    world.publish("c", 70, json!({})).await;
    world.maintain().await;
    assert_eq!(world.events("t").await.len(), 1);
    let found = world.state_at("a", 80, &merge, Some(&from)).await.unwrap();
    assert_eq!(found, Some((json!({"z": 1}), 60, 5)), "a tombstone is whole whatever was lost before it");
    world.close().await;
}

#[tokio::test]
async fn the_cursor_waits_for_a_snapshot_that_tells_of_a_loss() {
    let mut world = TopicWorld::in_memory().await;
    let merge = Reducer::Merge;
    let from = snapshots(&merge);
    world.publish("a", 10, json!({"x": 1})).await;
    world.round(&merge, 10).await;
    world.publish("a", 20, json!({"lost": true})).await;
    let keyless = promethean_bus::publish::Publish::new(world.topic.clone(), "1").ts(20);
    world.bus.publish(keyless).await.unwrap();
    world.keep(1).await;
    let mut compactor = world.compactor(world.options(&merge, 10)).await;
    assert_eq!(compactor.run_round().await.unwrap().published, 0);
    assert_eq!(compactor.status().borrow().missed_total, 1);
    assert!(world.state_at("a", 40, &merge, Some(&from)).await.is_err());
    drop(compactor);
    let mut again = world.compactor(world.options(&merge, 10)).await;
    again.run_round().await.unwrap();
    assert_eq!(again.status().borrow().missed_total, 1, "seen again after a restart");
    world.close().await;
}

#[tokio::test]
async fn a_compacted_topic_knows_the_newest() {
    let mut world = TopicWorld::in_memory().await;
    world.publish("a", 10, json!({"x": 1})).await;
    world.publish("a", 20, json!({"y": 2})).await;
    world.publish("b", 30, json!({"x": 3})).await;
    let merge = Reducer::Merge;
    world.round(&merge, 10).await;
    world.compact().await;
    let latest = Reducer::Latest;
    assert_eq!(world.state_at("a", 20, &latest, None).await.unwrap(), Some((json!({"y": 2}), 20, 1)));
    let error = world.state_at("a", 19, &latest, None).await.unwrap_err();
    assert_eq!(earliest(&error), Some(20));
    assert_eq!(world.state_at("x", 19, &latest, None).await.unwrap(), None);
    let error = world.state_at("a", 99, &merge, None).await.unwrap_err();
    assert_eq!(earliest(&error), Some(20));
    let found = world.state_at("a", 99, &merge, Some(&snapshots(&merge))).await.unwrap();
    assert_eq!(found, Some((json!({"x": 1, "y": 2}), 20, 1)));
    // Compaction may have removed an event after the snapshot.
    world.publish("a", 40, json!({"z": 4})).await;
    assert!(world.state_at("a", 99, &merge, Some(&snapshots(&merge))).await.is_err());
    world.round(&merge, 10).await;
    let found = world.state_at("a", 99, &merge, Some(&snapshots(&merge))).await.unwrap();
    assert_eq!(found, Some((json!({"x": 1, "y": 2, "z": 4}), 40, 3)));
    world.close().await;
}

#[tokio::test]
async fn a_reducer_that_fails_says_where() {
    let mut world = TopicWorld::in_memory().await;
    world.publish("a", 10, json!(1)).await;
    world.publish("b", 10, json!(1)).await;
    world.publish("a", 20, json!("x")).await;
    let reducer = Reducer::Jq(Program::compile("(.state // 0) + .event.payload").unwrap());
    assert_eq!(world.state_at("a", 10, &reducer, None).await.unwrap(), Some((json!(1), 10, 0)));
    let error = world.state_at("a", 20, &reducer, None).await.unwrap_err();
    let ProjectionError::ReducerFailed { offset, .. } = error else { panic!("{error}") };
    assert_eq!(offset, 2);
    world.close().await;
}

#[tokio::test]
async fn too_many_events_to_fold_say_what_would_help() {
    let world = TopicWorld::in_memory().await;
    let mut left = promethean_projections::time_travel::FOLDED_EVENTS_MAX + 1;
    while left > 0 {
        let count = left.min(1000);
        let event = || promethean_bus::publish::Publish::new(world.topic.clone(), "{}").key("a").ts(1);
        let outcomes = world.bus.publish_each((0..count).map(|_| event()).collect()).await;
        assert!(outcomes.iter().all(Result::is_ok));
        left -= count;
    }
    let error = world.state_at("a", 9, &Reducer::Merge, None).await.unwrap_err();
    assert_eq!(error.code(), "too_large");
    assert!(error.to_string().contains("let a compactor"), "{error}");
    assert!(world.state_at("a", 9, &Reducer::Latest, None).await.unwrap().is_some());
    world.round(&Reducer::Merge, 50_000).await;
    let more = promethean_bus::publish::Publish::new(world.topic.clone(), r#"{"n":1}"#).key("a").ts(5);
    world.bus.publish(more).await.unwrap();
    let from = snapshots(&Reducer::Merge);
    let found = world.state_at("a", 9, &Reducer::Merge, Some(&from)).await.unwrap().unwrap();
    assert_eq!(found.0, json!({"n": 1}));
    world.close().await;
}
