//! A subscription to a pattern follows all its topics, also new ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use promethean_bus::publish::Publish;
use promethean_bus::{Lease, Subscription, SubscriptionItem};
use promethean_model::Offset;
use tokio::task::JoinSet;

use super::harness::*;

on_both_stores!(
    one_word_or_many,
    the_systems_topics_never_match,
    topics_born_later_begin_at_their_beginning,
    no_event_is_missed_while_topics_are_born,
    a_publisher_that_goes_away_does_not_hide_a_birth,
    topics_created_without_members_are_found_later,
    a_paused_subscription_stays_paused_on_new_topics,
    a_member_that_leaves_while_topics_are_created_is_gone,
    a_topic_of_the_pattern_is_deleted,
    acks_of_one_topic_count_when_another_is_deleted,
    topics_beyond_the_first_thousand_are_joined_too,
);

fn by_topic(leases: &[Lease]) -> BTreeMap<String, Vec<u64>> {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for lease in leases {
        found.entry(lease.event.topic.to_string()).or_default().push(lease.event.offset.get());
    }
    found
}

async fn one_word_or_many(kind: StoreKind) {
    let world = World::new(kind).await;
    for name in ["a", "a.b", "a.c", "a.b.c", "b.a"] {
        world.publish(name, 0).await;
    }
    let mut one = world.subscribe(request("a.*", "one")).await;
    let mut many = world.subscribe(request("a.**", "many")).await;
    assert_eq!(by_topic(&take(&mut one, 2).await).into_keys().collect::<Vec<_>>(), ["a.b", "a.c"]);
    assert_eq!(by_topic(&take(&mut many, 3).await).into_keys().collect::<Vec<_>>(), ["a.b", "a.b.c", "a.c"]);
    world.publish("a.d.e", 0).await;
    assert_eq!(take_one(&mut many).await.event.topic, topic("a.d.e"));
    assert!(is_idle(&mut one));
    // One cursor for each topic.
    let groups = world.bus.groups(None).await.unwrap();
    let topics: Vec<_> = groups.iter().map(|info| (info.group.as_str(), info.topics.len())).collect();
    assert_eq!(topics, [("many", 4), ("one", 2)]);
}

async fn the_systems_topics_never_match(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a.b", 0).await;
    let mut failing = world.subscribe(attempts(request("a.b", "f"), 1)).await;
    take_one(&mut failing).await.nack(None).await.unwrap();
    assert_eq!(world.events("a.b.dlq").await.len(), 1);
    let mut all = world.subscribe(request("**", "all")).await;
    let mut two = world.subscribe(request("a.**", "two")).await;
    for subscription in [&mut all, &mut two] {
        let lease = take_one(subscription).await;
        assert_eq!(lease.event.topic, topic("a.b"));
        subscription.ack(&[lease]).await.unwrap();
    }
    // Also if they are created while the subscription exists.
    world.publish("a.c", 1).await;
    let mut failing = world.subscribe(attempts(request("a.c", "f"), 1)).await;
    take_one(&mut failing).await.nack(None).await.unwrap();
    assert_eq!(take_one(&mut all).await.event.topic, topic("a.c"));
    world.publish("z", 2).await;
    assert_eq!(take_one(&mut all).await.event.topic, topic("z"));
    let infos = world.bus.groups(None).await.unwrap();
    let info = infos.iter().find(|info| info.group == group("all")).unwrap();
    assert_eq!(info.topics.iter().map(|topic| topic.topic.as_str()).collect::<Vec<_>>(), ["a.b", "a.c", "z"]);
}

async fn topics_born_later_begin_at_their_beginning(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a.old", 0..3).await;
    let mut latest =
        world.subscribe(request_from("a.*", "g", promethean_bus::rows::StartPosition::Latest)).await;
    world
        .bus
        .publish_batch((0..5).map(|n| Publish::new(topic("a.new"), n.to_string())).collect())
        .await
        .unwrap();
    assert_eq!(by_topic(&take(&mut latest, 5).await), [("a.new".to_owned(), vec![0, 1, 2, 3, 4])].into());
    world.publish("a.old", 3).await;
    assert_eq!(take_one(&mut latest).await.event.offset, Offset(3));
    world.bus.create_topic(&topic("a.empty")).await.unwrap();
    world.publish("a.empty", 0).await;
    assert_eq!(take_one(&mut latest).await.event.topic, topic("a.empty"));
}

async fn no_event_is_missed_while_topics_are_born(kind: StoreKind) {
    let world = Arc::new(World::new(kind).await);
    const TOPICS: usize = 40;
    const EVENTS: usize = 5;
    let mut publishers = JoinSet::new();
    for publisher in 0..4 {
        let world = Arc::clone(&world);
        publishers.spawn(async move {
            for n in 0..TOPICS / 4 {
                for event in 0..EVENTS {
                    world.publish(&format!("t.{publisher}-{n}"), event as u64).await;
                }
            }
        });
    }
    let mut first = world.subscribe(request("t.*", "g")).await;
    let mut second = world.subscribe(request("t.*", "g")).await;
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    soon("all events", async {
        let mut count = 0;
        while count < TOPICS * EVENTS {
            let (subscription, given) = tokio::select! {
                given = first.next(7) => (&first, given),
                given = second.next(7) => (&second, given),
            };
            let SubscriptionItem::Leases(leases) = given.unwrap() else { continue };
            count += leases.len();
            for (topic, offsets) in by_topic(&leases) {
                found.entry(topic).or_default().extend(offsets);
            }
            assert_eq!(subscription.ack(&leases).await.unwrap().stale, 0);
        }
    })
    .await;
    publishers.join_all().await;
    assert_eq!(found.len(), TOPICS);
    for offsets in found.values_mut() {
        offsets.sort_unstable();
        assert_eq!(*offsets, (0..EVENTS as u64).collect::<Vec<_>>());
    }
}

