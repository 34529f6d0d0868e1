//! Publishes are accepted once, in order, and within limits.

use promethean_bus::limits::Rate;
use promethean_bus::publish::Publish;
use promethean_bus::{BusError, BusOptions, RateOwner};
use promethean_model::{EventId, Offset, TopicSettings};

use super::harness::*;

on_both_stores!(
    an_id_is_published_once,
    expectations_hold_or_refuse,
    each_event_stands_for_itself,
    a_batch_is_all_or_nothing,
    topics_have_rates,
    a_batch_takes_all_its_tokens_or_none,
    topics_are_not_made_where_that_is_off,
    time_never_goes_back,
    a_long_call_is_handed_over_in_pieces,
);

fn event(to: &str, payload: u64) -> Publish<'static> {
    Publish::new(topic(to), payload.to_string())
}

fn id(n: u8) -> EventId {
    EventId::from_bytes([n; 16])
}

fn code<T: std::fmt::Debug>(result: Result<T, BusError>) -> &'static str {
    result.unwrap_err().code()
}

async fn an_id_is_published_once(kind: StoreKind) {
    let world = World::new(kind).await;
    let first = world.bus.publish(event("a", 1).id(id(1)).key("k")).await.unwrap();
    world.clock.advance(1_000);
    let second = world.bus.publish(event("a", 1).id(id(1)).key("k")).await.unwrap();
    assert_eq!((first.offset, first.ts, first.duplicate), (second.offset, second.ts, false));
    assert!(second.duplicate);
    assert_eq!(code(world.bus.publish(event("a", 2).id(id(1)).key("k")).await), "id_conflict");
    assert_eq!(code(world.bus.publish(event("a", 1).id(id(1))).await), "id_conflict");
    assert!(!world.bus.publish(event("b", 9).id(id(1))).await.unwrap().duplicate, "another topic");
    let world = world.restart().await;
    assert!(world.bus.publish(event("a", 1).id(id(1)).key("k")).await.unwrap().duplicate);
    assert_eq!(world.events("a").await.len(), 1);
    let word = if kind == StoreKind::Memory { "memory" } else { "fsync" };
    assert_eq!(first.durability, word);
}

async fn expectations_hold_or_refuse(kind: StoreKind) {
    let world = World::new(kind).await;
    let publish = async |event: Publish<'static>| world.bus.publish(event).await;
    assert_eq!(code(publish(event("a", 0).expected_offset(Offset(1))).await), "conflict");
    publish(event("a", 0).expected_offset(Offset(0)).key("k").expected_key_offset(None)).await.unwrap();
    assert_eq!(code(publish(event("a", 1).expected_offset(Offset(0))).await), "conflict");
    assert_eq!(code(publish(event("a", 1).key("k").expected_key_offset(None)).await), "conflict");
    publish(event("a", 1).key("j").expected_key_offset(None)).await.unwrap();
    publish(event("a", 2).key("k").expected_key_offset(Some(Offset(0)))).await.unwrap();
    let error = publish(event("a", 3).key("k").expected_key_offset(Some(Offset(0)))).await.unwrap_err();
    assert!(matches!(error, BusError::KeyConflict { actual: Some(Offset(2)), .. }), "{error}");
    assert_eq!(code(publish(event("a", 3).expected_key_offset(None)).await), "key_required");
    assert_eq!(world.events("a").await.len(), 3);
}

