//! A client starts with the snapshots of a topic and goes on with its events, without a gap; readers go on over a
//! restart of the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use promethean_client::{Client, EventToPublish, ExportRange, LoadedSnapshots, StartFrom};
use promethean_testkit::{soon, until};
use serde_json::{Value, json};

use super::super::killed_server_loses_nothing::server::KillableServer;
use super::super::running_server::RunningServer;
use super::{eventually, quick, server};

async fn set(client: &Client, key: &str, left: u64) {
    client.publish("stock", &json!({"left": left})).key(key).await.unwrap();
}

#[tokio::test]
async fn with_a_compactor_the_snapshots_come_first_and_each_later_event_once() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("c.toml"), "[[compactors]]\ntopic = \"stock\"\nevery = \"200ms\"\n")
        .unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let client = Client::new(&server.url()).unwrap();
    for n in 0..20 {
        set(&client, if n % 2 == 0 { "a" } else { "b" }, n).await;
    }
    until("both keys have a snapshot of all their events", async || {
        let loaded = client.warm_up::<Value>("stock").await.unwrap();
        let left = |key: &str| loaded.state.get(key).map(|state| state.payload["left"].clone());
        left("a") == Some(json!(18)) && left("b") == Some(json!(19))
    })
    .await;
    let loaded = client.warm_up::<Value>("stock").await.unwrap();
    assert!(loaded.offset > 0 && loaded.offset <= 20, "{}", loaded.offset);
    set(&client, "a", 100).await;
    set(&client, "c", 101).await;
    let mut state: BTreeMap<String, u64> = BTreeMap::new();
    for (key, loaded) in &loaded.state {
        state.insert(key.clone(), loaded.payload["left"].as_u64().unwrap());
    }
    let mut follow = loaded.follow::<Value>();
    for _ in 0..2 {
        let event = follow.next().await.unwrap().unwrap();
        assert!(event.offset >= 20, "an event that is in the snapshots came");
        state.insert(event.key.clone().unwrap(), event.payload["left"].as_u64().unwrap());
    }
    assert_eq!(state, BTreeMap::from([("a".into(), 100), ("b".into(), 19), ("c".into(), 101)]));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let consumer = loaded.handle::<Value, _, _>(
        "view",
        |options| options,
        move |lease| {
            noted.lock().unwrap().push(lease.offset);
            async { Ok(()) }
        },
    );
    let consumer = consumer.await.unwrap();
    eventually("the group gets the events after the snapshots", || seen.lock().unwrap().len() == 2).await;
    assert_eq!(*seen.lock().unwrap(), [20, 21]);
    consumer.close().await.unwrap();
    client.close().await.unwrap();
}

#[tokio::test]
async fn with_a_program_as_reducer_each_event_counts_once_also_under_load() {
    const KEYS: u64 = 7;
    let dir = tempfile::tempdir().unwrap();
    let config = "[[compactors]]\ntopic = \"stock\"\nevery = \"50ms\"\n\
                  [reducers]\nstock = '{sum: ((.state.sum // 0) + .event.payload.by)}'\n";
    std::fs::write(dir.path().join("c.toml"), config).unwrap();
    let server = RunningServer::in_memory(dir.path(), &["--config", "c.toml"]);
    let client = Client::new(&server.url()).unwrap();
    let is_over = AtomicBool::new(false);
    let load = async {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for by in 1.. {
            let key = format!("k{}", by % KEYS);
            client.publish("stock", &json!({"by": by})).key(&key).await.unwrap();
            *sums.entry(key).or_default() += by;
            if is_over.load(Ordering::SeqCst) {
                break;
            }
        }
        client.publish("stock", &json!({"by": 0})).key("last").await.unwrap();
        sums
    };
    let warm_ups = async {
        let mut views = Vec::new();
        while views.len() < 5 {
            let loaded = client.warm_up::<Value>("stock").await.unwrap();
            let is_later =
                views.last().is_none_or(|last: &LoadedSnapshots<Value>| loaded.offset > last.offset);
            if !loaded.state.is_empty() && is_later {
                views.push(loaded);
            }
        }
        is_over.store(true, Ordering::SeqCst);
        views
    };
    let both = async { tokio::join!(load, warm_ups) };
    let (sums, views) = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
    for view in views {
        let state =
            view.state.iter().map(|(key, state)| (key.clone(), state.payload["sum"].as_u64().unwrap()));
        let mut seen: BTreeMap<String, u64> = state.collect();
        let mut follow = view.follow::<Value>();
        loop {
            let event = follow.next().await.unwrap().unwrap();
            let key = event.key.clone().unwrap();
            if key == "last" {
                break;
            }
            *seen.entry(key).or_default() += event.payload["by"].as_u64().unwrap();
        }
        assert_eq!(seen, sums, "from offset {} on", view.offset);
    }
    client.close().await.unwrap();
}

