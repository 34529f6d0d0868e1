//! An event that ends its members becomes a dead letter, however the server hears that a member is lost.

use promethean_bus::Subscription;
use promethean_bus::dead_letters::Letter;
use promethean_bus::subscription::Subscribe;
use promethean_delivery::Liveness;
use promethean_model::Offset;
use promethean_store::port::Table;

use super::harness::*;

const ATTEMPTS: u32 = 3;

on_both_stores!(
    a_poison_event_of_a_partitioned_group_dies,
    a_poison_event_that_moves_between_members_dies,
    a_poison_event_of_silent_members_dies,
    a_poison_event_of_replaced_members_dies,
    members_that_leave_or_join_use_up_nothing,
);

fn member(name: &str) -> Subscribe {
    let mut request = attempts(request("a", "g"), ATTEMPTS);
    request.options.partitions = Some(4);
    request.member.member_id = Some(name.parse().unwrap());
    request
}

fn silent(name: &str) -> Subscribe {
    let mut request = member(name);
    request.member.liveness = Liveness::Heartbeat;
    request
}

/// Takes the poison event, and checks that this is its attempt of this number.
async fn take_poison(subscription: &mut Subscription, attempt: u32) {
    let lease = take_one(subscription).await;
    assert_eq!((lease.event.offset, lease.attempt), (Offset(0), attempt));
}

async fn is_dead(world: &World) {
    until("the dead letter", async || world.events("a.dlq").await.len() == 1).await;
    assert_eq!(world.seen("a", "g").await.floor, Offset(1));
    let letters = world.events("a.dlq").await;
    let letter: Letter = serde_json::from_slice(letters[0].payload()).unwrap();
    assert_eq!((letter.reason.as_str(), letter.attempts), ("member_lost", ATTEMPTS));
}

async fn a_poison_event_of_a_partitioned_group_dies(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish_key("a", "k", 0).await;
    for attempt in 1..=ATTEMPTS {
        let mut only = world.subscribe(member("m")).await;
        take_poison(&mut only, attempt).await;
        only.lost();
    }
    is_dead(&world).await;
}

async fn a_poison_event_that_moves_between_members_dies(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish_key("a", "k", 0).await;
    let mut members = Vec::new();
    for name in ["one", "two", "three"] {
        members.push(world.subscribe(member(name)).await);
    }
    // The event goes to one of the members that are left.
    for attempt in 1..=ATTEMPTS {
        let taken = async {
            loop {
                for (n, member) in members.iter_mut().enumerate() {
                    let item = member.try_take(1).transpose().unwrap();
                    if let Some(promethean_bus::SubscriptionItem::Leases(leases)) = item {
                        member.written(&leases);
                        return (n, leases[0].attempt);
                    }
                }
                tokio::task::yield_now().await;
            }
        };
        let (n, seen) = soon("the poison event", taken).await;
        assert_eq!(seen, attempt);
        members.remove(n).lost();
    }
    is_dead(&world).await;
}

async fn a_poison_event_of_silent_members_dies(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish_key("a", "k", 0).await;
    let mut gone = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let mut request = silent(&format!("m{attempt}"));
        // The lease outlives the member's heartbeats.
        request.member.ack_timeout_ms = 3_600_000;
        let mut only = world.subscribe(request).await;
        take_poison(&mut only, attempt).await;
        world.pass(20_000);
        assert_eq!(only.heartbeat().unwrap_err().code(), "unknown_member");
        gone.push(only);
    }
    is_dead(&world).await;
}

async fn a_poison_event_of_replaced_members_dies(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish_key("a", "k", 0).await;
    let mut last = world.subscribe(member("m")).await;
    for attempt in 1..=ATTEMPTS {
        take_poison(&mut last, attempt).await;
        // The member comes back before the server notices that its connection is broken.
        let next = world.subscribe(member("m")).await;
        std::mem::replace(&mut last, next).lost();
    }
    is_dead(&world).await;
}

async fn members_that_leave_or_join_use_up_nothing(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish_key("a", "k", 0).await;
    for _ in 0..2 * ATTEMPTS {
        let mut only = world.subscribe(member("m")).await;
        take_poison(&mut only, 1).await;
        only.unsubscribe();
    }
    let mut members = vec![world.subscribe(member("m")).await];
    take_poison(&mut members[0], 1).await;
    for n in 0..20 {
        members.push(world.subscribe(member(&format!("n{n}"))).await);
    }
    // The last owner of the partition has the event, after it went from owner to owner.
    let seen = world.settled("a", "g").await;
    assert_eq!((seen.reason.unwrap().as_str(), world.rows(Table::Attempts).await), ("leased", 0));
}
