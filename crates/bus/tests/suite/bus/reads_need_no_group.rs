//! Reads without a group: a part of a topic, the events that come, single events.

use promethean_bus::read::Tail;
use promethean_bus::rows::StartPosition;
use promethean_model::Offset;
use promethean_testkit::{Fault, StoreCall, starts_waiting};

use super::harness::*;

on_both_stores!(
    a_scan_ends_where_the_topic_ended,
    a_tail_gives_what_there_is_and_then_what_comes,
    a_tail_ends_with_its_topic_and_with_the_bus,
    single_events_are_found,
    a_failed_or_dropped_read_keeps_its_place,
);

async fn page(tail: &mut Tail) -> Option<Vec<u64>> {
    let page = soon("a page", tail.next_page()).await.unwrap();
    page.map(|page| page.events.iter().map(number).collect())
}

async fn a_scan_ends_where_the_topic_ended(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..10).await;
    let mut scan = world.bus.scan(&topic("a"), StartPosition::Offset(Offset(2))).await.unwrap();
    assert_eq!((scan.next(), scan.end()), (Offset(2), Offset(10)));
    world.fill("a", 10..12).await;
    let mut seen = Vec::new();
    while let Some(page) = scan.next_page(3, 1 << 20).await.unwrap() {
        assert!(page.events.len() <= 3);
        seen.extend(page.events.iter().map(number));
        scan.skip_to(Offset(7));
    }
    assert_eq!(seen, [2, 3, 4, 7, 8, 9]);
    let mut beyond = world.bus.scan(&topic("a"), StartPosition::Offset(Offset(99))).await.unwrap();
    assert_eq!(beyond.next_page(3, 1).await, Ok(None));
    let mut nothing = world.bus.scan(&topic("none"), StartPosition::Earliest).await.unwrap();
    assert_eq!(nothing.next_page(3, 1).await, Ok(None));
    let mut doomed = world.bus.scan(&topic("a"), StartPosition::Earliest).await.unwrap();
    world.bus.delete_topic(&topic("a")).await.unwrap();
    while soon("the end", doomed.next_page(3, 1 << 20)).await.unwrap().is_some() {}
}

async fn a_tail_gives_what_there_is_and_then_what_comes(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..3).await;
    let mut all = world.bus.tail(&topic("a"), StartPosition::Earliest).await.unwrap();
    let mut new = world.bus.tail(&topic("a"), StartPosition::Latest).await.unwrap();
    let mut unborn = world.bus.tail(&topic("b"), StartPosition::Earliest).await.unwrap();
    assert_eq!(page(&mut all).await, Some(vec![0, 1, 2]));
    let publishing = async { world.publish("a", 3).await };
    let (_, given, other) = tokio::join!(publishing, page(&mut all), page(&mut new));
    assert_eq!((given, other), (Some(vec![3]), Some(vec![3])));
    assert_eq!(new.next(), Offset(4));
    world.publish("b", 0).await;
    assert_eq!(page(&mut unborn).await, Some(vec![0]));
    let beyond = world.bus.tail(&topic("a"), StartPosition::Offset(Offset(5))).await;
    assert_eq!(beyond.unwrap_err().code(), "bad_seek");
}

async fn a_tail_ends_with_its_topic_and_with_the_bus(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a", 0).await;
    world.publish("b", 0).await;
    let mut doomed = world.bus.tail(&topic("a"), StartPosition::Latest).await.unwrap();
    let mut last = world.bus.tail(&topic("b"), StartPosition::Latest).await.unwrap();
    let deleting = async { world.bus.delete_topic(&topic("a")).await.unwrap() };
    assert_eq!(tokio::join!(page(&mut doomed), deleting).0, None);
    assert_eq!(tokio::join!(page(&mut last), world.bus.close()).0, None);
}

async fn single_events_are_found(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish_key("a", "x", 0).await;
    world.publish_key("a", "y", 1).await;
    world.publish_key("a", "x", 2).await;
    let keys = ["x", "none", "y"].map(str::to_owned);
    let found = world.bus.latest_by_key(&topic("a"), &keys).await.unwrap();
    let found: Vec<Option<u64>> = found.iter().map(|event| event.as_ref().map(number)).collect();
    assert_eq!(found, [Some(2), None, Some(1)]);
    let at = world.bus.event_at(&topic("a"), Offset(1)).await.unwrap();
    assert_eq!(at.as_ref().map(number), Some(1));
    assert_eq!(world.bus.event_at(&topic("a"), Offset(3)).await, Ok(None));
    assert_eq!((world.bus.end_of(&topic("a")), world.bus.end_of(&topic("b"))), (Offset(3), Offset(0)));
}

/// Every second read fails, and then every second read is dropped: no event is skipped and none comes twice.
async fn a_failed_or_dropped_read_keeps_its_place(kind: StoreKind) {
    let (world, gates) = World::gated(kind).await;
    let mut expected = Vec::new();
    for name in ["t.a", "t.b", "t.c"] {
        world.fill(name, 0..5).await;
        expected.extend((0..5).map(|number| (topic(name), number)));
    }
    for fault in [Fault::Fail, Fault::Hold] {
        let mut replay = world.bus.replay(&"t.*".parse().unwrap(), StartPosition::Earliest).await.unwrap();
        let mut scan = world.bus.scan(&topic("t.a"), StartPosition::Earliest).await.unwrap();
        let (mut replayed, mut scanned) = (Vec::new(), Vec::new());
        loop {
            let is_read = |call: &StoreCall<'_>| matches!(call, StoreCall::Read(_));
            gates.rule(move |call| if is_read(call) { fault } else { Fault::None });
            if fault == Fault::Fail {
                // The last call of each reads nothing: there is nothing that could fail.
                assert!(!matches!(replay.next_page(2).await, Ok(Some(_))));
                assert!(!matches!(scan.next_page(2, 1 << 20).await, Ok(Some(_))));
            } else {
                starts_waiting(std::pin::pin!(replay.next_page(2))).await;
                starts_waiting(std::pin::pin!(scan.next_page(2, 1 << 20))).await;
            }
            gates.heal();
            if let Some(page) = scan.next_page(2, 1 << 20).await.unwrap() {
                scanned.extend(page.events.iter().map(number));
            }
            let Some(page) = replay.next_page(2).await.unwrap() else { break };
            replayed.extend(page.events.iter().map(|event| (page.topic.clone(), number(event))));
        }
        assert_eq!((replayed, scanned), (expected.clone(), (0..5).collect::<Vec<_>>()), "{fault:?}");
    }
}