#[tokio::test]
async fn in_the_middle_of_a_round_of_snapshots_no_event_of_a_key_without_snapshot_is_missed() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    for (key, by) in [("b", 1), ("a", 2), ("b", 4)] {
        client.publish("stock", &by).key(key).await.unwrap();
    }
    // The round has written the snapshot of `a`, and not yet that of `b`.
    let snapshot = client.publish("snapshots", &json!({"key": "a", "payload": 2, "ts": 1})).key("a");
    let snapshot = snapshot.header("x-snapshot-offset", "2").header("x-snapshot-floor", "0");
    snapshot.header("x-snapshot-by", "merge").await.unwrap();
    let loaded = client.warm_up_from::<u64>("stock", "snapshots").await.unwrap();
    assert_eq!((loaded.state.len(), loaded.state["a"].payload), (1, 2));
    let followed = loaded.follow::<u64>().take(2).try_collect::<Vec<_>>();
    let events = soon("both events of `b` come", followed).await.unwrap();
    assert_eq!(events.iter().map(|event| event.payload).collect::<Vec<_>>(), [1, 4]);
    client.close().await.unwrap();
}

#[tokio::test]
async fn without_snapshots_every_event_comes() {
    let (_dir, server) = server();
    let client = Client::new(&server.url()).unwrap();
    set(&client, "a", 1).await;
    let loaded = client.warm_up::<Value>("stock").await.unwrap();
    assert!(loaded.state.is_empty() && loaded.offset == 0);
    let first = loaded.follow::<Value>().next().await.unwrap().unwrap();
    assert_eq!(first.payload["left"], 1);
    client.close().await.unwrap();
}

#[tokio::test]
async fn readers_go_on_over_a_restart_without_a_gap_and_without_a_repetition() {
    let mut server = KillableServer::start().await;
    let client = quick(&format!("ws://{}", server.address)).build().unwrap();
    let publish = async |from: u64, to: u64| {
        let events = (from..to).map(|n| EventToPublish::new("t", &n));
        client.publish_many(events).await.unwrap();
    };
    publish(0, 1_000).await;
    let mut follow = client.reader().follow::<u64>("t", StartFrom::Earliest);
    let mut export = client.reader().export::<u64>("t", ExportRange::default());
    let (mut followed, mut exported) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        followed.push(follow.next().await.unwrap().unwrap().payload);
        exported.push(export.next().await.unwrap().unwrap().payload);
    }
    server.kill();
    server.restart().await;
    publish(1_000, 1_500).await;
    while followed.len() < 1_500 {
        let next = tokio::time::timeout(Duration::from_secs(60), follow.next()).await.unwrap();
        followed.push(next.unwrap().unwrap().payload);
    }
    assert_eq!(followed, (0..1_500).collect::<Vec<_>>());
    let rest: Vec<_> = export.try_collect().await.unwrap();
    exported.extend(rest.into_iter().map(|event| event.payload));
    assert_eq!(exported, (0..1_000).collect::<Vec<_>>(), "the events up to the moment the export began");
    client.close().await.unwrap();
}
