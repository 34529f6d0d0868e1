//! A redrive that was answered is not forgotten, whatever seeks and deaths are on their way to the store.

use std::sync::Arc;

use promethean_bus::dead_letters::{LetterChoice, RedriveTo};
use promethean_bus::publish::Publish;
use promethean_bus::rows::StartPosition;
use promethean_bus::{Bus, BusOptions, Subscription};
use promethean_model::Offset;
use promethean_store::port::{Batch, RowOp, StateOp, Table};
use promethean_testkit::{Fault, FaultStore, StoreCall, When};

use super::harness::*;

on_both_stores!(
    a_redrive_outlives_a_death_that_is_not_durable,
    a_redrive_outlives_the_closing_of_its_old_letter,
    a_redrive_between_two_seeks_is_delivered,
    a_seek_below_another_keeps_what_is_acked_acked,
);

/// How many letters the batch closes.
fn closed_letters(batch: &Batch) -> usize {
    let closes = |op: &&StateOp| matches!(op, StateOp::Row(RowOp::Delete { table, .. }) if *table == Table::DeadLetters);
    batch.state.iter().filter(closes).count()
}

/// Makes a group with 600 dead letters and seeks to the first of their events, while the store refuses to close the
/// letters that do not go with the commit of the seek. Returns a member. No commit is made before time passes.
async fn unclosed(world: &World, store: &FaultStore) -> Subscription {
    let event = |n: u64| Publish::new(topic("a"), n.to_string());
    for published in world.bus.publish_each((0..600).map(event).collect()).await {
        published.unwrap();
    }
    let mut asked = attempts(bounded(request("a", "g"), 10_000), 1);
    asked.member.ack_timeout_ms = 1 << 40;
    let mut member = world.subscribe(asked).await;
    let leases = take(&mut member, 600).await;
    assert_eq!(member.nack(&leases, Some(0)).await.unwrap().stale, 0);
    store.rule(|call| match call {
        StoreCall::Commit(batch) if (1..400).contains(&closed_letters(batch)) => Fault::Fail,
        _ => Fault::None,
    });
    world.bus.seek(&topic("a"), &group("g"), StartPosition::Earliest, false).await.unwrap();
    assert_eq!(world.rows(Table::DeadLetters).await, 100);
    member
}

/// Opens another bus, as if the first one had died.
async fn die(mut world: World, store: &FaultStore) -> World {
    store.refuse_after(0);
    world.store = store.inner();
    world.bus = Bus::open(store.inner(), Arc::clone(&world.clock) as _, BusOptions::default()).await.unwrap();
    world
}

async fn redrive(world: &World, offset: u64) {
    let which = LetterChoice::Offsets(vec![Offset(offset)]);
    let report = world.bus.redrive(&topic("a"), &group("g"), which, RedriveTo::Group).await.unwrap();
    assert_eq!(report.redriven, 1);
}

/// The event died, the store does not know it yet, and an older letter of the event is redriven.
async fn a_redrive_outlives_a_death_that_is_not_durable(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    let mut member = unclosed(&world, &store).await;
    let leases = take(&mut member, 600).await;
    let dying = leases.iter().find(|lease| lease.event.offset == Offset(550)).unwrap();
    let others = async {
        world.until("a", "g", |seen| seen.in_flight == 599).await;
        redrive(&world, 550).await;
        store.heal();
        world.keep_passing(1_000).await;
    };
    let settled = soon("the death", async {
        tokio::select! { settled = dying.nack(Some(0)) => settled, () = others => unreachable!() }
    });
    assert_eq!(settled.await.unwrap().stale, 0);
    let world = die(world, &store).await;
    let letters =
        world.bus.dead_letters(&topic("a"), &group("g"), Some(Offset(549)), 1).await.unwrap().letters;
    assert!(letters[0].row.redriving, "{letters:?}");
    let mut member = world.subscribe(bounded(request("a", "g"), 10_000)).await;
    assert_eq!(world.settled("a", "g").await.in_flight, 600);
    let again = take(&mut member, 600).await;
    assert!(again.iter().all(|lease| lease.attempt == 1));
    assert_eq!(member.ack(&again).await.unwrap().stale, 0);
    assert_eq!(world.rows(Table::DeadLetters).await, 0);
}

