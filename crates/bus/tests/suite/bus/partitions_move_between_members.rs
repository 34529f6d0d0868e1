//! Members of a group own partitions, which move when members come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use promethean_bus::rows::StartPosition;
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Lease, Subscription, SubscriptionItem};
use promethean_delivery::{Liveness, MemberChange};
use promethean_model::{Offset, partition_of};
use promethean_store::port::{CursorOp, StateOp, Table};
use promethean_testkit::{Fault, StoreCall};
use tokio::time::{Instant, sleep_until};

use super::harness::*;

const N: u32 = 8;

on_both_stores!(
    every_event_goes_to_the_owner_of_its_partition,
    joins_and_leaves_move_partitions,
    epochs_grow_over_a_restart,
    a_late_ack_of_a_lost_partition_is_stale,
    the_number_changes_only_without_members,
    a_name_is_needed_and_taken_over,
    a_member_without_partitions_is_fenced_too,
    a_name_is_taken_over_without_partitions_too,
    a_refused_member_leaves_nothing_behind,
    patterns_have_partitions_too,
    a_partitioned_group_has_one_subject,
    a_member_without_heartbeats_loses_its_partitions,
    heartbeats_are_for_partitioned_groups,
);

fn partitioned(subject: &str, member: &str, partitions: u32) -> Subscribe {
    let mut request = request(subject, "g");
    request.options.partitions = Some(partitions);
    request.member.member_id = Some(member.parse().unwrap());
    request
}

async fn rebalance(subscription: &mut Subscription) -> (u64, MemberChange) {
    loop {
        if let SubscriptionItem::Rebalance { epoch, change } =
            soon("rebalance", subscription.take(100)).await.unwrap()
        {
            return (epoch, change);
        }
    }
}

fn label(lease: &Lease) -> u32 {
    partition_of(lease.event.key(), &lease.event.id, N)
}

async fn keys(world: &World, to: &str, count: u64) {
    for n in 0..count {
        world.publish_key(to, &format!("key {n}"), n).await;
    }
}

async fn every_event_goes_to_the_owner_of_its_partition(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut members: BTreeMap<&str, Subscription> = BTreeMap::new();
    for name in ["one", "two", "three"] {
        members.insert(name, world.subscribe(partitioned("a", name, N)).await);
    }
    keys(&world, "a", 60).await;
    let view = world.bus.coordinators().pop().unwrap().2;
    assert_eq!((view.partitions, view.members.len()), (N, 3));
    let owned: BTreeMap<String, BTreeSet<u32>> = (view.members.iter())
        .map(|member| (member.member.to_string(), member.partitions.iter().copied().collect()))
        .collect();
    assert_eq!(owned.values().map(BTreeSet::len).sum::<usize>(), N as usize);
    let mut found = BTreeSet::new();
    while found.len() < 60 {
        for (name, subscription) in &mut members {
            match subscription.try_take(10).transpose().unwrap() {
                Some(SubscriptionItem::Leases(leases)) => {
                    for lease in &leases {
                        assert!(owned[*name].contains(&label(lease)), "{name} got {}", label(lease));
                        assert!(found.insert(lease.event.offset), "twice");
                    }
                    assert_eq!(subscription.ack(&leases).await.unwrap().stale, 0);
                }
                Some(SubscriptionItem::Rebalance { .. } | SubscriptionItem::Over(_)) => {}
                None => tokio::task::yield_now().await,
            }
        }
    }
    assert_eq!(world.word("a", "g").await, "caught_up");
}

async fn joins_and_leaves_move_partitions(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut one = world.subscribe(partitioned("a", "one", N)).await;
    let (first, change) = rebalance(&mut one).await;
    assert_eq!((change.assigned, change.revoked.len()), ((0..N).collect::<Vec<_>>(), 0));
    let mut two = world.subscribe(partitioned("a", "two", N)).await;
    let (second, lost) = rebalance(&mut one).await;
    let (second_too, won) = rebalance(&mut two).await;
    assert!(first < second && second == second_too);
    assert!(!lost.revoked.is_empty() && lost.assigned.is_empty());
    assert_eq!(lost.revoked, won.assigned);
    two.unsubscribe();
    let (third, back) = rebalance(&mut one).await;
    assert!(third > second);
    assert_eq!(back.assigned, lost.revoked);
}

