//! Every refusal that a test can provoke has its code.

use std::sync::Arc;

use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Bus, BusError, BusOptions};
use promethean_delivery::{Filter, Subject};
use promethean_model::{EventId, Offset, TopicSettings};
use promethean_store::embedded::EmbeddedStore;
use promethean_store::memory::{MemoryOptions, MemoryStore};
use promethean_testkit::{FaultDisk, ManualClock};

use super::harness::*;

on_both_stores!(
    what_a_publisher_is_refused,
    what_a_subscriber_is_refused,
    a_group_that_is_taken_over_hears_it,
    an_owner_of_a_deleted_group_cannot_write_to_a_new_group_of_its_name,
);

async fn what_a_publisher_is_refused(kind: StoreKind) {
    let world = World::new(kind).await;
    let compacted = TopicSettings { compacted: true, partitions: Some(2), ..Default::default() };
    world.bus.set_topic(&topic("keyed"), compacted).await.unwrap();
    let event = || Publish::new(topic("a"), "1");
    let big = format!("\"{}\"", "x".repeat(1 << 20));
    for (event, word) in [
        (Publish::new(topic("a.dlq"), "1"), "reserved_name"),
        (Publish::new(topic("_a"), "1"), "reserved_name"),
        (Publish::new(topic("a"), "{\"a\":}"), "invalid_json"),
        (Publish::new(topic("a"), &b"\"\xff\""[..]), "invalid_json"),
        (Publish::new(topic("a"), big), "payload_too_large"),
        (event().header("h", "x".repeat(9 << 10)), "headers_too_large"),
        (event().header("h", "a\nb"), "control_character"),
        (event().sid("a\rb"), "control_character"),
        (event().sid("s".repeat(257)), "sid_too_large"),
        (event().key("k".repeat(1025)), "key_too_large"),
        (event().tags(vec!["t".to_owned(); 33]), "tags_too_large"),
        (event().caused_by(vec![EventId::from_bytes([1; 16]); 65]), "caused_by_too_large"),
        (event().expected_key_offset(None), "key_required"),
        (event().expected_offset(Offset(4)), "conflict"),
        (Publish::new(topic("keyed"), "1"), "key_required"),
        (Publish::new(topic("keyed"), "1").key("k").partition(2), "bad_partition"),
    ] {
        let error = world.bus.publish(event).await.unwrap_err();
        assert_eq!(error.code(), word, "{error}");
        assert!(error.has_no_side_effects());
    }
    assert!(world.bus.topics().await.unwrap().iter().all(|info| info.end == Offset(0)));
}

async fn what_a_subscriber_is_refused(kind: StoreKind) {
    let world = World::new(kind).await;
    let changed = |change: fn(&mut Subscribe)| {
        let mut request = request("a", "g");
        change(&mut request);
        request
    };
    for (request, word) in [
        (changed(|r| r.member.batch_size = 0), "bad_option"),
        (changed(|r| r.member.max_in_flight = 0), "bad_option"),
        (changed(|r| r.member.max_in_flight = 100_001), "bad_option"),
        (changed(|r| r.member.ack_timeout_ms = 999), "bad_option"),
        (changed(|r| r.options.partitions = Some(0)), "bad_option"),
        (changed(|r| r.options.max_attempts = Some(0)), "bad_option"),
        (changed(|r| r.options.filter = Some(Filter::default().key("k".repeat(2000)))), "bad_filter"),
        (changed(|r| r.options.from = Some(StartPosition::Offset(Offset(1)))), "beyond_end"),
        (
            changed(|r| r.options.from = Some(StartPosition::AfterId(EventId::from_bytes([1; 16])))),
            "unknown_event",
        ),
        (request_from("a.*", "g", StartPosition::Offset(Offset(0))), "bad_option"),
    ] {
        let error = world.bus.subscribe(request).await.unwrap_err();
        assert_eq!(error.code(), word, "{error}");
    }
    assert!(world.bus.groups(None).await.unwrap().is_empty(), "a refusal leaves no group behind");
    for (text, word) in [("a.b*", "bad_pattern"), ("A", "bad_name")] {
        assert_eq!(text.parse::<Subject>().unwrap_err().code(), word);
    }
    drop(world.subscribe(request("a", "g")).await);
    let conflicts: [fn(&mut Subscribe); 3] = [
        |r| r.options.from = Some(StartPosition::Latest),
        |r| r.options.max_attempts = Some(9),
        |r| r.options.filter = Some(Filter::default().key("k")),
    ];
    for change in conflicts {
        assert_eq!(world.bus.subscribe(changed(change)).await.unwrap_err().code(), "conflict");
    }
    let subject: Subject = "b".parse().unwrap();
    assert_eq!(world.bus.pause_group(&subject, &group("g")).await.unwrap_err().code(), "unknown_group");
    assert_eq!(world.bus.delete_group(&subject, &group("g")).await.unwrap_err().code(), "unknown_group");
}

