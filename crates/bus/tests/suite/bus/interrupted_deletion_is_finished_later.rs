//! A deletion of several commits is finished later when one of them fails.

use std::collections::BTreeSet;
use std::sync::Arc;

use promethean_bus::groups::GivenUp;
use promethean_bus::rows::StartPosition;
use promethean_bus::{Bus, BusOptions};
use promethean_model::{Offset, TopicSettings};
use promethean_store::port::{Batch, Cursor, CursorOp, StateOp, Table, TopicOp};
use promethean_testkit::When;

use super::harness::*;
use super::topics_change_while_in_use::{assert_nothing_left, troubled};

on_both_stores!(
    a_topic_goes_without_the_cursors_of_its_groups,
    letters_of_a_topic_that_was_born_again_are_others,
    a_deletion_that_cannot_be_finished_is_left_for_later,
    a_new_group_finds_nothing_of_a_half_deleted_one,
    a_follower_does_not_go_on_with_a_half_deleted_group,
    a_late_letter_is_not_inherited_by_the_next_topic,
    a_topic_is_deleted_though_its_settings_cannot_be_stored,
    what_is_configured_for_a_topic_is_so_for_the_next_of_its_name,
);

fn deletes_topic(batch: &Batch) -> bool {
    batch.state.iter().any(|op| matches!(op, StateOp::Topic(TopicOp::Delete(_))))
}

async fn a_topic_goes_without_the_cursors_of_its_groups(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    world.fill("t.a", 0..3).await;
    for n in 0..5 {
        drop(world.subscribe(request("t.a", &format!("g{n}"))).await);
    }
    // These groups stay, and must not begin the topic anew if its deletion fails.
    drop(world.subscribe(request("t.*", "pattern")).await);
    drop((world.subscribe(request("t.a", "both")).await, world.subscribe(request("t.*", "both")).await));
    world.until_tasks(0).await;
    let gate = store.hold(When::Before, deletes_topic);
    let bus = world.bus.clone();
    let deleting = tokio::task::JoinSet::from_iter([async move { bus.delete_topic(&topic("t.a")).await }]);
    gate.reached().await;
    let left: Vec<_> = world.store.cursors_of_topic(&topic("t.a")).await.unwrap();
    let left: BTreeSet<_> = left.iter().map(|cursor| cursor.group.to_string()).collect();
    assert_eq!(left, BTreeSet::from(["both".to_owned(), "pattern".to_owned()]));
    gate.release();
    deleting.join_all().await.pop().unwrap().unwrap();
    assert_eq!(world.store.cursors_of_topic(&topic("t.a")).await.unwrap(), []);
}