async fn a_publisher_that_goes_away_does_not_hide_a_birth(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut subscription = world.subscribe(request("t.*", "g")).await;
    let mut born = 0;
    for n in 0..20 {
        let name = format!("t.{n}");
        {
            let publish = world.bus.publish(Publish::new(topic(&name), "1"));
            tokio::pin!(publish);
            // Polled once and dropped, whatever the result.
            tokio::select! {
                biased;
                _ = &mut publish => {}
                () = std::future::ready(()) => {}
            }
        }
        // All accepted events come before this one.
        world.publish("other", n).await;
        born += usize::from(world.store.durable_end(&topic(&name)) > Offset::ZERO);
    }
    take(&mut subscription, born).await;
}

async fn topics_created_without_members_are_found_later(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a.x", 0).await;
    let latest = || request_from("a.*", "g", promethean_bus::rows::StartPosition::Latest);
    drop(world.subscribe(latest()).await);
    let world = world.restart().await;
    world.fill("a.y", 0..2).await;
    world.publish("a.x", 1).await;
    let mut subscription = world.subscribe(latest()).await;
    let found = by_topic(&take(&mut subscription, 3).await);
    assert_eq!(found, [("a.x".to_owned(), vec![1]), ("a.y".to_owned(), vec![0, 1])].into());
}

async fn a_paused_subscription_stays_paused_on_new_topics(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a.x", 0).await;
    let mut subscription = world.subscribe(request("a.*", "g")).await;
    take_one(&mut subscription).await.ack().await.unwrap();
    subscription.pause().await.unwrap();
    world.publish("a.y", 1).await;
    soon("the topic is joined", async {
        while world.bus.group(&topic("a.y"), &group("g")).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let seen = world.until("a.y", "g", |seen| seen.members == 1 && seen.reason.is_some()).await;
    assert_eq!(seen.reason.unwrap().as_str(), "paused");
    assert!(is_idle(&mut subscription));
    subscription.resume().await.unwrap();
    assert_eq!(take_one(&mut subscription).await.event.topic, topic("a.y"));
}

async fn a_member_that_leaves_while_topics_are_created_is_gone(kind: StoreKind) {
    let world = Arc::new(World::new(kind).await);
    for round in 0..10 {
        let subscription: Subscription = world.subscribe(request("t.**", "g")).await;
        let publisher = {
            let world = Arc::clone(&world);
            async move { world.fill(&format!("t.{round}"), 0..1).await }
        };
        let mut publisher = JoinSet::from_iter([publisher]);
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        subscription.unsubscribe();
        publisher.join_next().await.unwrap().unwrap();
        // An owner with a member that is gone would stay, with leases that never end.
        world.until_tasks(0).await;
    }
    let mut subscription = world.subscribe(request("t.**", "g")).await;
    assert_eq!(by_topic(&take(&mut subscription, 10).await).len(), 10);
}

async fn a_topic_of_the_pattern_is_deleted(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a.x", 0..2).await;
    world.publish("a.y", 0).await;
    let mut subscription = world.subscribe(request("a.*", "g")).await;
    let leases = take(&mut subscription, 3).await;
    subscription.ack(&leases).await.unwrap();
    world.bus.delete_topic(&topic("a.x")).await.unwrap();
    // The other topics of the pattern go on, and a new one of the name begins at its beginning.
    world.publish("a.y", 1).await;
    let lease = take_one(&mut subscription).await;
    assert_eq!((number(&lease.event), lease.event.topic.as_str()), (1, "a.y"));
    lease.ack().await.unwrap();
    world.publish("a.x", 7).await;
    let lease = take_one(&mut subscription).await;
    assert_eq!((number(&lease.event), lease.event.offset), (7, Offset(0)));
    lease.ack().await.unwrap();
    assert_eq!(world.word("a.y", "g").await, "caught_up");
}

async fn acks_of_one_topic_count_when_another_is_deleted(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a.x", 0).await;
    world.publish("a.y", 1).await;
    let mut subscription = world.subscribe(request("a.*", "g")).await;
    let mut leases = take(&mut subscription, 2).await;
    leases.sort_by_key(|lease| lease.event.topic.to_string());
    world.bus.delete_topic(&topic("a.x")).await.unwrap();
    assert_eq!(soon("ack", subscription.ack(&leases)).await.unwrap().stale, 1);
    assert_eq!(world.seen("a.y", "g").await.floor, Offset(1));
}

async fn topics_beyond_the_first_thousand_are_joined_too(kind: StoreKind) {
    let world = World::new(kind).await;
    for n in 0..1_100 {
        world.publish(&format!("p.{n:04}"), n).await;
    }
    let mut member = world.subscribe(request("p.*", "g")).await;
    // The answer came before all topics were joined: each joined topic has a task.
    assert!(world.bus.tasks() < 1_100, "{}", world.bus.tasks());
    // Born while the others are joined.
    world.publish("p.new", 0).await;
    let mut topics = BTreeMap::new();
    while topics.len() < 1_101 {
        let lease = take_one(&mut member).await;
        topics.extend(by_topic(std::slice::from_ref(&lease)));
        lease.ack().await.unwrap();
    }
    assert!(topics.values().all(|offsets| offsets == &[0]));
    // A member that leaves at once leaves no task behind.
    drop(member);
    let leaving = world.subscribe(request("p.*", "h")).await;
    drop(leaving);
    world.until_tasks(0).await;
}