async fn epochs_grow_over_a_restart(kind: StoreKind) {
    let mut world = World::new(kind).await;
    let mut last = 0;
    for _ in 0..3 {
        for _ in 0..3 {
            let mut one = world.subscribe(partitioned("a", "one", N)).await;
            let (epoch, _) = rebalance(&mut one).await;
            assert!(epoch > last, "{epoch} after {last}");
            last = epoch;
        }
        world = world.restart().await;
    }
}

async fn a_late_ack_of_a_lost_partition_is_stale(kind: StoreKind) {
    let world = World::new(kind).await;
    keys(&world, "a", 20).await;
    let mut one = world.subscribe(partitioned("a", "one", N)).await;
    let held = take(&mut one, 20).await;
    let mut two = world.subscribe(partitioned("a", "two", N)).await;
    let (_, won) = rebalance(&mut two).await;
    let lost: Vec<&Lease> = held.iter().filter(|lease| won.assigned.contains(&label(lease))).collect();
    assert!(!lost.is_empty());
    let again = take(&mut two, lost.len()).await;
    assert!(again.iter().all(|lease| lease.attempt == 1 && won.assigned.contains(&label(lease))));
    assert_eq!(one.ack(&held).await.unwrap().stale, lost.len());
    let seen = world.settled("a", "g").await;
    assert_eq!(seen.lag, lost.len() as u64, "nothing of what was lost is finished");
    assert_eq!(one.nack(&held, None).await.unwrap().stale, held.len());
    assert_eq!(two.ack(&again).await.unwrap().stale, 0);
    assert_eq!(world.settled("a", "g").await.floor, Offset(20));
}

async fn the_number_changes_only_without_members(kind: StoreKind) {
    let world = World::new(kind).await;
    keys(&world, "a", 10).await;
    let mut one = world.subscribe(partitioned("a", "one", 2)).await;
    let error = world.bus.subscribe(partitioned("a", "two", 4)).await.unwrap_err();
    assert_eq!(error.code(), "partitions_in_use");
    let leases = take(&mut one, 10).await;
    one.ack_soon(&leases).await.unwrap();
    // A member that has left is out at once, also if the owner still has something to write.
    for n in [4, 3, 7] {
        one.unsubscribe();
        one = world.subscribe(partitioned("a", "one", n)).await;
        let (_, change) = rebalance(&mut one).await;
        assert_eq!(change.assigned, (0..n).collect::<Vec<_>>());
    }
    let seen = world.settled("a", "g").await;
    assert_eq!(seen.floor, Offset(10), "what was acked stays so");
    let mut shared = request("b", "h");
    drop(world.subscribe(shared.clone()).await);
    shared.options.partitions = Some(2);
    shared.member.member_id = Some("m".parse().unwrap());
    assert_eq!(world.bus.subscribe(shared).await.unwrap_err().code(), "conflict");
}

async fn a_name_is_needed_and_taken_over(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut nameless = partitioned("a", "one", N);
    nameless.member.member_id = None;
    let error = world.bus.subscribe(nameless).await.unwrap_err();
    assert_eq!(error.code(), "bad_option");
    keys(&world, "a", 5).await;
    let mut first = world.subscribe(partitioned("a", "one", N)).await;
    let held = take(&mut first, 5).await;
    let mut second = world.subscribe(partitioned("a", "one", N)).await;
    let again = take(&mut second, 5).await;
    assert_eq!(first.ack(&held).await.unwrap().stale, 5);
    // The first is told so, and its group counts one member.
    let told = end_of(&mut first).await;
    assert_eq!(told.code(), "member_fenced");
    for named in ["`one`", "`g`", "`a`", "memberId"] {
        assert!(told.to_string().contains(named), "{told}");
    }
    assert!(!told.is_retryable());
    assert_eq!(world.settled("a", "g").await.members, 1);
    first.lost();
    assert_eq!(second.ack(&again).await.unwrap().stale, 0);
    assert_eq!(world.bus.coordinators().pop().unwrap().2.members.len(), 1);
    drop(second);
    assert!(world.bus.coordinators().is_empty());
}

async fn a_member_without_partitions_is_fenced_too(kind: StoreKind) {
    let world = World::new(kind).await;
    // One partition, so that one of the two members has none.
    let mut members = Vec::new();
    for name in ["one", "two"] {
        members.push(world.subscribe(partitioned("a", name, 1)).await);
    }
    for (at, name) in ["one", "two"].into_iter().enumerate() {
        let again = world.subscribe(partitioned("a", name, 1)).await;
        assert_eq!(end_of(&mut members[at]).await.code(), "member_fenced", "{name}");
        members.push(again);
    }
    assert_eq!(world.bus.coordinators().pop().unwrap().2.members.len(), 2);
    assert_eq!(world.settled("a", "g").await.members, 2);
}

