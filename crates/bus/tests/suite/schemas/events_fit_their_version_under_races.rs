//! Events fit the version in their header, also while versions and topics come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use promethean_bus::rows::StartPosition;
use promethean_bus::schemas::WhichSchema;
use promethean_testkit::SeededRng;

use super::super::bus::harness::*;
use super::*;
use promethean_testkit::fault_store::When;

on_both_stores!(
    every_stamp_is_true,
    every_stamp_is_true_though_the_topic_is_deleted,
    what_is_being_published_goes_with_its_topic,
);

const PUBLISHERS: usize = 4;
const EVENTS: usize = 150;
const CHANGES: usize = 30;

async fn publish_some(bus: Bus, seed: u64, changed: Arc<AtomicUsize>) {
    let mut rng = SeededRng::new(seed);
    for n in 0..EVENTS {
        // Publishing waits for the changes, so that both happen at once.
        while changed.load(Ordering::Relaxed) * EVENTS / CHANGES + EVENTS / CHANGES < n {
            tokio::task::yield_now().await;
        }
        let payloads = ["7", r#"{"n":1}"#, r#"{"count":1}"#, r#"{"count":1,"unit":"x"}"#, "null"];
        let mut event = Publish::new(topic("t"), *rng.choose(&payloads).unwrap());
        if rng.chance(30) {
            event = event.header(VERSION_HEADER, rng.range(1..9).to_string());
        }
        let done = match n % 3 {
            0 => bus.publish(event).await.map(drop),
            1 => bus.publish_batch(vec![event]).await.map(drop),
            _ => bus.publish_each(vec![event]).await.remove(0).map(drop),
        };
        if let Err(error) = done {
            let expected = matches!(error.code(), "schema_rejected" | "unknown_schema" | "topic_deleted");
            assert!(expected, "seed {seed}: {error}");
        }
    }
}

async fn every_stamp_is_true(kind: StoreKind) {
    let world = World::new(kind).await;
    without_compat(&world.bus, "t").await;
    let changed = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 0..PUBLISHERS as u64 {
        tasks.spawn(publish_some(world.bus.clone(), seed, Arc::clone(&changed)));
    }
    let bus = world.bus.clone();
    tasks.spawn(async move {
        for n in 0..CHANGES {
            register(&bus, "t", [V1, V2, V3][n % 3]).await.unwrap();
            if n % 4 == 3 {
                // If it is not refused, no event has used the version.
                let latest = bus.schemas(&topic("t")).last().unwrap().version;
                let deleted = bus.delete_schema(&topic("t"), latest).await;
                assert!(deleted.is_ok() || code(deleted) == "schema_in_use");
            }
            changed.fetch_add(1, Ordering::Relaxed);
        }
    });
    while let Some(done) = soon("publishers and changes", tasks.join_next()).await {
        done.unwrap();
    }
    assert!(check_stamps(world).await > 0, "nothing was stamped");
}

/// Counts the events of the topic with a version. Each of them fits its version.
async fn check_stamps(world: World) -> usize {
    let world = world.restart().await;
    let mut stamped = 0;
    for event in world.events("t").await {
        let Some(version) = version(&event) else { continue };
        stamped += 1;
        let version: u32 = version.parse().unwrap();
        world.bus.schema(&topic("t"), WhichSchema::Version(version)).await.unwrap();
        let fits = world.bus.validate(&topic("t"), payload(&event), Some(version)).await;
        assert_eq!(fits, Ok(Some(version)), "{}", payload(&event));
    }
    stamped
}

async fn every_stamp_is_true_though_the_topic_is_deleted(kind: StoreKind) {
    let world = World::new(kind).await;
    let changed = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 0..PUBLISHERS as u64 {
        tasks.spawn(publish_some(world.bus.clone(), seed, Arc::clone(&changed)));
    }
    let bus = world.bus.clone();
    tasks.spawn(async move {
        for n in 0..CHANGES {
            without_compat(&bus, "t").await;
            // The same numbers mean other schemas each time.
            register(&bus, "t", [V1, V2, V3][n % 3]).await.unwrap();
            register(&bus, "t", [V2, V3, V1][n % 3]).await.unwrap();
            changed.fetch_add(1, Ordering::Relaxed);
            if n + 1 < CHANGES {
                // The topic may have no event yet.
                bus.create_topic(&topic("t")).await.unwrap();
                soon("delete", bus.delete_topic(&topic("t"))).await.unwrap();
                no_stamps(&bus).await;
            }
        }
        publish_as(&bus, "t", r#"{"count":1,"unit":"x"}"#, "1").await.unwrap();
    });
    while let Some(done) = soon("publishers and changes", tasks.join_next()).await {
        done.unwrap();
    }
    assert!(check_stamps(world).await > 0, "nothing was stamped");
}

/// While the topic has no schema, no event of it can have a version.
async fn no_stamps(bus: &Bus) {
    for _ in 0..20 {
        let mut scan = bus.scan(&topic("t"), StartPosition::Earliest).await.unwrap();
        while let Some(page) = scan.next_page(100, 1 << 20).await.unwrap() {
            let stamps: Vec<_> = page.events.iter().filter_map(version).collect();
            assert!(stamps.is_empty(), "{stamps:?}");
        }
        tokio::task::yield_now().await;
    }
}

async fn what_is_being_published_goes_with_its_topic(kind: StoreKind) {
    let (world, gate) = World::gated(kind).await;
    versions(&world.bus, "t", &[V1]).await;
    publish(&world.bus, "t", r#"{"n":0}"#).await.unwrap();
    let held = gate.hold(When::Before, |batch| !batch.events.is_empty());
    let (bus, mut publishing) = (world.bus.clone(), tokio::task::JoinSet::new());
    publishing.spawn(async move { bus.publish_batch(vec![Publish::new(topic("t"), r#"{"n":1}"#)]).await });
    held.reached().await;
    let (bus, mut deleting) = (world.bus.clone(), tokio::task::JoinSet::new());
    deleting.spawn(async move { bus.delete_topic(&topic("t")).await });
    // Until it waits for the event; it must not be done before.
    soon("refusal", async {
        while deleting.try_join_next().is_none() {
            if publish(&world.bus, "t", r#"{"n":2}"#)
                .await
                .is_err_and(|error| error.code() == "topic_deleted")
            {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("deleted before the event was stored");
    })
    .await;
    held.release();
    soon("publish", publishing.join_next()).await.unwrap().unwrap().unwrap();
    soon("delete", deleting.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!((world.events("t").await.len(), world.bus.schemas(&topic("t")).len()), (0, 0));
}
