//! Topics and groups are changed and deleted while they are in use, while callers go away, and while commits fail.

use std::sync::Arc;

use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_delivery::Subject;
use promethean_model::{Offset, TopicSettings};
use promethean_store::port::{Batch, CursorOp, RowOp, SettingsOp, StateOp, Table, TopicOp};
use promethean_testkit::{FaultStore, When};
use tokio::task::JoinSet;

use super::harness::*;

on_both_stores!(
    a_topic_that_is_being_deleted_refuses_new_groups,
    a_deletion_waits_for_a_group_on_its_way_in,
    a_group_without_a_cursor_begins_the_topic_anew,
    a_pause_is_done_to_the_end,
    settings_are_set_to_the_end,
    settings_follow_the_store_in_its_order,
    a_topic_is_deleted_to_the_end,
    much_is_deleted_in_bounded_steps,
    a_deletion_of_a_group_that_fails_is_finished_later,
    a_deletion_of_a_topic_that_fails_can_be_repeated,
);

fn deletes_topic(batch: &Batch) -> bool {
    batch.state.iter().any(|op| matches!(op, StateOp::Topic(TopicOp::Delete(_))))
}

fn puts_group(batch: &Batch) -> bool {
    let puts = |op: &StateOp| matches!(op, StateOp::Row(RowOp::Put { table: Table::Groups, .. }));
    batch.state.iter().any(puts)
}

fn sets(batch: &Batch) -> bool {
    batch.state.iter().any(|op| matches!(op, StateOp::Settings(SettingsOp::Put(..))))
}

async fn a_topic_that_is_being_deleted_refuses_new_groups(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    world.fill("t.a", 0..3).await;
    drop(world.subscribe(request("t.a", "g")).await);
    let held = store.hold(When::Before, deletes_topic);
    let bus = world.bus.clone();
    let mut deleting = JoinSet::from_iter([async move { bus.delete_topic(&topic("t.a")).await }]);
    held.reached().await;
    for name in ["g", "h"] {
        let refused =
            world.bus.subscribe(request_from("t.a", name, StartPosition::Latest)).await.unwrap_err();
        assert_eq!((refused.code(), refused.is_retryable()), ("topic_deleted", true));
    }
    // A pattern still has its other topics.
    let mut pattern = world.subscribe(request("t.*", "p")).await;
    world.publish("t.b", 7).await;
    assert_eq!(take_one(&mut pattern).await.event.topic, topic("t.b"));
    held.release();
    soon("delete", deleting.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(world.store.cursors_of_topic(&topic("t.a")).await.unwrap(), []);
    assert_eq!(world.bus.groups(None).await.unwrap().len(), 1, "the pattern's");
    world.fill("t.a", 10..12).await;
    assert_eq!(numbers(&take(&mut pattern, 2).await), [10, 11]);
    for name in ["g", "h"] {
        let mut subscription = world.subscribe(request_from("t.a", name, StartPosition::Latest)).await;
        assert_eq!(world.seen("t.a", name).await.floor, Offset(2), "nothing is inherited");
        world.publish("t.a", 12).await;
        assert_eq!(number(&take_one(&mut subscription).await.event), 12);
        subscription.unsubscribe();
        world.bus.delete_topic(&topic("t.a")).await.unwrap();
        world.fill("t.a", 20..22).await;
    }
}

async fn a_deletion_waits_for_a_group_on_its_way_in(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    world.fill("a", 0..3).await;
    let held = store.hold(When::Before, puts_group);
    let bus = world.bus.clone();
    let mut entering = JoinSet::from_iter([async move { bus.subscribe(request("a", "g")).await }]);
    held.reached().await;
    let bus = world.bus.clone();
    let mut deleting = JoinSet::from_iter([async move { bus.delete_topic(&topic("a")).await }]);
    // The deletion has closed the topic and now waits for the group that is being created.
    until("the topic is closed", async || {
        let refused = world.bus.subscribe(request("a", "h")).await.err();
        refused.is_some_and(|error| error.code() == "topic_deleted")
    })
    .await;
    let early = deleting.try_join_next();
    assert!(early.is_none(), "deleted while somebody enters: {early:?}");
    held.release();
    let entered = soon("subscribe", entering.join_next()).await.unwrap().unwrap();
    soon("delete", deleting.join_next()).await.unwrap().unwrap().unwrap();
    match entered {
        Ok(mut subscription) => assert_eq!(end_of(&mut subscription).await.code(), "topic_deleted"),
        Err(error) => assert_eq!(error.code(), "topic_deleted"),
    }
    assert_eq!(world.rows(Table::Groups).await, 0);
    assert_eq!(world.store.cursors_of_topic(&topic("a")).await.unwrap(), []);
}

async fn a_group_without_a_cursor_begins_the_topic_anew(kind: StoreKind) {
    let world = World::new(kind).await;
    world.fill("a", 0..3).await;
    drop(world.subscribe(request_from("a", "g", StartPosition::Latest)).await);
    world.until_tasks(0).await;
    let delete = CursorOp::Delete { group: group("g"), topic: topic("a"), expected_epoch: None };
    world.store.commit(Batch::new().with(delete)).await.unwrap();
    assert_eq!(world.seen("a", "g").await.lag, 3);
    let mut subscription = world.subscribe(request_from("a", "g", StartPosition::Latest)).await;
    let leases = take(&mut subscription, 3).await;
    assert_eq!(subscription.ack(&leases).await.unwrap().stale, 0);
    assert_eq!(world.seen("a", "g").await.floor, Offset(3));
}

/// Begins a change and drops its future when the commit is done and not yet answered.
async fn go_away<T: std::fmt::Debug>(
    store: &FaultStore,
    which: fn(&Batch) -> bool,
    change: impl Future<Output = T>,
) {
    let held = store.hold(When::After, which);
    tokio::select! {
        done = change => panic!("not held: {done:?}"),
        () = held.reached() => {}
    }
    held.release();
}

async fn a_pause_is_done_to_the_end(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    let _member = world.subscribe(request("a", "g")).await;
    let subject: Subject = "a".parse().unwrap();
    go_away(&store, puts_group, world.bus.pause_group(&subject, &group("g"))).await;
    // Only the owner is left: the task of the pause has ended.
    world.until_tasks(1).await;
    world.publish("a", 0).await;
    let is = |word: &'static str| {
        move |seen: &promethean_bus::groups::GroupProgress| {
            seen.lag == 1 && seen.reason.is_some_and(|reason| reason.as_str() == word)
        }
    };
    assert_eq!(world.until("a", "g", is("paused")).await.in_flight, 0);
    go_away(&store, puts_group, world.bus.resume_group(&subject, &group("g"))).await;
    world.until("a", "g", is("leased")).await;
}

