//! Subscriptions end with their topic; a new topic of the same name starts afresh.

use promethean_bus::rows::StartPosition;
use promethean_model::{Offset, TopicSettings};
use promethean_store::port::Table;

use super::harness::*;

on_both_stores!(
    subscriptions_end_with_their_topic,
    a_topic_without_events_ends_them_too,
    another_topic_of_the_name_inherits_nothing,
    settings_last,
);

async fn subscriptions_end_with_their_topic(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..3).await;
    world.publish("b", 0).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let mut other = world.subscribe(request("b", "g")).await;
    let held = take(&mut subscription, 2).await;
    world.bus.delete_topic(&topic("a")).await.unwrap();
    assert_eq!(end_of(&mut subscription).await.code(), "topic_deleted");
    // No event is left to ack.
    let acked = held[0].ack().await;
    assert!(matches!(&acked, Err(error) if error.code() == "topic_deleted"), "{acked:?}");
    assert_eq!(number(&take_one(&mut other).await.event), 0);
    assert_eq!(world.bus.delete_topic(&topic("a")).await.unwrap_err().code(), "unknown_topic");
    let groups = world.bus.groups(None).await.unwrap();
    assert_eq!(groups.len(), 1);
}

async fn a_topic_without_events_ends_them_too(kind: StoreKind) {
    let world = World::new(kind).await;
    world.bus.create_topic(&topic("a")).await.unwrap();
    let mut subscription = world.subscribe(request("a", "g")).await;
    world.bus.delete_topic(&topic("a")).await.unwrap();
    assert_eq!(end_of(&mut subscription).await.code(), "topic_deleted");
}

async fn another_topic_of_the_name_inherits_nothing(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..3).await;
    let mut subscription = world.subscribe(attempts(request("a", "g"), 2)).await;
    let leases = take(&mut subscription, 3).await;
    leases[0].nack(Some(0)).await.unwrap();
    take_one(&mut subscription).await.nack(Some(0)).await.unwrap();
    leases[1].nack(Some(60_000)).await.unwrap();
    world.bus.delete_topic(&topic("a")).await.unwrap();
    drop(subscription);
    assert_eq!((world.rows(Table::Attempts).await, world.rows(Table::DeadLetters).await), (0, 0));
    // The topic is created again at once, with events before any member looks.
    world.fill("a", 10..15).await;
    let mut subscription = world.subscribe(request_from("a", "g", StartPosition::Offset(Offset(1)))).await;
    let leases = take(&mut subscription, 4).await;
    assert_eq!(numbers(&leases), [11, 12, 13, 14]);
    assert!(leases.iter().all(|lease| lease.attempt == 1));
    assert_eq!(subscription.ack(&leases).await.unwrap().stale, 0);
    let world = world.restart().await;
    assert_eq!(world.seen("a", "g").await.floor, Offset(5));
}

async fn settings_last(kind: StoreKind) {
    let world = World::new(kind).await;
    let settings = TopicSettings { compacted: true, partitions: Some(4), ..Default::default() };
    world.bus.set_topic(&topic("a"), settings.clone()).await.unwrap();
    let world = world.restart().await;
    assert_eq!(world.bus.topic_settings(&topic("a")), settings);
    assert!(world.publish_key("a", "k", 1).await.partition.is_some());
    let bad = TopicSettings { partitions: Some(0), ..Default::default() };
    assert_eq!(world.bus.set_topic(&topic("a"), bad).await.unwrap_err().code(), "bad_settings");
    world.bus.delete_topic(&topic("a")).await.unwrap();
    assert_eq!(world.bus.topic_settings(&topic("a")), TopicSettings::default());
}
