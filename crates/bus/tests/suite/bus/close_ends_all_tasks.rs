//! Closing the bus ends its tasks; idle owners end by themselves.

use std::sync::Arc;

use promethean_bus::publish::Publish;
use promethean_model::Offset;
use promethean_testkit::{Fault, FaultStore, StoreCall};

use super::harness::*;

on_both_stores!(
    closing_ends_everything,
    a_closed_bus_refuses,
    acks_on_their_way_are_committed,
    owners_without_members_end,
    a_closed_store_ends_subscriptions,
    close_may_be_called_twice_and_given_up,
    a_close_tries_refused_acks_once_more,
    a_close_does_not_wait_for_a_store_that_refuses,
);

async fn closing_ends_everything(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("t.a", 0..3).await;
    world.fill("t.b", 0..3).await;
    let mut one = world.subscribe(request("t.a", "g")).await;
    let mut pattern = world.subscribe(request("t.*", "h")).await;
    let mut waiting = world.subscribe(request("none.*", "h")).await;
    let mut unborn = world.subscribe(request("unborn", "g")).await;
    let held = take(&mut one, 2).await;
    take(&mut pattern, 4).await;
    world.until_tasks(6).await;
    soon("close", world.bus.close()).await;
    assert_eq!(world.bus.tasks(), 0);
    for subscription in [&mut one, &mut pattern, &mut waiting, &mut unborn] {
        assert_eq!(end_of(subscription).await.code(), "closed");
    }
    assert_eq!(held[0].ack().await.unwrap_err().code(), "closed");
    drop((one, pattern, waiting, unborn));
    let world = world.restart().await;
    let mut again = world.subscribe(request("t.a", "g")).await;
    let leases = take(&mut again, 3).await;
    assert!(leases.iter().all(|lease| lease.attempt == 1), "released without counting");
    let mut again = world.subscribe(request("t.*", "h")).await;
    assert!(take(&mut again, 6).await.iter().all(|lease| lease.attempt == 1));
}

async fn a_closed_bus_refuses(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a", 0).await;
    drop(world.subscribe(request("a", "g")).await);
    soon("close", world.bus.close()).await;
    let event = || Publish::new(topic("a"), "1");
    assert_eq!(world.bus.publish(event()).await.unwrap_err().code(), "closed");
    assert_eq!(world.bus.publish_batch(vec![event()]).await.unwrap_err().code(), "closed");
    assert_eq!(world.bus.publish_batch(Vec::new()).await.unwrap_err().code(), "closed");
    assert_eq!(world.bus.publish_each(vec![event()]).await[0].as_ref().unwrap_err().code(), "closed");
    assert_eq!(world.bus.subscribe(request("a", "g")).await.unwrap_err().code(), "closed");
    let to = promethean_bus::rows::StartPosition::Latest;
    assert_eq!(world.bus.seek(&topic("a"), &group("g"), to, false).await.unwrap_err().code(), "closed");
    assert_eq!(world.events("a").await.len(), 1);
}

async fn acks_on_their_way_are_committed(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..50).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let leases = take(&mut subscription, 50).await;
    for pair in leases.chunks(2) {
        subscription.ack_soon(pair).await.unwrap();
    }
    let world = world.restart().await;
    assert_eq!(world.seen("a", "g").await.floor, Offset(50));
}

async fn owners_without_members_end(kind: StoreKind) {
    let world = World::new(kind).await;
    for n in 0..5 {
        world.publish(&format!("t.{n}"), 0).await;
    }
    for _ in 0..3 {
        let mut one = world.subscribe(request("t.*", "g")).await;
        let two = world.subscribe(request("t.*", "g")).await;
        // Tasks that subscribing started end by themselves.
        world.until_tasks(7).await;
        take_one(&mut one).await.nack(Some(60_000)).await.unwrap();
        drop(one);
        two.unsubscribe();
        world.until_tasks(0).await;
    }
    // Looking at a group starts no task.
    world.bus.groups(None).await.unwrap();
    assert_eq!(world.bus.tasks(), 0);
}

async fn a_closed_store_ends_subscriptions(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a", 0).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    take_one(&mut subscription).await;
    world.store.close().await;
    assert_eq!(end_of(&mut subscription).await.code(), "closed");
    world.until_tasks(0).await;
    soon("close", world.bus.close()).await;
}

async fn close_may_be_called_twice_and_given_up(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..10).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let leases = take(&mut subscription, 10).await;
    subscription.ack_soon(&leases).await.unwrap();
    {
        let close = world.bus.close();
        tokio::pin!(close);
        tokio::select! {
            biased;
            () = &mut close => {}
            () = std::future::ready(()) => {}
        }
    }
    soon("close", async { tokio::join!(world.bus.close(), world.bus.close()) }).await;
    assert_eq!(world.bus.tasks(), 0);
    let world = world.restart().await;
    assert_eq!(world.seen("a", "g").await.floor, Offset(10), "giving up does not stop what was begun");
}

/// A bus whose store refuses to commit the acks of four events. The clock stands still, so no time for a retry comes.
async fn with_refused_acks(kind: StoreKind) -> (World, Arc<FaultStore>) {
    let (world, faults) = World::gated(kind).await;
    world.fill("a", 0..4).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let leases = take(&mut subscription, 4).await;
    faults.rule(|call| match call {
        StoreCall::Commit(_) => Fault::Fail,
        _ => Fault::None,
    });
    subscription.ack_soon(&leases).await.unwrap();
    world.until("a", "g", |seen| seen.failure.is_some()).await;
    (world, faults)
}

async fn a_close_tries_refused_acks_once_more(kind: StoreKind) {
    let (world, faults) = with_refused_acks(kind).await;
    faults.heal();
    soon("close", world.bus.close()).await;
    let world = world.restart().await;
    assert_eq!(world.seen("a", "g").await.floor, Offset(4));
}

async fn a_close_does_not_wait_for_a_store_that_refuses(kind: StoreKind) {
    let (world, faults) = with_refused_acks(kind).await;
    soon("close", world.bus.close()).await;
    assert_eq!(world.bus.tasks(), 0);
    faults.heal();
    let world = world.restart().await;
    assert_eq!(world.seen("a", "g").await.floor, Offset(0), "the acks were never durable");
}
