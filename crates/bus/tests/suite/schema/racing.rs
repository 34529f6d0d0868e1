//! Publishes while versions come and go: what an event is stamped with, it fits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use promethean_bus::schema::WhichSchema;
use promethean_testkit::SeededRng;

use super::super::bus::harness::*;
use super::*;

on_both_stores!(every_stamp_is_true);

const PUBLISHERS: usize = 4;
const EVENTS: usize = 150;
const CHANGES: usize = 30;

async fn publish_some(bus: Bus, seed: u64, changed: Arc<AtomicUsize>) {
    let mut rng = SeededRng::new(seed);
    for n in 0..EVENTS {
        // Not ahead of the changes, or there would be none meanwhile.
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
            assert!(matches!(error.code(), "schema_rejected" | "unknown_schema"), "seed {seed}: {error}");
        }
    }
}

async fn every_stamp_is_true(kind: Kind) {
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
                // Where it is not refused, nobody has used it.
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
    let world = world.restart().await;
    let (mut stamped, mut other) = (0, 0);
    for event in world.events("t").await {
        match version(&event) {
            Some(version) => {
                stamped += 1;
                let version: u32 = version.parse().unwrap();
                world.bus.schema(&topic("t"), WhichSchema::Version(version)).await.unwrap();
                let fits = world.bus.validate(&topic("t"), payload(&event), Some(version)).await;
                assert_eq!(fits, Ok(Some(version)), "{}", payload(&event));
            }
            None => other += 1,
        }
    }
    assert!(stamped > 0, "nothing was stamped, {other} were not");
}
