//! The compactor publishes a snapshot for each key that changed.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use promethean_bus::publish::Publish;
use promethean_jq::Program;
use promethean_model::Offset;
use promethean_projections::compactor::CompactorOptions;
use promethean_projections::snapshot::{group, warm_up};
use promethean_projections::time_travel::Reducer;
use promethean_store::port::{Batch, Cursor, CursorOp};
use promethean_testkit::topic;
use serde_json::json;
use tokio::sync::watch;

use crate::suite::time_travel::model::reducers;
use crate::suite::time_travel::world::{TopicWorld, patch, snapshots};

#[tokio::test]
async fn a_snapshot_has_the_form_that_is_promised() {
    let mut world = TopicWorld::in_memory().await;
    world.publish("a", 10, patch(1)).await;
    world.publish("a", 5, json!({"n": 1.50, "m": [true]})).await;
    world.publish("b", 30, json!(null)).await;
    assert_eq!(world.round(&Reducer::Latest, 10).await, 2);
    let events = world.events("t.snapshot").await;
    assert_eq!(events[0].key(), Some("a"));
    assert_eq!(events[0].payload(), br#"{"key":"a","payload":{"m":[true],"n":1.5},"ts":5}"#);
    assert_eq!(events[1].payload(), br#"{"key":"b","payload":null,"ts":30}"#);
    let all = world.all_snapshots(&topic("t.snapshot")).await;
    assert_eq!((all[0].offset, all[0].max_ts, all[0].by.as_str()), (Offset(2), Some(5), "latest"));
    assert_eq!(all[0].source, Some(world.events("t").await[1].id));
    world.close().await;
}

#[tokio::test]
async fn nothing_that_did_not_change_is_published_again() {
    let mut world = TopicWorld::in_memory().await;
    for reducer in reducers() {
        world.publish("a", 1, patch(1)).await;
        world.publish("b", 1, patch(1)).await;
        let mut compactor = world.compactor(world.options(&reducer, 4)).await;
        compactor.run_round().await.unwrap();
        assert_eq!(compactor.run_round().await.unwrap().published, 0);
        world.publish("b", 2, patch(2)).await;
        assert_eq!(compactor.run_round().await.unwrap().published, 1);
        let status = compactor.status().borrow().clone();
        assert_eq!((status.position, status.end), (world.bus.end_of(&world.topic), status.position));
        assert_eq!((status.rounds, status.last_error), (3, None));
        drop(compactor);
        assert_eq!(world.round(&reducer, 4).await, 0, "after a restart");
    }
    world.close().await;
}

#[tokio::test]
async fn a_crash_before_the_cursor_moved_publishes_nothing_twice() {
    for reducer in reducers() {
        let mut world = TopicWorld::in_memory().await;
        for n in 0..20 {
            world.publish(["a", "b", "c"][n % 3], n as i64, patch(n as i64)).await;
        }
        let group = group(&world.topic, &snapshots(&reducer)).unwrap();
        world.round(&reducer, 7).await;
        let before = world.events(snapshots(&reducer).as_str()).await;
        let cursor = world.store.cursor(&group, &world.topic).await.unwrap().unwrap();
        assert_eq!(cursor.floor, Offset(20));
        for floor in [0, 7, 14] {
            let back = Cursor { floor: Offset(floor), ..cursor.clone() };
            let (group, topic) = (group.clone(), world.topic.clone());
            let put = CursorOp::Put { group, topic, cursor: back, expected_epoch: cursor.epoch };
            world.store.commit(Batch::derived().with(put)).await.unwrap();
            assert_eq!(world.round(&reducer, 7).await, 0, "{reducer:?} from {floor}");
        }
        assert_eq!(world.events(snapshots(&reducer).as_str()).await, before);
        world.close().await;
    }
}

#[tokio::test]
async fn warm_up_reads_all_snapshots_and_says_where_to_go_on() {
    let mut world = TopicWorld::in_memory().await;
    world.publish("a", 1, patch(1)).await;
    world.publish("b", 1, patch(2)).await;
    world.publish("a", 1, patch(3)).await;
    world.round(&Reducer::Latest, 100).await;
    world.publish("b", 1, patch(4)).await;
    let mut states = HashMap::new();
    let from = snapshots(&Reducer::Latest);
    let warm = warm_up(&world.bus, &world.topic, &from, |snapshot| {
        states.insert(snapshot.key.clone(), snapshot.state.get().to_owned());
    });
    let warm = warm.await.unwrap();
    assert_eq!((warm.from, warm.snapshots), (Offset(3), 2));
    assert_eq!((states["a"].as_str(), states["b"].as_str()), (r#"{"n":3}"#, r#"{"n":2}"#));
    // Retention drops the next event before the compactor has seen it.
    world.publish("b", 1, patch(5)).await;
    world.keep(1).await;
    let error = warm_up(&world.bus, &world.topic, &from, drop).await.unwrap_err();
    assert_eq!(error.code(), "history_gone");
    world.round(&Reducer::Latest, 100).await;
    assert_eq!(warm_up(&world.bus, &world.topic, &from, drop).await.unwrap().from, Offset(5));
    world.close().await;
}

#[tokio::test]
async fn keys_of_ones_own_and_a_choice_of_keys() {
    let world = TopicWorld::in_memory().await;
    for (host, n) in [("x", 1), ("y", 2), ("z", 3), ("x", 4)] {
        let payload = json!({"host": host, "n": n}).to_string();
        world.bus.publish(Publish::new(world.topic.clone(), payload)).await.unwrap();
    }
    for odd in ["7", r#"{"host":[]}"#, r#"{"host":null}"#, r#"{"host":5}"#] {
        world.bus.publish(Publish::new(world.topic.clone(), odd)).await.unwrap();
    }
    let options = CompactorOptions {
        key: Some(Program::compile(".payload.host").unwrap()),
        keys: Some(["x", "z", "5"].map(str::to_owned).into()),
        snapshot_topic: Some(topic("hosts")),
        ..CompactorOptions::new(world.topic.clone())
    };
    let mut compactor = world.compactor(options.clone()).await;
    assert_eq!(compactor.run_round().await.unwrap().published, 3);
    let all = world.all_snapshots(&topic("hosts")).await;
    let seen: Vec<_> = all.iter().map(|snapshot| (snapshot.key.as_str(), snapshot.offset.get())).collect();
    assert_eq!(seen, [("z", 3), ("x", 4), ("5", 8)]);
    let status = compactor.status().borrow().clone();
    assert_eq!((status.key_failures_total, status.published_total), (2, 3));
    assert!(status.last_key_failure.unwrap().starts_with("offset 5: "));
    drop(compactor);
    let folding = CompactorOptions { reducer: Reducer::Merge, ..options.clone() };
    let (store, clock) = (world.store.clone(), world.clock.clone());
    let refused = promethean_projections::compactor::Compactor::open(&world.bus, store, clock, folding).await;
    assert_eq!(refused.unwrap_err().code(), "bad_declaration");
    // With another choice of keys, snapshots would miss earlier events.
    let keys = Some(BTreeSet::from(["y".to_owned()]));
    let error = world.compactor(CompactorOptions { keys, ..options }).await.run_round().await.unwrap_err();
    assert!(error.to_string().contains("delete that one"), "{error}");
    world.close().await;
}

#[tokio::test]
async fn a_topic_that_was_created_again_is_seen() {
    let mut world = TopicWorld::in_memory().await;
    for n in 0..3 {
        world.publish("a", n, patch(n)).await;
    }
    let mut compactor = world.compactor(world.options(&Reducer::Merge, 10)).await;
    compactor.run_round().await.unwrap();
    let status = compactor.status();
    world.bus.delete_topic(&world.topic).await.unwrap();
    world.history.clear();
    assert_eq!(compactor.run_round().await.unwrap_err().code(), "bad_declaration");
    for n in 0..5 {
        world.publish("a", n, json!({"again": n})).await;
    }
    let error = compactor.run_round().await.unwrap_err();
    assert!(error.to_string().contains("delete the snapshot topic"), "{error}");
    assert_eq!(status.borrow().last_error, Some(error.to_string()));
    let from = snapshots(&Reducer::Merge);
    let found = world.state_at("a", 9, &Reducer::Merge, Some(&from)).await.unwrap();
    assert_eq!(found, Some((json!({"again": 4}), 4, 4)), "no snapshot of the topic before");
    world.bus.delete_topic(&from).await.unwrap();
    assert_eq!(compactor.run_round().await.unwrap().published, 1);
    assert_eq!(status.borrow().last_error, None);
    world.close().await;
}

#[tokio::test]
async fn it_runs_by_itself_until_it_is_told_to_stop() {
    let mut world = TopicWorld::in_memory().await;
    world.publish("a", 1, patch(1)).await;
    let options = world.options(&Reducer::Latest, 10);
    let compactor = world.compactor(CompactorOptions { every: Duration::from_millis(5), ..options }).await;
    let mut status = compactor.status();
    let (stop, stopped) = watch::channel(false);
    let running = compactor.run(stopped);
    let watching = async {
        status.wait_for(|status| status.rounds == 1).await.unwrap();
        world.publish("a", 2, patch(2)).await;
        status.wait_for(|status| status.published_total == 2).await.unwrap();
        world.bus.delete_topic(&world.topic).await.unwrap();
        status.wait_for(|status| status.last_error.is_some()).await.unwrap();
        world.bus.delete_topic(&snapshots(&Reducer::Latest)).await.unwrap();
        status.wait_for(|status| status.last_error.is_none()).await.unwrap();
        stop.send_replace(true);
    };
    let both = async { tokio::join!(running, watching) };
    tokio::time::timeout(Duration::from_secs(120), both).await.unwrap();
    world.close().await;
}
