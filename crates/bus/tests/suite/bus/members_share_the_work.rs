//! Members of one group share its work.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use promethean_bus::limits::Rate;
use promethean_model::Offset;
use promethean_store::port::Table;

use super::harness::*;

on_both_stores!(
    two_members_split_the_work,
    credit_bounds_what_is_in_flight,
    acks_come_in_any_order,
    an_expired_lease_is_delivered_to_another,
    a_lost_member_counts_and_one_that_unsubscribes_does_not,
    what_did_not_reach_a_lost_member_does_not_count,
    attempts_survive_a_restart,
    extending_keeps_a_lease,
    a_stale_ack_changes_nothing,
    a_paused_member_gets_nothing,
    a_group_stays_paused_over_a_restart,
    what_the_rate_refuses_is_neither_lost_nor_counted,
);

async fn two_members_split_the_work(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..20).await;
    let mut first = world.subscribe(bounded(request("a", "g"), 10)).await;
    let mut second = world.subscribe(bounded(request("a", "g"), 10)).await;
    let (ours, theirs) = (take(&mut first, 10).await, take(&mut second, 10).await);
    let all: BTreeSet<u64> = numbers(&ours).into_iter().chain(numbers(&theirs)).collect();
    assert_eq!(all.len(), 20);
    assert_eq!(world.settled("a", "g").await.in_flight, 20);
    // A member cannot ack the lease of another.
    assert_eq!(second.ack(&ours).await.unwrap().stale, 10);
    assert_eq!(first.ack(&ours).await.unwrap().stale, 0);
    assert_eq!(second.ack(&theirs).await.unwrap().stale, 0);
    assert_eq!(world.seen("a", "g").await.floor, Offset(20));
}

async fn credit_bounds_what_is_in_flight(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..10).await;
    let mut subscription = world.subscribe(bounded(request("a", "g"), 3)).await;
    let leases = take(&mut subscription, 3).await;
    let seen = world.settled("a", "g").await;
    assert_eq!((seen.in_flight, seen.lag, seen.reason.unwrap().as_str()), (3, 10, "credit"));
    assert!(is_idle(&mut subscription));
    leases[1].ack().await.unwrap();
    assert_eq!(numbers(&take(&mut subscription, 1).await), [3]);
    assert_eq!(world.settled("a", "g").await.in_flight, 3);
    assert!(is_idle(&mut subscription));
}

async fn acks_come_in_any_order(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..5).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let leases = take(&mut subscription, 5).await;
    for (acked, floor) in [(4, 0), (1, 0), (0, 2), (3, 2), (2, 5)] {
        assert_eq!(leases[acked].ack().await.unwrap().stale, 0);
        assert_eq!(world.seen("a", "g").await.floor, Offset(floor));
    }
}

async fn an_expired_lease_is_delivered_to_another(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut asked = bounded(request("a", "g"), 1);
    asked.member.ack_timeout_ms = 5_000;
    let mut first = world.subscribe(asked.clone()).await;
    world.publish("a", 0).await;
    let held = take_one(&mut first).await;
    let mut second = world.subscribe(asked).await;
    world.pass(4_999);
    assert_eq!(world.word("a", "g").await, "leased");
    assert_eq!(held.extend(None).await.unwrap().stale, 0);
    world.pass(4_999);
    assert_eq!(world.word("a", "g").await, "leased");
    world.pass(1);
    let again = soon("either", async {
        tokio::select! {
            given = first.next(1) => given,
            given = second.next(1) => given,
        }
    })
    .await
    .unwrap();
    let promethean_bus::SubscriptionItem::Leases(again) = again else { panic!("{again:?}") };
    assert_eq!(again[0].attempt, 2);
    assert_eq!(held.ack().await.unwrap().stale, 1);
    assert_eq!(held.extend(None).await.unwrap().stale, 1);
    assert_eq!(held.nack(None).await.unwrap().stale, 1);
    assert_eq!(again[0].ack().await.unwrap().stale, 0);
    assert_eq!(world.word("a", "g").await, "caught_up");
}

async fn a_lost_member_counts_and_one_that_unsubscribes_does_not(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a", 0).await;
    for (lose, attempt) in [(false, 1), (true, 1), (false, 2), (true, 2), (true, 3)] {
        let mut subscription = world.subscribe(request("a", "g")).await;
        assert_eq!(take_one(&mut subscription).await.attempt, attempt);
        // The group knows that the event was handed over before the member leaves.
        assert_eq!(world.settled("a", "g").await.in_flight, 1);
        if lose { subscription.lost() } else { subscription.unsubscribe() }
    }
    let mut subscription = world.subscribe(request("a", "g")).await;
    assert_eq!(take_one(&mut subscription).await.attempt, 4);
    // A member that is dropped without a word counts as lost.
    drop(subscription);
    let mut subscription = world.subscribe(request("a", "g")).await;
    assert_eq!(take_one(&mut subscription).await.attempt, 5);
}

async fn what_did_not_reach_a_lost_member_does_not_count(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..2).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    take(&mut subscription, 1).await;
    assert_eq!(world.settled("a", "g").await.in_flight, 2);
    subscription.lost();
    let mut subscription = world.subscribe(request("a", "g")).await;
    let mut leases = take(&mut subscription, 2).await;
    leases.sort_by_key(|lease| lease.event.offset);
    assert_eq!(leases.iter().map(|lease| lease.attempt).collect::<Vec<_>>(), [2, 1]);
}