async fn a_name_is_taken_over_without_partitions_too(kind: StoreKind) {
    let world = World::new(kind).await;
    let named = |name: &str, group: &str| {
        let mut named = request("a", group);
        named.member.member_id = Some(name.parse().unwrap());
        named
    };
    world.fill("a", 0..4).await;
    let mut first = world.subscribe(named("one", "g")).await;
    let held = take(&mut first, 4).await;
    let mut others = [world.subscribe(named("two", "g")).await, world.subscribe(named("one", "other")).await];
    let mut second = world.subscribe(named("one", "g")).await;
    assert_eq!(end_of(&mut first).await.code(), "member_fenced");
    assert_eq!(first.ack(&held).await.unwrap().stale, 4);
    assert_eq!(world.settled("a", "g").await.members, 2);
    // A name of another group, or another name, is not touched; and the name can be taken again.
    drop((first, held));
    drop(second);
    second = world.subscribe(named("one", "g")).await;
    for member in &mut others {
        assert!(!matches!(member.try_take(100), Some(Err(_))));
    }
    assert!(!matches!(second.try_take(100), Some(Err(_))));
}

async fn a_refused_member_leaves_nothing_behind(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    world.fill("a.b", 0..1).await;
    let mut nameless = partitioned("a.b", "one", N);
    nameless.member.member_id = None;
    let mut beats = request("a.b", "g");
    beats.member.liveness = Liveness::Heartbeat;
    let refused = [nameless, beats, request_from("a.*", "g", StartPosition::Offset(Offset(0)))];
    for request in refused {
        assert_eq!(world.bus.subscribe(request).await.unwrap_err().code(), "bad_option");
    }
    let left = async || {
        let cursors = world.store.cursors_of_group(&group("g")).await.unwrap().len();
        (world.bus.groups(None).await.unwrap().len(), world.rows(Table::Groups).await, cursors)
    };
    assert_eq!(left().await, (0, 0, 0));
    // The group is made, and then its owner cannot take it over.
    let takes_over =
        |op: &StateOp| matches!(op, StateOp::Cursor(CursorOp::Put { cursor, .. }) if cursor.epoch > 0);
    store.rule(move |call| match call {
        StoreCall::Commit(batch) if batch.state.iter().any(takes_over) => Fault::Fail,
        _ => Fault::None,
    });
    for subject in ["a.b", "a.*"] {
        assert!(world.bus.subscribe(request(subject, "g")).await.is_err(), "{subject}");
        assert_eq!(left().await, (0, 0, 0), "{subject}");
    }
    store.heal();
    // A refusal takes nothing from a group that was there, and its member stays.
    let mut member = world.subscribe(partitioned("a.b", "one", N)).await;
    let mut nameless = partitioned("a.b", "one", N);
    nameless.member.member_id = None;
    assert_eq!(world.bus.subscribe(nameless).await.unwrap_err().code(), "bad_option");
    take(&mut member, 1).await;
    assert_eq!(left().await, (1, 1, 1));
}

async fn patterns_have_partitions_too(kind: StoreKind) {
    let world = World::new(kind).await;
    keys(&world, "t.x", 10).await;
    let mut one = world.subscribe(partitioned("t.*", "one", N)).await;
    let mut two = world.subscribe(partitioned("t.*", "two", N)).await;
    keys(&world, "t.y", 10).await;
    let mut found: BTreeMap<(String, u64), bool> = BTreeMap::new();
    while found.len() < 20 {
        let (is_one, given) = soon("either", async {
            tokio::select! {
                given = one.next(5) => (true, given),
                given = two.next(5) => (false, given),
            }
        })
        .await;
        let SubscriptionItem::Leases(leases) = given.unwrap() else { continue };
        for lease in &leases {
            let key = (lease.event.topic.to_string(), lease.event.offset.get());
            // Events that `one` got before `two` came may come again.
            found.insert(key, is_one);
        }
        (if is_one { &one } else { &two }).ack(&leases).await.unwrap();
    }
    assert!(found.values().any(|is_one| *is_one) && found.values().any(|is_one| !*is_one));
}

async fn a_partitioned_group_has_one_subject(kind: StoreKind) {
    let world = World::new(kind).await;
    let _member = world.subscribe(partitioned("a.b", "m", N)).await;
    for other in [partitioned("a.*", "n", N), request("a.c", "g")] {
        assert_eq!(world.bus.subscribe(other).await.unwrap_err().code(), "conflict");
    }
}

