//! Groups are listed, replayed and deleted; retention is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use promethean_bus::Bus;
use promethean_bus::groups::GroupQuery;
use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_delivery::Subject;
use promethean_model::{Offset, Retention, TopicName, TopicSettings};
use promethean_store::port::Table;
use promethean_testkit::{Fault, StoreCall};

use super::harness::*;

on_both_stores!(
    groups_and_their_lag_are_listed,
    groups_are_listed_in_pages,
    a_page_reads_only_the_progress_that_it_shows,
    a_page_of_wide_patterns_looks_at_a_bounded_number_of_topics,
    topics_are_listed_in_pages,
    a_deleted_group_leaves_nothing,
    a_group_with_members_is_not_deleted,
    replay_needs_no_group,
    what_retention_took_is_counted,
    a_topic_that_two_subjects_reach_stays_with_the_other,
);

async fn groups_and_their_lag_are_listed(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..4).await;
    world.fill("b", 0..2).await;
    let mut g = world.subscribe(request("a", "g")).await;
    let h = world.subscribe(request("b", "h")).await;
    let leases = take(&mut g, 3).await;
    leases[1].ack().await.unwrap();
    world.settled("a", "g").await;
    let all = world.bus.groups(None).await.unwrap();
    assert_eq!(all.iter().map(|info| info.group.as_str()).collect::<Vec<_>>(), ["g", "h"]);
    let of_a = world.bus.groups(Some(&topic("a"))).await.unwrap();
    assert_eq!(of_a.len(), 1);
    let progress = &of_a[0].topics[0];
    assert_eq!((progress.floor, progress.end, progress.lag), (Offset(0), Offset(4), 3));
    assert_eq!((progress.in_flight, progress.members), (3, 1));
    assert_eq!(of_a[0].row.created, WALL_MS);
    drop((g, h));
    let world = world.restart().await;
    let progress = world.seen("a", "g").await;
    assert_eq!((progress.lag, progress.in_flight, progress.members), (3, 0, 0));
    let topics: Vec<_> = world.bus.topics().await.unwrap();
    assert_eq!(
        topics.iter().map(|info| (info.name.as_str(), info.end.get())).collect::<Vec<_>>(),
        [("a", 4), ("b", 2)]
    );
    assert_eq!(world.bus.topic(&topic("c")).await.unwrap_err().code(), "unknown_topic");
    assert_eq!(world.bus.group(&topic("b"), &group("g")).await.unwrap_err().code(), "unknown_group");
}

/// Reads all pages. Returns the names of the groups, page by page.
async fn pages(bus: &Bus, topic: Option<&TopicName>, limit: usize) -> Vec<Vec<String>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let query = GroupQuery { topic, after: after.as_ref() };
        let page =
            bus.groups_page(query, limit, |key| !key.group.as_str().starts_with("hidden")).await.unwrap();
        found.push(page.groups.iter().map(|info| format!("{} {}", info.group, info.subject)).collect());
        match page.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

async fn groups_are_listed_in_pages(kind: StoreKind) {
    let world = World::new(kind).await;
    for (on, of) in [("a", "g1"), ("b", "g1"), ("a", "hidden"), ("a", "g2"), ("*", "g3"), ("b", "g4")] {
        drop(world.subscribe(request(on, of)).await);
    }
    let all = ["g1 a", "g1 b", "g2 a", "g3 *", "g4 b"];
    for limit in 1..7 {
        let found = pages(&world.bus, None, limit).await;
        assert_eq!(found.concat(), all, "limit {limit}");
        assert!(found.iter().all(|page| page.len() <= limit));
    }
    assert_eq!(pages(&world.bus, Some(&topic("a")), 2).await.concat(), ["g1 a", "g2 a", "g3 *"]);
    // A group of a pattern shows its first 100 topics, and the others when asked.
    for n in 0..130 {
        world.fill(&format!("p.{n:03}"), 0..1).await;
    }
    world.fill("q", 0..1).await;
    let member = world.subscribe(request("p.*", "wide")).await;
    let page =
        world.bus.groups_page(GroupQuery::default(), 100, |key| key.group.as_str() == "wide").await.unwrap();
    let wide = &page.groups[0];
    assert_eq!(wide.topics.len(), 100);
    let last = wide.next_topic.clone().unwrap();
    let subject = "p.*".parse().unwrap();
    let rest = world.bus.find_group(&group("wide"), &subject, Some(&last)).await.unwrap().unwrap();
    assert_eq!((rest.topics.len(), rest.next_topic), (30, None));
    assert_eq!(rest.topics[0].topic, topic("p.100"));
    drop(member);
}

