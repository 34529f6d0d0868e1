//! Time that the process missed expires no lease before what has arrived is read.

use std::time::Duration;

use promethean_bus::subscription::Subscribe;
use promethean_delivery::Liveness;
use promethean_model::Offset;
use tokio::time::{Instant, advance, sleep_until};

use super::harness::*;

const EVENTS: usize = 20;

fn short_leases() -> Subscribe {
    let mut request = attempts(request("a", "g"), 1);
    request.member.ack_timeout_ms = 3_000;
    request
}

/// The process stands still: time passes, and no task runs. The time of the runtime is paused in these tests, so it
/// passes only here, and while all tasks wait.
async fn stand_still(world: &World, ms: u64) {
    world.clock.advance(ms);
    advance(Duration::from_millis(ms)).await;
}

/// Lets tasks run for this long.
async fn run_for(world: &World, ms: u64) {
    world.clock.advance(ms);
    sleep_until(Instant::now() + Duration::from_millis(ms)).await;
}

#[tokio::test(start_paused = true)]
async fn acks_that_arrive_during_a_pause_are_taken() {
    for pause_ms in [4_000, 30_000] {
        let world = World::new(StoreKind::Memory).await;
        world.fill("a", 0..EVENTS as u64).await;
        let mut subscription = world.subscribe(short_leases()).await;
        let leases = take(&mut subscription, EVENTS).await;
        assert_eq!(world.settled("a", "g").await.in_flight, EVENTS);
        stand_still(&world, pause_ms).await;
        // The group runs before the connections do, and finds that all leases are over.
        world.bus.wake();
        assert_eq!(world.settled("a", "g").await.in_flight, EVENTS);
        for lease in leases {
            assert_eq!(lease.ack().await.unwrap().stale, 0);
        }
        let seen = world.settled("a", "g").await;
        assert_eq!((seen.floor, world.events("a.dlq").await.len()), (Offset(EVENTS as u64), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn leases_without_an_ack_expire_soon_after_a_pause() {
    let world = World::new(StoreKind::Memory).await;
    world.fill("a", 0..2).await;
    let mut subscription = world.subscribe(short_leases()).await;
    let leases = take(&mut subscription, 2).await;
    assert_eq!(world.settled("a", "g").await.in_flight, 2);
    stand_still(&world, 60_000).await;
    run_for(&world, 4_000).await;
    assert_eq!(leases[0].ack().await.unwrap().stale, 0);
    assert_eq!(world.settled("a", "g").await.in_flight, 1, "five seconds are not over");
    run_for(&world, 1_500).await;
    assert_eq!(world.events("a.dlq").await.len(), 1);
    assert_eq!(leases[1].ack().await.unwrap().stale, 1);
}

/// The lease ends shortly after the pause: its ack has waited in a buffer too.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_just_after_a_pause_has_the_grace_too() {
    let world = World::new(StoreKind::Memory).await;
    world.fill("a", 0..1).await;
    let mut subscription = world.subscribe(short_leases()).await;
    let lease = take_one(&mut subscription).await;
    assert_eq!(world.settled("a", "g").await.in_flight, 1);
    stand_still(&world, 2_999).await;
    run_for(&world, 1_000).await;
    assert_eq!(lease.ack().await.unwrap().stale, 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_pause_leases_expire_when_they_are_over() {
    let world = World::new(StoreKind::Memory).await;
    world.fill("a", 0..1).await;
    let mut subscription = world.subscribe(short_leases()).await;
    let lease = take_one(&mut subscription).await;
    assert_eq!(world.settled("a", "g").await.in_flight, 1);
    for _ in 0..31 {
        run_for(&world, 100).await;
    }
    assert_eq!((lease.ack().await.unwrap().stale, world.events("a.dlq").await.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn heartbeats_that_arrive_during_a_pause_count() {
    let world = World::new(StoreKind::Memory).await;
    let mut request = request("a", "g");
    request.options.partitions = Some(4);
    request.member.member_id = Some("m".parse().unwrap());
    request.member.liveness = Liveness::Heartbeat;
    let member = world.subscribe(request).await;
    stand_still(&world, 30_000).await;
    member.heartbeat().unwrap();
    run_for(&world, 6_000).await;
    member.heartbeat().unwrap();
}