fn beating(member: &str) -> Subscribe {
    let mut request = partitioned("a", member, N);
    request.member.liveness = Liveness::Heartbeat;
    request
}

async fn a_member_without_heartbeats_loses_its_partitions(kind: StoreKind) {
    let world = World::new(kind).await;
    keys(&world, "a", 30).await;
    let mut silent = world.subscribe(beating("silent")).await;
    let held = take(&mut silent, 30).await;
    let mut beats = world.subscribe(beating("beats")).await;
    let socket = world.subscribe(partitioned("a", "socket", N)).await;
    let members = || world.bus.coordinators().pop().unwrap().2.members;
    let words: Vec<_> = members().iter().map(|member| member.liveness).collect();
    assert_eq!(words, ["heartbeat", "heartbeat", "socket"]);
    for _ in 0..3 {
        world.pass(5_000);
        beats.heartbeat().unwrap();
    }
    assert_eq!(members().len(), 3, "15 seconds are not too long");
    let had = members()[0].partitions.clone();
    world.pass(3_000);
    assert_eq!(
        members().iter().map(|member| member.member.as_str()).collect::<Vec<_>>(),
        ["beats", "socket"]
    );
    assert_eq!(members().iter().map(|member| member.partitions.len()).sum::<usize>(), N as usize);
    assert_eq!(silent.heartbeat().unwrap_err().code(), "unknown_member");
    let (_, change) = rebalance(&mut silent).await;
    assert!(change.assigned.is_empty() && !change.revoked.is_empty(), "{change:?}");
    // Other members get the events that it held: what it held when it was lost has failed, what moved on before has not.
    assert_eq!(silent.ack(&held).await.unwrap().stale, 30);
    let count = held.iter().filter(|lease| members()[0].partitions.contains(&label(lease))).count();
    for lease in take(&mut beats, count).await {
        assert_eq!(lease.attempt, if had.contains(&label(&lease)) { 1 } else { 2 }, "{lease:?}");
    }
    // It can join again under its name.
    drop(silent);
    let again = world.subscribe(beating("silent")).await;
    again.heartbeat().unwrap();
    // A session that was taken over does not keep its successor alive.
    let successor = world.subscribe(beating("silent")).await;
    assert_eq!(again.heartbeat().unwrap_err().code(), "unknown_member");
    successor.heartbeat().unwrap();
    drop((beats, socket, again, successor));
    world.bus.close().await;
    assert_eq!(world.bus.tasks(), 0);
}

async fn heartbeats_are_for_partitioned_groups(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut request = request("a", "plain");
    request.member.liveness = Liveness::Heartbeat;
    assert_eq!(world.bus.subscribe(request).await.unwrap_err().code(), "bad_option");
    let member = world.subscribe(partitioned("b", "m", N)).await;
    world.pass(100_000);
    member.heartbeat().unwrap();
}

/// No test tells the bus that time has passed: its own timer looks at the clock every three seconds. The time of the
/// runtime is paused: waiting for it lets all tasks run and takes no real time.
#[tokio::test(start_paused = true)]
async fn the_timer_of_heartbeats_takes_a_silent_member_out() {
    let world = World::new(StoreKind::Memory).await;
    world.fill("a", 0..20).await;
    let member = |name: &str, liveness| {
        let mut request = request("a", "g");
        request.options.partitions = Some(8);
        request.member.member_id = Some(name.parse().unwrap());
        request.member.liveness = liveness;
        request
    };
    let mut silent = world.subscribe(member("silent", Liveness::Heartbeat)).await;
    assert_eq!(take(&mut silent, 20).await.len(), 20);
    let mut other = world.subscribe(member("other", Liveness::Socket)).await;
    let members = || world.bus.coordinators().pop().unwrap().2.members;
    let had = members()[0].partitions.clone();
    let next_look = || sleep_until(Instant::now() + Duration::from_millis(3_500));
    // Fifteen seconds of silence are not too long.
    world.clock.advance(15_000);
    next_look().await;
    assert_eq!(members().len(), 2);
    world.clock.advance(3_000);
    next_look().await;
    assert_eq!(members().len(), 1);
    assert_eq!(silent.heartbeat().unwrap_err().code(), "unknown_member");
    for lease in take(&mut other, 20).await {
        assert_eq!(lease.attempt, if had.contains(&label(&lease)) { 1 } else { 2 }, "{lease:?}");
    }
}
