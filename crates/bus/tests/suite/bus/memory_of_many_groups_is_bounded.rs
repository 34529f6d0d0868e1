//! The events that are read for groups take a bounded amount of memory, however many groups there are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use promethean_bus::publish::Publish;
use promethean_bus::{BusOptions, Subscription, SubscriptionItem};
use promethean_model::{Limits, Offset};
use promethean_testkit::{Fault, StoreCall};

use super::harness::*;

const GROUPS: usize = 60;
const EVENTS: u64 = 12;
const PAYLOAD: usize = 100 << 10;

on_both_stores!(
    groups_short_of_credit_get_all_events_within_the_budget,
    groups_that_wait_for_credit_keep_no_events,
    groups_wait_in_turn_while_the_budget_is_used,
);

/// A budget for two pages.
fn options() -> BusOptions {
    let limits = Limits { payload_bytes_max: 1 << 20, ..Limits::default() };
    BusOptions { limits, group_page_bytes_max: 5 << 19, ..BusOptions::default() }
}

async fn filled(kind: StoreKind) -> World {
    let world = World::with(kind, options()).await;
    for n in 0..EVENTS {
        let payload = format!("\"{n}{}\"", "x".repeat(PAYLOAD));
        world.bus.publish(Publish::new(topic("a"), payload)).await.unwrap();
    }
    world
}

async fn members(world: &World, max_in_flight: usize) -> BTreeMap<usize, Subscription> {
    let mut members = BTreeMap::new();
    for n in 0..GROUPS {
        let request = bounded(request("a", &format!("g{n}")), max_in_flight);
        members.insert(n, world.subscribe(request).await);
    }
    members
}

/// Lets every member take and ack all events, each in its order.
async fn consume_all(world: &World, members: BTreeMap<usize, Subscription>) {
    for (n, mut member) in members {
        let mut seen = Vec::new();
        while seen.len() < EVENTS as usize {
            let leases = take(&mut member, 1).await;
            seen.extend(offsets(&leases));
            member.ack_soon(&leases).await.unwrap();
        }
        assert_eq!(seen, (0..EVENTS).collect::<Vec<_>>(), "group {n}");
    }
    let memory = world.bus.page_memory();
    assert!(memory.peak_bytes <= memory.bytes_max && memory.peak_bytes > PAYLOAD, "{memory:?}");
}

async fn groups_short_of_credit_get_all_events_within_the_budget(kind: StoreKind) {
    for max_in_flight in [1, 3] {
        let world = filled(kind).await;
        let members = members(&world, max_in_flight).await;
        for n in 0..GROUPS {
            let seen = world.until("a", &format!("g{n}"), |seen| seen.in_flight == max_in_flight).await;
            assert_eq!((seen.lag, world.word("a", &format!("g{n}")).await), (EVENTS, "credit"));
        }
        consume_all(&world, members).await;
        world.close().await;
    }
}

async fn groups_that_wait_for_credit_keep_no_events(kind: StoreKind) {
    let world = filled(kind).await;
    let mut members = members(&world, 2).await;
    for n in 0..GROUPS {
        world.until("a", &format!("g{n}"), |seen| seen.in_flight == 2).await;
    }
    until("no page is in memory", async || world.bus.page_memory().bytes == 0).await;
    // Members that are paused while a page is read for them keep none either.
    for member in members.values_mut() {
        let leases = take(member, 2).await;
        member.pause().await.unwrap();
        member.ack(&leases).await.unwrap();
    }
    until("no page is in memory", async || world.bus.page_memory().bytes == 0).await;
    assert_eq!(world.word("a", "g0").await, "paused");
    for member in members.values() {
        member.resume().await.unwrap();
    }
    for (n, mut member) in members {
        let mut floor = 2;
        while floor < EVENTS {
            let leases = take(&mut member, 1).await;
            member.ack(&leases).await.unwrap();
            floor += 1;
        }
        assert_eq!(world.seen("a", &format!("g{n}")).await.floor, Offset(EVENTS));
    }
}

async fn groups_wait_in_turn_while_the_budget_is_used(kind: StoreKind) {
    let (world, gates) = filled(kind).await.with_gates().await;
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    gates.rule(move |call| match call {
        StoreCall::Read(_) => {
            counted.fetch_add(1, Ordering::SeqCst);
            Fault::Hold
        }
        _ => Fault::None,
    });
    let mut members = members(&world, 1).await;
    // Two pages fit the budget: two groups read, and all others wait for them.
    gates.reached().await;
    gates.reached().await;
    for n in 0..GROUPS {
        let seen = world.seen("a", &format!("g{n}")).await;
        assert_eq!((seen.reason, seen.in_flight), (None, 0), "it only waits for a read");
    }
    assert_eq!(reads.load(Ordering::SeqCst), 2);
    // Every read that ends lets the next group read: each group gets its first event after as many reads as there are
    // groups.
    for _ in 0..GROUPS - 2 {
        gates.let_through();
        gates.reached().await;
    }
    gates.let_through();
    gates.let_through();
    for (n, member) in &mut members {
        let SubscriptionItem::Leases(leases) = soon("the first event", member.next(1)).await.unwrap() else {
            panic!("group {n} got something else");
        };
        assert_eq!(offsets(&leases), [0]);
    }
    assert_eq!(reads.load(Ordering::SeqCst), GROUPS);
    gates.heal();
    let memory = world.bus.page_memory();
    assert!(memory.peak_bytes <= memory.bytes_max, "{memory:?}");
}
