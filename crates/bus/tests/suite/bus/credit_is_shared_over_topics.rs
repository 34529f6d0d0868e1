//! A subscription shares its credit over the topics of its pattern.

use std::collections::BTreeSet;

use promethean_bus::SubscriptionItem;

use super::harness::*;

on_both_stores!(
    a_topic_goes_on_when_another_gives_credit_back,
    credit_given_back_in_part_reaches_the_waiting_topic,
    every_topic_is_served_in_the_end,
    members_of_a_pattern_share,
    a_busy_topic_leaves_turns_to_others,
    a_topic_whose_turn_it_is_goes_away,
);

async fn a_topic_goes_on_when_another_gives_credit_back(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("t.x", 0..2).await;
    let mut subscription = world.subscribe(bounded(request("t.*", "g"), 2)).await;
    let held = take(&mut subscription, 2).await;
    world.publish("t.y", 0).await;
    assert_eq!(until_credit(&world, "t.y").await, "credit");
    assert!(is_idle(&mut subscription));
    held[0].ack().await.unwrap();
    assert_eq!(take_one(&mut subscription).await.event.topic, topic("t.y"));
}

async fn until_credit(world: &World, name: &str) -> &'static str {
    soon("joined", async {
        while world.bus.group(&topic(name), &group("g")).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let seen = world.until(name, "g", |seen| seen.lag > 0 && seen.members > 0 && seen.reason.is_some()).await;
    seen.reason.unwrap().as_str()
}

/// The topic that gives credit back has seen more free credit than there is now.
async fn credit_given_back_in_part_reaches_the_waiting_topic(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut subscription = world.subscribe(bounded(request("t.*", "g"), 10)).await;
    world.fill("t.x", 0..3).await;
    let x = take(&mut subscription, 3).await;
    assert_eq!(world.word("t.x", "g").await, "leased");
    world.fill("t.y", 0..7).await;
    let y = take(&mut subscription, 7).await;
    world.publish("t.z", 0).await;
    assert_eq!(until_credit(&world, "t.z").await, "credit");
    assert_eq!(subscription.ack(&x).await.unwrap().stale, 0);
    assert_eq!(take_one(&mut subscription).await.event.topic, topic("t.z"));
    assert_eq!(subscription.ack(&y).await.unwrap().stale, 0);
}

async fn every_topic_is_served_in_the_end(kind: StoreKind) {
    let world = World::new(kind).await;
    for n in 0..8 {
        world.fill(&format!("t.{n}"), 0..25).await;
    }
    for leases_max in [1, 3] {
        let mut subscription = world.subscribe(bounded(request("t.*", &format!("g{leases_max}")), 3)).await;
        let mut found = BTreeSet::new();
        while found.len() < 200 {
            let given = soon("next", subscription.next(leases_max)).await.unwrap();
            let SubscriptionItem::Leases(leases) = given else { continue };
            for lease in &leases {
                assert!(found.insert((lease.event.topic.clone(), lease.event.offset)), "twice");
            }
            subscription.ack(&leases).await.unwrap();
        }
    }
}

async fn members_of_a_pattern_share(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut first = world.subscribe(bounded(request("t.*", "g"), 5)).await;
    let mut second = world.subscribe(bounded(request("t.*", "g"), 5)).await;
    for n in 0..4 {
        world.fill(&format!("t.{n}"), 0..10).await;
    }
    let mut found = BTreeSet::new();
    while found.len() < 40 {
        let (subscription, given) = soon("either", async {
            tokio::select! {
                given = first.next(2) => (&first, given),
                given = second.next(2) => (&second, given),
            }
        })
        .await;
        let SubscriptionItem::Leases(leases) = given.unwrap() else { continue };
        for lease in &leases {
            assert!(found.insert((lease.event.topic.clone(), lease.event.offset)), "twice");
        }
        assert_eq!(subscription.ack(&leases).await.unwrap().stale, 0);
    }
    // The second member may hear of a topic after the first has finished it.
    world.until("t.0", "g", |seen| (seen.members, seen.lag) == (2, 0)).await;
}

async fn a_busy_topic_leaves_turns_to_others(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("t.busy", 0..2_000).await;
    for credit in [1, 4] {
        let name = format!("g{credit}");
        let mut subscription = world.subscribe(bounded(request("t.*", &name), credit)).await;
        let mut held = take(&mut subscription, credit).await;
        for quiet in ["t.one", "t.two"] {
            for n in 0..5 {
                world.publish(quiet, n).await;
            }
            let waits =
                |seen: &promethean_bus::groups::GroupProgress| seen.reason.is_some() && seen.members > 0;
            soon("joined", async {
                while world.bus.group(&topic(quiet), &group(&name)).await.is_err() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
            world.until(quiet, &name, waits).await;
        }
        // One in, one out: each of three topics gets its turn. An owner whose thread is interrupted after its delivery enters
        // the queue late, and the busy topic goes on for so long; it must not do so until it has no more events.
        let (mut rounds, mut quiet) = (0, 0);
        while quiet < 10 {
            rounds += 1;
            assert!(rounds <= 1_000, "only {quiet} of 10 after {rounds} deliveries");
            subscription.ack(&[held.remove(0)]).await.unwrap();
            let lease = take_one(&mut subscription).await;
            quiet += usize::from(lease.event.topic != topic("t.busy"));
            held.push(lease);
        }
        drop(subscription);
        for quiet in ["t.one", "t.two"] {
            world.bus.delete_topic(&topic(quiet)).await.unwrap();
        }
    }
}

async fn a_topic_whose_turn_it_is_goes_away(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("t.a", 0..3).await;
    let mut subscription = world.subscribe(bounded(request("t.*", "g"), 1)).await;
    let held = take_one(&mut subscription).await;
    for name in ["t.b", "t.c"] {
        world.publish(name, 0).await;
        assert_eq!(until_credit(&world, name).await, "credit");
    }
    // This topic waited first.
    world.bus.delete_topic(&topic("t.b")).await.unwrap();
    held.ack().await.unwrap();
    let next = take_one(&mut subscription).await;
    next.ack().await.unwrap();
    let mut topics = vec![next.event.topic];
    for _ in 0..2 {
        let lease = take_one(&mut subscription).await;
        lease.ack().await.unwrap();
        topics.push(lease.event.topic);
    }
    topics.sort();
    assert_eq!(topics, [topic("t.a"), topic("t.a"), topic("t.c")]);
}
