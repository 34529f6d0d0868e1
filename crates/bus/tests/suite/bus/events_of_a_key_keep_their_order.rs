//! Events of one key are delivered in order; filters choose events.

use std::collections::BTreeMap;

use promethean_bus::publish::Publish;
use promethean_bus::subscription::Subscribe;
use promethean_delivery::{Filter, Order};
use promethean_model::Offset;

use super::harness::*;

on_both_stores!(
    a_key_has_one_event_out_at_a_time,
    a_failed_event_holds_its_key_back,
    key_order_ends_at_a_dead_letter,
    filters_let_through_what_they_name,
    what_is_filtered_out_moves_the_cursor,
);

fn by_key(mut request: Subscribe) -> Subscribe {
    request.options.order = Some(Order::Key);
    request
}

async fn a_key_has_one_event_out_at_a_time(kind: StoreKind) {
    let world = World::new(kind).await;
    for n in 0..30 {
        world.publish_key("a", ["x", "y", "z"][n as usize % 3], n).await;
    }
    let mut first = world.subscribe(by_key(request("a", "g"))).await;
    let mut second = world.subscribe(by_key(request("a", "g"))).await;
    let mut done: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut turn = 0;
    while done.values().map(Vec::len).sum::<usize>() < 30 {
        let seen = world.settled("a", "g").await;
        assert!(seen.in_flight <= 3, "one of each key: {seen:?}");
        turn += 1;
        let subscription = if turn % 2 == 0 { &mut first } else { &mut second };
        while let Some(given) = subscription.try_take(1) {
            let promethean_bus::SubscriptionItem::Leases(leases) = given.unwrap() else { continue };
            for lease in leases {
                done.entry(lease.event.key().unwrap().to_owned()).or_default().push(number(&lease.event));
                assert_eq!(lease.ack().await.unwrap().stale, 0);
            }
        }
    }
    for numbers in done.values() {
        assert!(numbers.is_sorted() && numbers.len() == 10, "{numbers:?}");
    }
}

async fn a_failed_event_holds_its_key_back(kind: StoreKind) {
    let world = World::new(kind).await;
    for (key, n) in [("x", 0), ("x", 1), ("y", 2), ("x", 3)] {
        world.publish_key("a", key, n).await;
    }
    // Events without a key have no order.
    world.publish("a", 4).await;
    let mut subscription = world.subscribe(by_key(request("a", "g"))).await;
    let leases = take(&mut subscription, 3).await;
    assert_eq!(numbers(&leases), [0, 2, 4]);
    leases[0].nack(Some(1_000)).await.unwrap();
    leases[1].ack().await.unwrap();
    leases[2].ack().await.unwrap();
    let seen = world.settled("a", "g").await;
    assert_eq!(seen.reason.unwrap().as_str(), "blocked_key");
    assert_eq!((seen.blocked_keys.len(), seen.blocked_keys[0].offset), (1, Offset(0)));
    assert_eq!((seen.blocked_keys[0].waiting, seen.blocked_keys[0].member), (2, None));
    // Also after a restart.
    drop(subscription);
    let world = world.restart().await;
    let mut subscription = world.subscribe(by_key(request("a", "g"))).await;
    assert_eq!(world.word("a", "g").await, "blocked_key");
    world.pass(1_000);
    for n in [0, 1, 3] {
        let lease = take_one(&mut subscription).await;
        assert_eq!(number(&lease.event), n);
        assert!(is_idle(&mut subscription));
        lease.ack().await.unwrap();
    }
}

async fn key_order_ends_at_a_dead_letter(kind: StoreKind) {
    let world = World::new(kind).await;
    for n in 0..2 {
        world.publish_key("a", "x", n).await;
    }
    let mut subscription = world.subscribe(attempts(by_key(request("a", "g")), 1)).await;
    take_one(&mut subscription).await.nack(None).await.unwrap();
    assert_eq!(number(&take_one(&mut subscription).await.event), 1);
}

async fn filters_let_through_what_they_name(kind: StoreKind) {
    let world = World::new(kind).await;
    let event = |n: u64| Publish::new(topic("a"), n.to_string());
    for event in [
        event(0).key("host:1"),
        event(1).key("host:2").header("region", "eu"),
        event(2).key("other"),
        event(3).tags(vec!["hot".to_owned()]),
        event(4).key("host:1").header("region", "us").tags(vec!["hot".to_owned(), "new".to_owned()]),
    ] {
        world.bus.publish(event).await.unwrap();
    }
    for (name, filter, expected) in [
        ("key", Filter::default().key("host:1"), vec![0, 4]),
        ("prefix", Filter::default().key_prefix("host:"), vec![0, 1, 4]),
        ("header", Filter::default().header("region", "eu"), vec![1]),
        ("tag", Filter::default().tag("hot"), vec![3, 4]),
        ("both", Filter::default().key_prefix("host:").tag("new"), vec![4]),
    ] {
        let mut asked = request("a", name);
        asked.options.filter = Some(filter);
        let mut subscription = world.subscribe(asked).await;
        let leases = take(&mut subscription, expected.len()).await;
        assert_eq!(numbers(&leases), expected, "{name}");
        subscription.ack(&leases).await.unwrap();
        let seen = world.settled("a", name).await;
        assert_eq!((seen.floor, seen.reason.unwrap().as_str()), (Offset(5), "caught_up"), "{name}");
        assert!(is_idle(&mut subscription));
    }
}

async fn what_is_filtered_out_moves_the_cursor(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut asked = request("a", "g");
    asked.options.filter = Some(Filter::default().key("none"));
    let subscription = world.subscribe(asked.clone()).await;
    world.fill("a", 0..20).await;
    world.until("a", "g", |seen| seen.floor == Offset(20)).await;
    drop(subscription);
    // The filter belongs to the group: it stays.
    asked.options.filter = None;
    let mut subscription = world.subscribe(asked).await;
    world.publish("a", 20).await;
    world.until("a", "g", |seen| seen.floor == Offset(21)).await;
    assert!(is_idle(&mut subscription));
}
