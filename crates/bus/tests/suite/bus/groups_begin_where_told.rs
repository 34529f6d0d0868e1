//! Groups begin where they are told to, and go on where they were.

use promethean_bus::SubscriptionItem;
use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_model::Offset;

use super::harness::*;

on_both_stores!(
    groups_begin_where_they_are_told_to,
    a_topic_may_come_after_its_subscribers,
    without_manual_ack_events_are_done_when_handed_over,
    the_cursor_is_readable_and_a_nack_leaves_it,
    the_group_goes_on_after_a_restart,
);

async fn groups_begin_where_they_are_told_to(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut ids = Vec::new();
    for n in 0..6 {
        let event = Publish::new(topic("a"), n.to_string()).ts(1000 + n * 10);
        ids.push(world.bus.publish(event).await.unwrap().id);
    }
    for (name, from, first) in [
        ("earliest", StartPosition::Earliest, 0),
        ("ts", StartPosition::Ts(1015), 2),
        ("ts-exact", StartPosition::Ts(1020), 2),
        ("ts-late", StartPosition::Ts(5000), 6),
        ("after", StartPosition::AfterId(ids[3]), 4),
        ("offset", StartPosition::Offset(Offset(5)), 5),
        ("end", StartPosition::Offset(Offset(6)), 6),
        ("latest", StartPosition::Latest, 6),
    ] {
        let subscription = world.subscribe(request_from("a", name, from)).await;
        assert_eq!(world.seen("a", name).await.floor, Offset(first), "{name}");
        drop(subscription);
    }
    // The owners have taken back what they had given to the dropped members.
    world.until_tasks(0).await;
    world.publish("a", 6).await;
    for (name, first) in [("earliest", 0), ("ts", 2), ("after", 4), ("offset", 5), ("end", 6), ("latest", 6)]
    {
        let mut request = request("a", name);
        // Without a value the option keeps its earlier one.
        request.options.from = None;
        let mut subscription = world.subscribe(request).await;
        let leases = take(&mut subscription, 7 - first).await;
        assert_eq!(numbers(&leases), (first as u64..7).collect::<Vec<_>>(), "{name}");
    }
    let error = world.bus.subscribe(request_from("a", "earliest", StartPosition::Latest)).await.unwrap_err();
    assert_eq!(error.code(), "conflict");
    let unknown = promethean_model::EventId::from_bytes([9; 16]);
    let error =
        world.bus.subscribe(request_from("a", "x", StartPosition::AfterId(unknown))).await.unwrap_err();
    assert_eq!(error.code(), "unknown_event");
    let error =
        world.bus.subscribe(request_from("a", "x", StartPosition::Offset(Offset(8)))).await.unwrap_err();
    assert_eq!(error.code(), "beyond_end");
}

async fn a_topic_may_come_after_its_subscribers(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut early = world.subscribe(request_from("a.b", "g", StartPosition::Earliest)).await;
    let mut late = world.subscribe(request_from("a.b", "h", StartPosition::Latest)).await;
    assert_eq!(world.word("a.b", "g").await, "caught_up");
    world.fill("a.b", 0..3).await;
    assert_eq!(numbers(&take(&mut early, 3).await), [0, 1, 2]);
    assert_eq!(numbers(&take(&mut late, 3).await), [0, 1, 2]);
}

async fn without_manual_ack_events_are_done_when_handed_over(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut asked = bounded(request("a", "g"), 2);
    asked.member.manual_ack = false;
    let mut subscription = world.subscribe(asked).await;
    world.fill("a", 0..10).await;
    // Events in the inbox are not handed over yet.
    let first = take(&mut subscription, 1).await;
    world.until("a", "g", |seen| seen.floor == Offset(1) && seen.in_flight == 2).await;
    assert_eq!(numbers(&take(&mut subscription, 9).await), (1..10).collect::<Vec<_>>());
    world.until("a", "g", |seen| seen.floor == Offset(10)).await;
    assert_eq!(first[0].ack().await.unwrap().stale, 1);
    subscription.lost();
    let world = world.restart().await;
    assert_eq!(world.seen("a", "g").await.floor, Offset(10));
}

async fn the_cursor_is_readable_and_a_nack_leaves_it(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..3).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let leases = take(&mut subscription, 3).await;
    assert_eq!(leases[0].ack().await.unwrap().stale, 0);
    let cursor = async || world.store.cursor(&group("g"), &topic("a")).await.unwrap().unwrap().floor;
    assert_eq!(cursor().await, Offset(1));
    assert_eq!(leases[1].nack(Some(500)).await.unwrap().stale, 0);
    assert_eq!(leases[2].ack().await.unwrap().stale, 0);
    assert_eq!(cursor().await, Offset(1));
    assert_eq!(world.word("a", "g").await, "backoff");
    world.pass(499);
    assert_eq!(world.word("a", "g").await, "backoff");
    world.pass(1);
    let again = take_one(&mut subscription).await;
    assert_eq!((number(&again.event), again.attempt), (1, 2));
    assert_eq!(again.ack().await.unwrap().stale, 0);
    assert_eq!(cursor().await, Offset(3));
    assert_eq!(world.word("a", "g").await, "caught_up");
}

async fn the_group_goes_on_after_a_restart(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..10).await;
    let mut subscription = world.subscribe(request("a", "g")).await;
    let leases = take(&mut subscription, 10).await;
    // Acked out of order: 1, 3, 5, 7, 9.
    for lease in leases.iter().skip(1).step_by(2).rev() {
        assert_eq!(lease.ack().await.unwrap().stale, 0);
    }
    let world = world.restart().await;
    let seen = world.seen("a", "g").await;
    assert_eq!((seen.floor, seen.lag, seen.reason.unwrap().as_str()), (Offset(0), 5, "no_members"));
    let mut again = world.subscribe(request("a", "g")).await;
    let leases = take(&mut again, 5).await;
    assert_eq!(numbers(&leases), [0, 2, 4, 6, 8]);
    assert!(leases.iter().all(|lease| lease.attempt == 1), "a shutdown is no failure");
    assert_eq!(again.ack(&leases).await.unwrap().stale, 0);
    let seen = world.seen("a", "g").await;
    assert_eq!((seen.floor, seen.lag), (Offset(10), 0));
    assert!(matches!(again.try_take(1), None | Some(Ok(SubscriptionItem::Rebalance { .. }))));
}