async fn each_event_stands_for_itself(kind: StoreKind) {
    let world = World::new(kind).await;
    let os = TopicSettings { durability: Some(promethean_model::Durability::Os), ..Default::default() };
    world.bus.set_topic(&topic("quick"), os).await.unwrap();
    let results = world
        .bus
        .publish_each(vec![
            event("a", 0),
            Publish::new(topic("a"), "{"),
            event("quick", 1),
            event("a", 2).id(id(2)),
            event("a.dlq", 3),
            event("a", 4).expected_offset(Offset(2)),
            event("a", 5).expected_offset(Offset(9)),
            event("a", 6).id(id(2)),
            event("a", 2).id(id(2)),
            event("quick", 7),
            event("a", 8),
        ])
        .await;
    let outcomes: Vec<Result<u64, &str>> = (results.iter())
        .map(|result| result.as_ref().map(|published| published.offset.get()).map_err(BusError::code))
        .collect();
    let expected = [
        Ok(0),
        Err("invalid_json"),
        Ok(0),
        Ok(1),
        Err("reserved_name"),
        Ok(2),
        Err("conflict"),
        Err("id_conflict"),
        Ok(1),
        Ok(1),
        Ok(3),
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(world.events("a").await.iter().map(number).collect::<Vec<_>>(), [0, 2, 4, 8]);
    assert!(world.bus.publish_each(Vec::new()).await.is_empty());
}

async fn a_batch_is_all_or_nothing(kind: StoreKind) {
    let world = World::new(kind).await;
    let published = world.bus.publish_batch(vec![event("a", 0), event("b", 1), event("a", 2)]).await.unwrap();
    let places: Vec<_> = published.iter().map(|one| (one.topic.as_str(), one.offset.get())).collect();
    assert_eq!(places, [("a", 0), ("b", 0), ("a", 1)]);
    for (bad, word) in [
        (event("b", 3).expected_offset(Offset(7)), "conflict"),
        (Publish::new(topic("b"), "nul"), "invalid_json"),
        (event("_b", 1), "reserved_name"),
    ] {
        let batch = vec![event("a", 3), bad, event("c", 4)];
        assert_eq!(code(world.bus.publish_batch(batch).await), word);
    }
    world.bus.publish(event("a", 5).id(id(5))).await.unwrap();
    let batch = vec![event("c", 0), event("a", 6).id(id(5))];
    assert_eq!(code(world.bus.publish_batch(batch).await), "id_conflict");
    assert_eq!((world.events("a").await.len(), world.events("b").await.len()), (3, 1));
    assert!(world.events("c").await.is_empty());
    let many = (0..1001).map(|n| event("a", n)).collect();
    assert_eq!(code(world.bus.publish_batch(many).await), "batch_too_large");
}

async fn topics_have_rates(kind: StoreKind) {
    let options = BusOptions { topic_rate: Some(Rate::new(10, 3)), ..BusOptions::default() };
    let world = World::with(kind, options).await;
    world.fill("a", 0..3).await;
    let error = world.bus.publish(event("a", 3)).await.unwrap_err();
    assert_eq!((error.code(), error.retry_after_ms()), ("rate_limited", Some(100)));
    let whose = "all publishers of this topic (`topic_rate` in `[limits]`)";
    assert_eq!(
        error.to_string(),
        format!("too many events of {whose} in too short a time; try again in 100 ms")
    );
    world.publish("b", 0).await;
    world.clock.advance(99);
    assert_eq!(code(world.bus.publish(event("a", 3)).await), "rate_limited");
    world.clock.advance(1);
    assert_eq!(world.publish("a", 3).await.offset, Offset(3));
    let batch = (0..4).map(|n| event("c", n)).collect();
    let error = world.bus.publish_batch(batch).await.unwrap_err();
    assert!(matches!(error, BusError::OverBurst { whose: RateOwner::Topic, asked: 4, burst: 3 }), "{error}");
    assert!(error.to_string().contains(whose), "{error}");
}

async fn a_batch_takes_all_its_tokens_or_none(kind: StoreKind) {
    let options = BusOptions { topic_rate: Some(Rate::new(10, 3)), ..BusOptions::default() };
    let world = World::with(kind, options).await;
    world.fill("b", 0..3).await;
    for _ in 0..5 {
        let batch = vec![event("a", 0), event("a", 1), event("b", 2)];
        assert_eq!(code(world.bus.publish_batch(batch).await), "rate_limited");
    }
    world.fill("a", 0..3).await;
    assert_eq!(code(world.bus.publish(event("a", 3)).await), "rate_limited");
}

async fn topics_are_not_made_where_that_is_off(kind: StoreKind) {
    let world = World::with(kind, BusOptions { auto_create: false, ..BusOptions::default() }).await;
    assert_eq!(code(world.bus.publish(event("a", 0)).await), "unknown_topic");
    assert_eq!(code(world.bus.publish_batch(vec![event("a", 0)]).await), "unknown_topic");
    world.bus.create_topic(&topic("a")).await.unwrap();
    world.publish("a", 0).await;
    // Dead letter topics are created all the same.
    let mut subscription = world.subscribe(attempts(request("a", "g"), 1)).await;
    take_one(&mut subscription).await.nack(None).await.unwrap();
    assert_eq!(world.events("a.dlq").await.len(), 1);
    assert_eq!(world.bus.create_topic(&topic("b.dlq")).await.unwrap_err().code(), "reserved_name");
}

async fn time_never_goes_back(kind: StoreKind) {
    let world = World::new(kind).await;
    let first = world.publish("a", 0).await.ts;
    world.clock.advance_wall(-5_000);
    assert!(world.publish("a", 1).await.ts >= first);
    let given = world.bus.publish(event("a", 2).ts(7)).await.unwrap();
    assert_eq!(given.ts, 7);
}

async fn a_long_call_is_handed_over_in_pieces(kind: StoreKind) {
    let world = World::new(kind).await;
    let results = world.bus.publish_each((0..2_500).map(|n| event("a", n)).collect()).await;
    let offsets: Vec<u64> = results.into_iter().map(|result| result.unwrap().offset.get()).collect();
    assert_eq!(offsets, (0..2_500).collect::<Vec<_>>());
    assert_eq!(world.events("a").await.iter().map(super::harness::number).collect::<Vec<_>>(), offsets);
}