/// The owner is about to close a letter that a seek left open, and waits for the redrive of the letter.
async fn a_redrive_outlives_the_closing_of_its_old_letter(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    let mut member = unclosed(&world, &store).await;
    let leases = take(&mut member, 600).await;
    let acked = leases.iter().find(|lease| lease.event.offset == Offset(550)).unwrap();
    let others = async {
        world.until("a", "g", |seen| seen.in_flight == 599).await;
        store.heal();
        let gate =
            store.hold(When::Before, |batch| !batch.state.iter().any(|op| matches!(op, StateOp::Cursor(_))));
        tokio::join!(redrive(&world, 550), async {
            gate.reached().await;
            // The commit of the ack would close the old letter. It goes out, and waits for the redrive.
            world.pass(2_000);
            for _ in 0..2 {
                world.seen("a", "g").await;
            }
            gate.release();
        });
        world.keep_passing(1_000).await;
    };
    let settled = soon("the ack", async {
        tokio::select! { settled = acked.ack() => settled, () = others => unreachable!() }
    });
    assert_eq!(settled.await.unwrap().stale, 0);
    assert_eq!(offsets(&take(&mut member, 1).await), [550], "in this process");
    let world = die(world, &store).await;
    let _member = world.subscribe(bounded(request("a", "g"), 10_000)).await;
    assert_eq!(world.settled("a", "g").await.in_flight, 600, "after a crash");
}

/// Makes a group that has finished ten events. The events of `dead` are dead letters. Returns a member.
async fn finished(world: &World, dead: &[u64]) -> Subscription {
    world.fill("a", 0..10).await;
    let mut member = world.subscribe(attempts(request("a", "g"), 1)).await;
    let (gone, done): (Vec<_>, Vec<_>) =
        take(&mut member, 10).await.into_iter().partition(|lease| dead.contains(&lease.event.offset.get()));
    assert_eq!(member.nack(&gone, Some(0)).await.unwrap().stale, 0);
    assert_eq!(member.ack(&done).await.unwrap().stale, 0);
    member
}

/// While a commit is on its way: `before`, a seek, `between` and a further seek. Returns when all are durable.
async fn two_seeks(
    world: &World,
    store: &FaultStore,
    member: &mut Subscription,
    before: impl AsyncFnOnce(&Subscription),
    between: impl AsyncFnOnce(),
) {
    world.publish("a", 10).await;
    let lease = take_one(member).await;
    let gate =
        store.hold(When::Before, |batch| batch.state.iter().any(|op| matches!(op, StateOp::Cursor(_))));
    let (of, by) = (topic("a"), group("g"));
    let seek = async |offset: u64| {
        world.bus.seek(&of, &by, StartPosition::Offset(Offset(offset)), false).await.unwrap();
    };
    let seeks = async {
        gate.reached().await;
        before(member).await;
        tokio::join!(seek(2), async {
            world.until("a", "g", |seen| seen.floor == Offset(2)).await;
            between().await;
            tokio::join!(seek(8), async {
                world.until("a", "g", |seen| seen.floor == Offset(8)).await;
                gate.release();
            });
        });
    };
    let (acked, ()) = tokio::join!(lease.ack(), seeks);
    assert_eq!(acked.unwrap().stale, 0);
}

async fn taken(member: &mut Subscription, count: usize) -> Vec<u64> {
    let mut taken = offsets(&take(member, count).await);
    taken.sort_unstable();
    taken
}

/// The first seek delivers the event anyway, the second one goes beyond it before the first is durable.
async fn a_redrive_between_two_seeks_is_delivered(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    let mut member = finished(&world, &[1, 5, 6, 9]).await;
    two_seeks(&world, &store, &mut member, async |_| {}, async || redrive(&world, 5).await).await;
    assert_eq!(taken(&mut member, 4).await, [5, 8, 9, 10]);
    let world = die(world, &store).await;
    let mut member = world.subscribe(request("a", "g")).await;
    assert_eq!(world.settled("a", "g").await.in_flight, 4);
    assert_eq!(taken(&mut member, 4).await, [5, 8, 9, 10], "after a crash");
    let open = world.bus.dead_letters(&topic("a"), &group("g"), None, 10).await.unwrap().letters;
    assert_eq!(open.iter().map(|letter| letter.offset.get()).collect::<Vec<_>>(), [1, 5, 6]);
}

/// A redriven event is acked, and both seeks come before its ack is durable.
async fn a_seek_below_another_keeps_what_is_acked_acked(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    let mut member = finished(&world, &[5]).await;
    redrive(&world, 5).await;
    let redriven = take(&mut member, 1).await;
    let ack = async |member: &Subscription| {
        member.ack_soon(&redriven).await.unwrap();
        world.until("a", "g", |seen| seen.in_flight == 0).await;
    };
    two_seeks(&world, &store, &mut member, ack, async || {}).await;
    assert_eq!(taken(&mut member, 3).await, [8, 9, 10]);
    assert_eq!(world.rows(Table::DeadLetters).await, 0);
    let world = die(world, &store).await;
    let mut member = world.subscribe(request("a", "g")).await;
    assert_eq!(world.settled("a", "g").await.in_flight, 3);
    assert_eq!(taken(&mut member, 3).await, [8, 9, 10], "after a crash");
}
