//! A group says why it delivers nothing, with the word for each reason.

use promethean_bus::limits::Rate;
use promethean_delivery::Order;
use promethean_model::Offset;

use super::harness::*;

on_both_stores!(
    each_word_is_seen,
    the_rate_of_a_member_is_kept,
    the_lag_of_a_group_without_members_is_measured
);

async fn the_lag_of_a_group_without_members_is_measured(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..10).await;
    for subject in ["a", "*"] {
        let mut subscription = world.subscribe(bounded(request(subject, "g"), 3)).await;
        take(&mut subscription, 3).await.pop().unwrap().ack().await.unwrap();
        subscription.unsubscribe();
        world.until_tasks(0).await;
        let shown = async || {
            world.bus.measure_idle_groups().await.unwrap();
            let page = world.bus.metrics_page();
            let line = page.lines().find(|line| line.starts_with("events_lag{topic=\"a\",group=\"g\"}"));
            line.and_then(|line| line.rsplit_once(' ')).map(|(_, lag)| lag.parse::<u64>().unwrap())
        };
        assert_eq!(shown().await, Some(9), "{subject}");
        assert_eq!(shown().await, Some(9), "measured again, not added");
        let subscription = world.subscribe(bounded(request(subject, "g"), 3)).await;
        world.settled("a", "g").await;
        assert_eq!(shown().await, Some(9), "of the owner alone");
        drop(subscription);
        world.until_tasks(0).await;
        world.bus.delete_group(&subject.parse().unwrap(), &group("g")).await.unwrap();
    }
    // The commits of publishes count.
    let page = world.bus.metrics_page();
    let count = page.lines().find_map(|line| line.strip_prefix("commit_latency_ms_count "));
    assert!(count.unwrap().parse::<u64>().unwrap() >= 3, "{count:?}");
}

async fn each_word_is_seen(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut asked = bounded(request("a", "g"), 2);
    asked.options.order = Some(Order::Key);
    let mut subscription = world.subscribe(asked.clone()).await;
    assert_eq!(world.word("a", "g").await, "caught_up");
    world.publish_key("a", "x", 0).await;
    let first = take_one(&mut subscription).await;
    assert_eq!(world.word("a", "g").await, "leased");
    world.publish_key("a", "x", 1).await;
    assert_eq!(
        world.until("a", "g", |seen| seen.lag == 2 && seen.reason.is_some()).await.reason.unwrap().as_str(),
        "blocked_key"
    );
    let seen = world.settled("a", "g").await;
    assert!(seen.blocked_keys[0].member.is_some());
    world.publish_key("a", "y", 2).await;
    let second = take_one(&mut subscription).await;
    world.publish_key("a", "z", 3).await;
    assert_eq!(
        world.until("a", "g", |seen| seen.lag == 4 && seen.reason.is_some()).await.reason.unwrap().as_str(),
        "credit"
    );
    second.ack().await.unwrap();
    take_one(&mut subscription).await.ack().await.unwrap();
    first.ack().await.unwrap();
    take_one(&mut subscription).await.nack(Some(5_000)).await.unwrap();
    assert_eq!(world.word("a", "g").await, "backoff");
    subscription.pause().await.unwrap();
    assert_eq!(world.word("a", "g").await, "paused");
    subscription.resume().await.unwrap();
    subscription.unsubscribe();
    assert_eq!(world.until("a", "g", |seen| seen.members == 0).await.reason.unwrap().as_str(), "no_members");
    world.until_tasks(0).await;
    assert_eq!(world.word("a", "g").await, "no_members");
    let subscription = world.subscribe(asked).await;
    world.bus.pause_group(&"a".parse().unwrap(), &group("g")).await.unwrap();
    assert_eq!(
        world
            .until("a", "g", |seen| seen.members == 1 && seen.reason.is_some())
            .await
            .reason
            .unwrap()
            .as_str(),
        "paused"
    );
    drop(subscription);
}

async fn the_rate_of_a_member_is_kept(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..10).await;
    let mut asked = request("a", "g");
    asked.member.rate = Some(Rate::new(10, 2));
    let mut subscription = world.subscribe(asked).await;
    assert_eq!(numbers(&take(&mut subscription, 2).await), [0, 1]);
    let seen = world.settled("a", "g").await;
    assert_eq!((seen.reason.unwrap().as_str(), seen.in_flight), ("rate", 2));
    world.pass(99);
    assert_eq!(world.word("a", "g").await, "rate");
    assert!(is_idle(&mut subscription));
    world.pass(1);
    assert_eq!(numbers(&take(&mut subscription, 1).await), [2]);
    assert_eq!(world.word("a", "g").await, "rate");
    world.pass(200);
    let leases = take(&mut subscription, 2).await;
    assert_eq!(leases[1].event.offset, Offset(4));
}