async fn a_page_reads_only_the_progress_that_it_shows(kind: StoreKind) {
    let world = World::new(kind).await;
    for n in 0..50 {
        drop(world.subscribe(request(&format!("t{n}"), &format!("g{n:02}"))).await);
    }
    let (world, store) = world.restart().await.with_gates().await;
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    store.rule(move |call| {
        counted.fetch_add(usize::from(matches!(call, StoreCall::Cursor(_))), Ordering::SeqCst);
        Fault::None
    });
    let page = world.bus.groups_page(GroupQuery::default(), 3, |_| true).await.unwrap();
    assert_eq!(page.groups.len(), 3);
    assert!(reads.swap(0, Ordering::SeqCst) <= 6, "two reads for each group");
    let page = world.bus.groups_page(GroupQuery::default(), 100, |_| false).await.unwrap();
    assert_eq!((page.groups.len(), page.next), (0, None));
    assert_eq!(reads.load(Ordering::SeqCst), 0);
}

/// Groups of patterns without a first word to look for, each of which could make a page look at every topic.
async fn a_page_of_wide_patterns_looks_at_a_bounded_number_of_topics(kind: StoreKind) {
    const TOPICS: usize = 2_500;
    let world = World::new(kind).await;
    for from in (0..TOPICS).step_by(500) {
        let events = (from..from + 500).map(|n| Publish::new(topic(&format!("t{n:04}.a")), "1"));
        world.bus.publish_batch(events.collect()).await.unwrap();
    }
    for n in 0..20 {
        drop(world.subscribe(request(&format!("*.z{n}"), &format!("g{n:02}"))).await);
    }
    drop(world.subscribe(request("**", "h")).await);
    let (world, store) = world.restart().await.with_gates().await;
    let looked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looked);
    store.rule(move |call| {
        if let StoreCall::Topics(limit) = call {
            counted.fetch_add(*limit, Ordering::SeqCst);
        }
        Fault::None
    });
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let query = GroupQuery { topic: None, after: after.as_ref() };
        let page = world.bus.groups_page(query, 1000, |_| true).await.unwrap();
        let looked = looked.swap(0, Ordering::SeqCst);
        assert!(looked <= 10_000 + TOPICS + 3_000, "one page looked at {looked} topics");
        found.extend(page.groups.iter().map(|info| (info.group.to_string(), info.topics.len())));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let wide = (0..20).map(|n| (format!("g{n:02}"), 0)).chain([("h".to_owned(), 100)]);
    assert_eq!(found, wide.collect::<Vec<_>>(), "every group comes once, on one page or another");
}

async fn topics_are_listed_in_pages(kind: StoreKind) {
    let world = World::new(kind).await;
    for name in ["a", "a.b", "a-x", "b", "b.a", "c"] {
        world.fill(name, 0..1).await;
    }
    for limit in 1..7 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let seen = |name: &TopicName| name.as_str() != "b";
            let page = world.bus.topics_page(after.as_ref(), limit, seen).await.unwrap();
            assert!(page.topics.len() <= limit);
            found.extend(page.topics.iter().map(|info| info.name.to_string()));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, ["a", "a-x", "a.b", "b.a", "c"], "limit {limit}");
    }
    let member = world.subscribe(request("a.*", "g")).await;
    let listed = world.bus.groups(None).await.unwrap();
    assert_eq!(listed[0].topics.iter().map(|one| one.topic.as_str()).collect::<Vec<_>>(), ["a.b"]);
    drop(member);
}

async fn a_deleted_group_leaves_nothing(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("t.a", 0..4).await;
    let mut subscription = world.subscribe(attempts(request("t.*", "g"), 2)).await;
    let keeper = world.subscribe(request("t.a", "keeper")).await;
    let leases = take(&mut subscription, 4).await;
    leases[0].ack().await.unwrap();
    leases[1].nack(Some(60_000)).await.unwrap();
    leases[2].nack(Some(0)).await.unwrap();
    take_one(&mut subscription).await.nack(Some(0)).await.unwrap();
    assert_eq!((world.rows(Table::Attempts).await, world.rows(Table::DeadLetters).await), (1, 1));
    drop(subscription);
    let subject: Subject = "t.*".parse().unwrap();
    world.bus.delete_group(&subject, &group("g")).await.unwrap();
    assert_eq!((world.rows(Table::Attempts).await, world.rows(Table::DeadLetters).await), (0, 0));
    assert_eq!(world.store.cursors_of_group(&group("g")).await.unwrap(), []);
    assert_eq!(world.rows(Table::Groups).await, 1);
    assert_eq!(world.events("t.a.dlq").await.len(), 1, "what was given up stays in the log");
    assert_eq!(world.bus.delete_group(&subject, &group("g")).await.unwrap_err().code(), "unknown_group");
    // The owner may have ended before, because all members had left.
    match leases[3].ack().await {
        Ok(settled) => assert_eq!(settled.stale, 1),
        Err(error) => assert_eq!(error.code(), "unknown_group"),
    }
    drop(keeper);
    // A new group of the same name starts afresh.
    let mut subscription = world.subscribe(request("t.*", "g")).await;
    let leases = take(&mut subscription, 4).await;
    assert!(leases.iter().all(|lease| lease.attempt == 1));
}