fn partitions(count: u32) -> TopicSettings {
    TopicSettings { partitions: Some(count), ..TopicSettings::default() }
}

async fn settings_are_set_to_the_end(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    go_away(&store, sets, world.bus.set_topic(&topic("a"), partitions(4))).await;
    until("the settings", async || world.bus.topic_settings(&topic("a")) == partitions(4)).await;
}

async fn settings_follow_the_store_in_its_order(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    let held = store.hold(When::After, sets);
    let mut setting = JoinSet::new();
    for count in [4, 5] {
        let bus = world.bus.clone();
        setting.spawn(async move { bus.set_topic(&topic("a"), partitions(count)).await });
        if count == 4 {
            held.reached().await;
        }
    }
    world.until_tasks(2).await;
    // Later events are published meanwhile: the second change has had its turn, whether it waits for the first or not.
    world.fill("b", 0..100).await;
    held.release();
    for set in setting.join_all().await {
        set.unwrap();
    }
    assert_eq!(world.store.settings(&topic("a")).await.unwrap(), Some(partitions(5)));
    assert_eq!(world.bus.topic_settings(&topic("a")), partitions(5));
}

async fn a_topic_is_deleted_to_the_end(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    world.publish("a", 0).await;
    world.bus.set_topic(&topic("a"), partitions(4)).await.unwrap();
    go_away(&store, deletes_topic, world.bus.delete_topic(&topic("a"))).await;
    until("the settings", async || world.bus.topic_settings(&topic("a")) == TopicSettings::default()).await;
}