async fn attempts_survive_a_restart(kind: StoreKind) {
    let mut world = World::new(kind).await;
    world.publish("a", 0).await;
    for attempt in 1..5 {
        let mut subscription = world.subscribe(request("a", "g")).await;
        let lease = take_one(&mut subscription).await;
        assert_eq!(lease.attempt, attempt);
        assert_eq!(lease.nack(Some(1_000)).await.unwrap().stale, 0);
        world = world.restart().await;
        let waiting = world.subscribe(request("a", "g")).await;
        assert_eq!(world.word("a", "g").await, "backoff", "the delay survives too");
        drop(waiting);
        world.pass(1_000);
    }
}

async fn extending_keeps_a_lease(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a", 0).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let lease = take_one(&mut subscription).await;
    for _ in 0..5 {
        assert_eq!(lease.extend(Some(50_000)).await.unwrap().stale, 0);
        world.pass(49_999);
        assert_eq!(world.word("a", "g").await, "leased");
    }
    // At least a second.
    assert_eq!(lease.extend(Some(0)).await.unwrap().stale, 0);
    world.pass(999);
    assert_eq!(world.word("a", "g").await, "leased");
    world.pass(1);
    assert_eq!(take_one(&mut subscription).await.attempt, 2);
    assert_eq!(lease.ack().await.unwrap().stale, 1);
}

async fn a_stale_ack_changes_nothing(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a", 0).await;
    let mut first = world.subscribe(request("a", "g")).await;
    let held = take_one(&mut first).await;
    first.unsubscribe();
    assert_eq!(held.ack().await.unwrap().stale, 1, "whether the owner has ended or not");
    world.until_tasks(0).await;
    assert_eq!(held.ack().await.unwrap().stale, 1);
    assert_eq!(world.seen("a", "g").await.floor, Offset(0));
    let mut second = world.subscribe(request("a", "g")).await;
    let again = take_one(&mut second).await;
    assert_eq!(held.nack(None).await.unwrap().stale, 1);
    assert_eq!(again.ack().await.unwrap().stale, 0);
    assert_eq!(again.ack().await.unwrap().stale, 1, "twice");
}

async fn a_paused_member_gets_nothing(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut first = world.subscribe(request("a", "g")).await;
    first.pause().await.unwrap();
    world.fill("a", 0..3).await;
    assert_eq!(
        world.until("a", "g", |seen| seen.lag == 3 && seen.reason.is_some()).await.reason.unwrap().as_str(),
        "paused"
    );
    assert!(is_idle(&mut first));
    let mut second = world.subscribe(bounded(request("a", "g"), 1)).await;
    assert_eq!(numbers(&take(&mut second, 1).await), [0]);
    assert_eq!(world.word("a", "g").await, "credit");
    first.resume().await.unwrap();
    assert_eq!(numbers(&take(&mut first, 2).await), [1, 2]);
}

async fn a_group_stays_paused_over_a_restart(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    world.fill("a", 0..2).await;
    let held = take(&mut subscription, 1).await;
    let subject = "a".parse().unwrap();
    world.bus.pause_group(&subject, &group("g")).await.unwrap();
    world.publish("a", 2).await;
    // Leases in flight stay in flight.
    assert_eq!(held[0].ack().await.unwrap().stale, 0);
    drop(subscription);
    let world = world.restart().await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    assert_eq!(
        world
            .until("a", "g", |seen| seen.members == 1 && seen.reason.is_some())
            .await
            .reason
            .unwrap()
            .as_str(),
        "paused"
    );
    assert!(world.bus.groups(None).await.unwrap()[0].row.paused);
    assert!(is_idle(&mut subscription));
    world.bus.resume_group(&subject, &group("g")).await.unwrap();
    assert_eq!(numbers(&take(&mut subscription, 2).await), [1, 2]);
}

async fn what_the_rate_refuses_is_neither_lost_nor_counted(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..10).await;
    let mut asked = request("a", "g");
    asked.member.pull = true;
    let two = NonZeroU32::new(2).unwrap();
    asked.member.rate = Some(Rate { per_second: two, burst: two });
    let mut member = world.subscribe(asked).await;
    for round in 0..5 {
        member.grant(8);
        let leases = take(&mut member, 2).await;
        assert_eq!(offsets(&leases), [round * 2, round * 2 + 1]);
        assert!(leases.iter().all(|lease| lease.attempt == 1));
        let seen = world.settled("a", "g").await;
        let word = if round == 4 { "leased" } else { "rate" };
        assert_eq!((seen.in_flight, seen.reason.unwrap().as_str()), (2, word));
        member.ungrant().await;
        // The rate would let more through, but the member has not asked.
        world.pass(1_000);
        assert_eq!(world.word("a", "g").await, if round == 4 { "leased" } else { "credit" });
        assert!(is_idle(&mut member));
        assert_eq!(member.ack(&leases).await.unwrap().stale, 0);
        assert_eq!(world.seen("a", "g").await.in_flight, 0);
    }
    assert_eq!(world.word("a", "g").await, "caught_up");
    assert_eq!(world.rows(Table::Attempts).await, 0);
}