async fn a_group_with_members_is_not_deleted(kind: StoreKind) {
    let world = World::new(kind).await;
    world.publish("a", 0).await;
    for subject in ["a", "x.*"] {
        let subscription = world.subscribe(request(subject, "g")).await;
        let subject: Subject = subject.parse().unwrap();
        let error = world.bus.delete_group(&subject, &group("g")).await.unwrap_err();
        assert_eq!(error.code(), "group_busy", "{subject}");
        subscription.unsubscribe();
        world.bus.delete_group(&subject, &group("g")).await.unwrap();
    }
    assert_eq!(world.rows(Table::Groups).await, 0);
}

async fn replay_needs_no_group(kind: StoreKind) {
    let world = World::new(kind).await;
    let mut ids = Vec::new();
    for n in 0..6 {
        world.clock.advance(10);
        ids.push(world.publish("t.a", n).await.id);
    }
    world.fill("t.b", 10..12).await;
    let read = async |subject: &str, from: StartPosition| {
        let mut replay = world.bus.replay(&subject.parse().unwrap(), from).await.unwrap();
        let mut found = Vec::new();
        while let Some(page) = replay.next_page(4).await.unwrap() {
            assert!(page.events.len() <= 4);
            found.extend(page.events.iter().map(number));
        }
        found
    };
    assert_eq!(read("t.a", StartPosition::Earliest).await, [0, 1, 2, 3, 4, 5]);
    assert_eq!(read("t.a", StartPosition::Offset(Offset(4))).await, [4, 5]);
    assert_eq!(read("t.a", StartPosition::Ts(WALL_MS + 30)).await, [2, 3, 4, 5]);
    assert_eq!(read("t.a", StartPosition::AfterId(ids[2])).await, [3, 4, 5]);
    assert_eq!(read("t.a", StartPosition::Latest).await, [] as [u64; 0]);
    assert_eq!(read("t.*", StartPosition::Earliest).await, [0, 1, 2, 3, 4, 5, 10, 11]);
    assert_eq!(read("none", StartPosition::Earliest).await, [] as [u64; 0]);
    let pattern = "t.*".parse().unwrap();
    assert_eq!(
        world.bus.replay(&pattern, StartPosition::Offset(Offset(1))).await.unwrap_err().code(),
        "bad_seek"
    );
    let unknown = promethean_model::EventId::from_bytes([3; 16]);
    let mut replay =
        world.bus.replay(&"t.a".parse().unwrap(), StartPosition::AfterId(unknown)).await.unwrap();
    assert_eq!(replay.next_page(1).await.unwrap_err().code(), "unknown_event");
    assert!(world.bus.groups(None).await.unwrap().is_empty());
}

async fn what_retention_took_is_counted(kind: StoreKind) {
    let world = World::new(kind).await;
    let settings = TopicSettings {
        retention: Retention { count: Some(10), ..Retention::default() },
        ..Default::default()
    };
    world.bus.set_topic(&topic("a"), settings).await.unwrap();
    drop(world.subscribe(request("a", "g")).await);
    // Segments are dropped whole, so there must be several.
    let payload = format!("\"{}\"", "x".repeat(4 << 10));
    for _ in 0..60 {
        world.bus.publish(promethean_bus::publish::Publish::new(topic("a"), payload.as_str())).await.unwrap();
    }
    world.maintain().await;
    let earliest = world.bus.topic(&topic("a")).await.unwrap().earliest;
    assert!(earliest > Offset(0), "{earliest}");
    let mut subscription = world.subscribe(request("a", "g")).await;
    let lease = take_one(&mut subscription).await;
    assert_eq!(lease.event.offset, earliest);
    let seen = world.seen("a", "g").await;
    assert_eq!((seen.expired, seen.floor), (earliest.get(), earliest));
    let line = format!("events_expired_total{{topic=\"a\",group=\"g\"}} {}", earliest.get());
    soon("the metric", async {
        while !world.bus.metrics().render().lines().any(|shown| shown == line) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut replay = world.bus.replay(&"a".parse().unwrap(), StartPosition::Offset(Offset(0))).await.unwrap();
    let page = replay.next_page(10).await.unwrap().unwrap();
    assert_eq!((page.expired, page.events[0].offset), (earliest.get(), earliest));
}

async fn a_topic_that_two_subjects_reach_stays_with_the_other(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a.b", 0..3).await;
    world.fill("a.c", 0..1).await;
    let mut one = world.subscribe(request("a.b", "g")).await;
    take(&mut one, 3).await[0].ack().await.unwrap();
    let many = world.subscribe(request("a.*", "g")).await;
    many.unsubscribe();
    one.unsubscribe();
    world.bus.delete_group(&"a.*".parse::<Subject>().unwrap(), &group("g")).await.unwrap();
    let cursors = world.store.cursors_of_group(&group("g")).await.unwrap();
    assert_eq!(cursors.iter().map(|cursor| cursor.topic.as_str()).collect::<Vec<_>>(), ["a.b"]);
    let mut one = world.subscribe(request("a.b", "g")).await;
    assert_eq!(numbers(&take(&mut one, 2).await), [1, 2]);
}