/// All in one millisecond, so that only the events differ.
async fn letters_of_a_topic_that_was_born_again_are_others(kind: StoreKind) {
    let world = World::new(kind).await;
    for _ in 0..2 {
        troubled(&world, 2).await;
        world.bus.delete_topic(&topic("a")).await.unwrap();
    }
    let mut ids: Vec<_> = world.events("a.dlq").await.iter().map(|letter| letter.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

async fn a_deletion_that_cannot_be_finished_is_left_for_later(kind: StoreKind) {
    let (mut world, store) = World::gated(kind).await;
    troubled(&world, 20).await;
    store.refuse_after(1);
    world.bus.delete_group(&"a".parse().unwrap(), &group("g")).await.unwrap_err();
    soon("close", world.bus.close()).await;
    let opened =
        Bus::open(Arc::clone(&world.store), Arc::clone(&world.clock) as _, BusOptions::default()).await;
    world.bus = opened.unwrap();
    let left = world.bus.unfinished_deletions();
    assert_eq!(
        (left.len(), left[0].group.clone(), left[0].subject.to_string()),
        (1, group("g"), "a".to_owned())
    );
    assert!(left[0].reason.contains("as the test wants it"), "{}", left[0].reason);
    assert_eq!(world.bus.groups(None).await.unwrap().len(), 0);
    // Everything else works.
    assert_eq!(world.bus.topic(&topic("a")).await.unwrap().end, Offset(30));
    let tried_again = store.hold(When::Before, |_| true);
    store.refuse_after(usize::MAX);
    tried_again.reached().await;
    tried_again.release();
    until("deleted", async || world.bus.unfinished_deletions().is_empty()).await;
    assert_nothing_left(&world).await;
    soon("close", world.bus.close()).await;
    assert_eq!(world.bus.tasks(), 0);
}

async fn a_new_group_finds_nothing_of_a_half_deleted_one(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    world.fill("t.a", 0..3).await;
    let mut member = world.subscribe(request("t.*", "g")).await;
    let leases = take(&mut member, 3).await;
    member.ack(&leases).await.unwrap();
    drop(member);
    world.until_tasks(0).await;
    store.refuse_after(1);
    world.bus.delete_group(&"t.*".parse().unwrap(), &group("g")).await.unwrap_err();
    let refused = world.bus.subscribe(request("t.a", "g")).await.unwrap_err();
    assert!(refused.to_string().contains("as the test wants it"), "{refused}");
    store.refuse_after(usize::MAX);
    let mut member = world.subscribe(request("t.a", "g")).await;
    assert_eq!(take(&mut member, 3).await.len(), 3);
    assert_eq!(world.rows(Table::Groups).await, 1);
}

async fn a_follower_does_not_go_on_with_a_half_deleted_group(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    world.fill("a", 0..1).await;
    let (by, on) = (group("f"), topic("a"));
    let follow = || world.bus.follow(&by, &on, StartPosition::Earliest);
    let follower = follow().await.unwrap();
    let cursor = Cursor { floor: Offset(1), epoch: 0, data: Vec::new() };
    let put = CursorOp::Put { group: by.clone(), topic: on.clone(), cursor, expected_epoch: 0 };
    world.store.commit(Batch::new().with(put)).await.unwrap();
    let given_up = GivenUp { reason: "bad".to_owned(), attempts: 1, first_ms: 0 };
    follower.bury(&world.events("a").await[0], &given_up).await.unwrap();
    drop(follower);
    store.refuse_after(1);
    world.bus.delete_group(&"a".parse().unwrap(), &by).await.unwrap_err();
    follow().await.unwrap_err();
    store.refuse_after(usize::MAX);
    let _follower = follow().await.unwrap();
    assert_eq!(world.rows(Table::DeadLetters).await, 0);
    assert_eq!(world.bus.groups(None).await.unwrap().len(), 1);
}

/// A follower that is slow to give an event up does so after the event's topic was deleted.
async fn a_late_letter_is_not_inherited_by_the_next_topic(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..3).await;
    let follower = world.bus.follow(&group("f"), &topic("a"), StartPosition::Earliest).await.unwrap();
    let old = world.events("a").await;
    let given_up = GivenUp { reason: "bad".to_owned(), attempts: 1, first_ms: 0 };
    world.bus.delete_topic(&topic("a")).await.unwrap();
    follower.bury(&old[0], &given_up).await.unwrap();
    world.fill("a", 3..5).await;
    for event in &old {
        follower.bury(event, &given_up).await.unwrap();
    }
    assert_eq!(world.rows(Table::DeadLetters).await, 0);
    follower.bury(&world.events("a").await[1], &given_up).await.unwrap();
    assert_eq!(world.rows(Table::DeadLetters).await, 1);
}

async fn a_topic_is_deleted_though_its_settings_cannot_be_stored(kind: StoreKind) {
    let (mut world, store) = World::gated(kind).await;
    let settings = TopicSettings { max_attempts: 3, ..TopicSettings::default() };
    let options = BusOptions { topics: [(topic("a"), settings.clone())].into(), ..BusOptions::default() };
    soon("close", world.bus.close()).await;
    world.bus = Bus::open(Arc::clone(&world.store), Arc::clone(&world.clock) as _, options).await.unwrap();
    world.publish("a", 1).await;
    store.refuse_after(1);
    world.bus.delete_topic(&topic("a")).await.unwrap();
    store.refused().await;
    assert_eq!(world.bus.topic_settings(&topic("a")), settings);
    assert_eq!(world.store.topic_info(&topic("a")).await.unwrap(), None);
}

async fn what_is_configured_for_a_topic_is_so_for_the_next_of_its_name(kind: StoreKind) {
    let settings = TopicSettings { max_attempts: 3, ..TopicSettings::default() };
    let topics = [(topic("a"), settings.clone())].into();
    let world = World::with(kind, BusOptions { topics, ..BusOptions::default() }).await;
    world.bus.set_topic(&topic("a"), settings.clone()).await.unwrap();
    world.bus.set_topic(&topic("b"), settings.clone()).await.unwrap();
    for name in ["a", "b"] {
        world.publish(name, 1).await;
        world.bus.delete_topic(&topic(name)).await.unwrap();
        world.publish(name, 1).await;
    }
    assert_eq!(world.bus.topic_settings(&topic("a")), settings);
    assert_eq!(world.bus.topic_settings(&topic("b")), TopicSettings::default());
    let world = world.restart().await;
    assert_eq!(world.bus.topic_settings(&topic("a")), settings);
}