async fn a_group_that_is_taken_over_hears_it(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..3).await;
    let mut before = world.subscribe(request("a", "g")).await;
    let held = take(&mut before, 3).await;
    held[0].ack().await.unwrap();
    let other = Bus::open(Arc::clone(&world.store), Arc::clone(&world.clock) as _, BusOptions::default())
        .await
        .unwrap();
    let mut after = other.subscribe(request("a", "g")).await.unwrap();
    let again = take(&mut after, 2).await;
    assert_eq!(held[1].ack().await.unwrap_err().code(), "fenced");
    assert_eq!(end_of(&mut before).await.code(), "fenced");
    assert_eq!(after.ack(&again).await.unwrap().stale, 0);
    let seen = other.group(&topic("a"), &group("g")).await.unwrap();
    assert_eq!(seen.floor, Offset(3));
    soon("close", other.close()).await;
}

async fn an_owner_of_a_deleted_group_cannot_write_to_a_new_group_of_its_name(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..3).await;
    let mut before = world.subscribe(request("a", "g")).await;
    let held = take(&mut before, 3).await;
    let other = Bus::open(Arc::clone(&world.store), Arc::clone(&world.clock) as _, BusOptions::default())
        .await
        .unwrap();
    other.delete_group(&Subject::Topic(topic("a")), &group("g")).await.unwrap();
    let mut after = other.subscribe(request("a", "g")).await.unwrap();
    let again = take(&mut after, 3).await;
    assert_eq!(held[0].ack().await.unwrap_err().code(), "fenced");
    assert_eq!(after.ack(&again).await.unwrap().stale, 0);
    soon("close", other.close()).await;
}

#[tokio::test]
async fn a_full_store_refuses_and_delivers_on() {
    let clock = Arc::new(ManualClock::new(WALL_MS));
    let options = MemoryOptions { event_bytes_max: 5000, topics_max: 2 };
    let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, options));
    let bus = Bus::open(store, clock, BusOptions::default()).await.unwrap();
    let payload = format!("\"{}\"", "x".repeat(300));
    let publish = async |to: &str| bus.publish(Publish::new(topic(to), payload.as_str())).await;
    publish("a").await.unwrap();
    publish("b").await.unwrap();
    assert_eq!(publish("c").await.unwrap_err().code(), "too_many_topics");
    let mut refused = None;
    for _ in 0..20 {
        refused = refused.or(publish("a").await.err());
    }
    assert_eq!(refused.unwrap().code(), "storage_full");
    let mut subscription = bus.subscribe(request("a", "g")).await.unwrap();
    assert_eq!(take_one(&mut subscription).await.ack().await.unwrap().stale, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_ends_its_subscriptions() {
    let clock = Arc::new(ManualClock::new(WALL_MS));
    let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
    let opened =
        EmbeddedStore::open_on(Arc::new(disk.clone()), dir.path(), Arc::clone(&clock) as _, small_files())
            .await;
    let bus = Bus::open(Arc::new(opened.unwrap().0), clock, BusOptions::default()).await.unwrap();
    let publish = async || bus.publish(Publish::new(topic("a"), "1")).await;
    publish().await.unwrap();
    let mut subscription = bus.subscribe(request("a", "g")).await.unwrap();
    let lease = take_one(&mut subscription).await;
    disk.stop_at(disk.ops() + 1, 7);
    let error = publish().await.unwrap_err();
    assert!(matches!(error, BusError::UnknownOutcome { .. } | BusError::Poisoned { .. }), "{error}");
    assert_eq!(publish().await.unwrap_err().code(), "poisoned");
    assert_eq!(lease.ack().await.unwrap_err().code(), "poisoned");
    assert_eq!(end_of(&mut subscription).await.code(), "poisoned");
    assert!(bus.health().refusing.is_some());
    soon("close", bus.close()).await;
}