/// Makes a group with this many dead letters and half as many failed attempts.
pub(super) async fn troubled(world: &World, count: u64) {
    let event = |n: u64| Publish::new(topic("a"), n.to_string());
    for chunk in (0..count * 3 / 2).collect::<Vec<_>>().chunks(500) {
        for published in world.bus.publish_each(chunk.iter().copied().map(event).collect()).await {
            published.unwrap();
        }
    }
    let mut member = world.subscribe(bounded(attempts(request("a", "g"), 2), 10_000)).await;
    let leases = take(&mut member, count as usize * 3 / 2).await;
    member.nack(&leases[..count as usize], Some(0)).await.unwrap();
    let again = take(&mut member, count as usize).await;
    member.nack(&again, Some(0)).await.unwrap();
    member.nack(&leases[count as usize..], Some(60_000)).await.unwrap();
    member.unsubscribe();
    world.until_tasks(0).await;
    let rows = (world.rows(Table::DeadLetters).await, world.rows(Table::Attempts).await);
    assert_eq!(rows, (count as usize, count as usize / 2));
}

pub(super) async fn assert_nothing_left(world: &World) {
    for table in [Table::Groups, Table::DeadLetters, Table::Attempts] {
        assert_eq!(world.rows(table).await, 0, "{table:?}");
    }
    assert_eq!(world.store.cursors_of_group(&group("g")).await.unwrap(), []);
    assert!(!world.bus.metrics().render().contains("group=\"g\""));
}

async fn much_is_deleted_in_bounded_steps(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    troubled(&world, 1200).await;
    store.largest();
    world.bus.delete_group(&"a".parse().unwrap(), &group("g")).await.unwrap();
    let largest = store.largest();
    assert!((1..=600).contains(&largest), "{largest} changes in one commit");
    assert_nothing_left(&world).await;
    world.bus.delete_topic(&topic("a")).await.unwrap();
    troubled(&world, 1200).await;
    store.largest();
    world.bus.delete_topic(&topic("a")).await.unwrap();
    let largest = store.largest();
    assert!((1..=600).contains(&largest), "{largest} changes in one commit");
    assert_nothing_left(&world).await;
}

async fn a_deletion_of_a_group_that_fails_is_finished_later(kind: StoreKind) {
    for commits in 0.. {
        let (world, store) = World::gated(kind).await;
        troubled(&world, 20).await;
        store.refuse_after(commits);
        let result = world.bus.delete_group(&"a".parse().unwrap(), &group("g")).await;
        store.refuse_after(usize::MAX);
        if result.is_ok() {
            assert!(commits > 3, "in {commits} commits");
            return;
        }
        let listed = world.bus.groups(None).await.unwrap().len();
        assert_eq!(listed, usize::from(commits == 0), "whole or gone");
        match commits % 3 {
            // The next subscriber makes a new group.
            0 => {
                let from = if commits == 0 { StartPosition::Earliest } else { StartPosition::Latest };
                let mut member = world.subscribe(request_from("a", "g", from)).await;
                let floor = if commits == 0 { Offset(20) } else { Offset(30) };
                assert_eq!(world.seen("a", "g").await.floor, floor);
                assert!(commits == 0 || is_idle(&mut member));
                assert_eq!(world.rows(Table::DeadLetters).await, if commits == 0 { 20 } else { 0 });
            }
            1 => {
                world.bus.delete_group(&"a".parse().unwrap(), &group("g")).await.unwrap();
                assert_nothing_left(&world).await;
            }
            _ => assert_nothing_left(&world.restart().await).await,
        }
    }
}

async fn a_deletion_of_a_topic_that_fails_can_be_repeated(kind: StoreKind) {
    for commits in 0.. {
        let (world, store) = World::gated(kind).await;
        troubled(&world, 20).await;
        let store = Arc::clone(&store);
        store.refuse_after(commits);
        let result = world.bus.delete_topic(&topic("a")).await;
        store.refuse_after(usize::MAX);
        if result.is_ok() {
            assert!(commits > 2, "in {commits} commits");
            return;
        }
        assert_eq!(world.bus.topic(&topic("a")).await.unwrap().end, Offset(30), "there still");
        world.bus.delete_topic(&topic("a")).await.unwrap();
        assert_nothing_left(&world).await;
        let mut member = world.subscribe(request_from("a", "g", StartPosition::Latest)).await;
        world.publish("a", 1).await;
        assert_eq!(take_one(&mut member).await.attempt, 1);
    }
}
