//! Publishes while versions come and go: what an event is stamped with, it fits.

use promethean_bus::schema::WhichSchema;
use promethean_testkit::SeededRng;

use super::super::bus::harness::*;
use super::*;

on_both_stores!(every_stamp_is_true);

async fn every_stamp_is_true(kind: Kind) {
    let world = World::new(kind).await;
    without_compat(&world.bus, "t").await;
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 0..4_u64 {
        let bus = world.bus.clone();
        tasks.spawn(async move {
            let mut rng = SeededRng::new(seed);
            for n in 0..150 {
                let payload = ["7", r#"{"n":1}"#, r#"{"count":1}"#, r#"{"count":1,"unit":"x"}"#, "null"];
                let payload = payload[rng.range(0..5) as usize];
                let mut event = Publish::new(topic("t"), payload);
                if rng.range(0..3) == 0 {
                    event = event.header(VERSION_HEADER, (rng.range(0..8) + 1).to_string());
                }
                let done = match n % 3 {
                    0 => bus.publish(event).await.map(drop),
                    1 => bus.publish_batch(vec![event]).await.map(drop),
                    _ => bus.publish_each(vec![event]).await.remove(0).map(drop),
                };
                if let Err(error) = done {
                    assert!(matches!(error.code(), "schema_rejected" | "unknown_schema"), "{error}");
                }
            }
        });
    }
    let bus = world.bus.clone();
    let changes = tokio::task::spawn(async move {
        for n in 0..30_usize {
            register(&bus, "t", [V1, V2, V3][n % 3]).await.unwrap();
            let latest = bus.schemas(&topic("t")).last().unwrap().version;
            // Mostly refused; where it is not, nobody has used it.
            let deleted = bus.delete_schema(&topic("t"), latest).await;
            assert!(deleted.is_ok() || code(deleted) == "schema_in_use");
            tokio::task::yield_now().await;
        }
    });
    soon("changes", changes).await.unwrap();
    while let Some(done) = soon("publishers", tasks.join_next()).await {
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
