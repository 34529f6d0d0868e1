//! A seek moves the cursor of a group.

use promethean_bus::rows::StartPosition;
use promethean_model::Offset;
use promethean_store::port::Table;

use super::harness::*;

on_both_stores!(
    a_dry_run_counts_and_changes_nothing,
    a_seek_takes_back_what_is_in_flight,
    a_seek_without_members,
    a_seek_forgets_failures,
    every_place_can_be_sought,
);

async fn a_dry_run_counts_and_changes_nothing(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..10).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let leases = take(&mut subscription, 10).await;
    // Finished: 0, 1, 2, 5, 7.
    for n in [0, 1, 2, 5, 7] {
        leases[n].ack().await.unwrap();
    }
    for (to, replayed, skipped) in [(0, 5, 0), (1, 4, 0), (3, 2, 0), (4, 2, 1), (6, 1, 2), (10, 0, 5)] {
        let report =
            world.bus.seek(&topic("a"), &group("g"), StartPosition::Offset(Offset(to)), true).await.unwrap();
        assert_eq!((report.replayed, report.skipped), (replayed, skipped), "{to}");
        assert_eq!((report.from, report.to, report.applied), (Offset(3), Offset(to), false));
    }
    let seen = world.settled("a", "g").await;
    assert_eq!((seen.floor, seen.lag, seen.in_flight), (Offset(3), 5, 5));
}

async fn a_seek_takes_back_what_is_in_flight(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..10).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let held = take(&mut subscription, 6).await;
    held[0].ack().await.unwrap();
    let report =
        world.bus.seek(&topic("a"), &group("g"), StartPosition::Offset(Offset(4)), false).await.unwrap();
    assert_eq!((report.applied, report.replayed, report.skipped), (true, 0, 3));
    assert_eq!(subscription.ack(&held).await.unwrap().stale, 6);
    let again = take(&mut subscription, 6).await;
    assert_eq!(offsets(&again), [4, 5, 6, 7, 8, 9], "what lay in the inbox is gone too");
    assert!(again.iter().all(|lease| lease.attempt == 1));
    subscription.ack(&again).await.unwrap();
    let report = world.bus.seek(&topic("a"), &group("g"), StartPosition::Earliest, false).await.unwrap();
    assert_eq!((report.replayed, report.skipped), (10, 0));
    assert_eq!(numbers(&take(&mut subscription, 10).await), (0..10).collect::<Vec<_>>());
}

async fn a_seek_without_members(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..5).await;
    drop(world.subscribe(request("a", "g")).await);
    world.bus.seek(&topic("a"), &group("g"), StartPosition::Latest, false).await.unwrap();
    world.until_tasks(0).await;
    let seen = world.seen("a", "g").await;
    assert_eq!((seen.floor, seen.reason.unwrap().as_str()), (Offset(5), "caught_up"));
    let world = world.restart().await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    world.publish("a", 5).await;
    assert_eq!(number(&take_one(&mut subscription).await.event), 5);
    let error = world.bus.seek(&topic("a"), &group("other"), StartPosition::Latest, false).await.unwrap_err();
    assert_eq!(error.code(), "unknown_group");
    let beyond = StartPosition::Offset(Offset(7));
    let error = world.bus.seek(&topic("a"), &group("g"), beyond, true).await.unwrap_err();
    assert_eq!(error.code(), "beyond_end");
}

async fn a_seek_forgets_failures(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..2).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let leases = take(&mut subscription, 2).await;
    subscription.nack(&leases, Some(60_000)).await.unwrap();
    assert_eq!(world.rows(Table::Attempts).await, 2);
    world.bus.seek(&topic("a"), &group("g"), StartPosition::Earliest, false).await.unwrap();
    assert_eq!(world.rows(Table::Attempts).await, 0);
    let again = take(&mut subscription, 2).await;
    assert!(again.iter().all(|lease| lease.attempt == 1));
}

async fn every_place_can_be_sought(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        world.clock.advance(100);
        ids.push(world.publish("a", n).await.id);
    }
    let mut subscription = world.subscribe(request("a", "g")).await;
    for (to, first) in [
        (StartPosition::Ts(WALL_MS + 300), 2),
        (StartPosition::AfterId(ids[0]), 1),
        (StartPosition::Offset(Offset(3)), 3),
        (StartPosition::Earliest, 0),
        (StartPosition::Ts(0), 0),
    ] {
        world.bus.seek(&topic("a"), &group("g"), to, false).await.unwrap();
        let leases = take(&mut subscription, 5 - first).await;
        assert_eq!(numbers(&leases), (first as u64..5).collect::<Vec<_>>());
    }
}
