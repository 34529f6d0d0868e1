//! A seek of several commits loses nothing when one of them fails.

use std::collections::BTreeSet;
use std::sync::Arc;

use promethean_bus::dead_letters::LetterInfo;
use promethean_bus::rows::StartPosition;
use promethean_bus::{Bus, BusOptions};
use promethean_store::port::Table;
use promethean_testkit::When;

use super::harness::*;
use super::topics_change_while_in_use::troubled;

on_both_stores!(much_is_sought_in_bounded_steps, what_dies_as_a_seek_comes_is_delivered_and_no_letter);

async fn much_is_sought_in_bounded_steps(kind: StoreKind) {
    let (world, store) = World::gated(kind).await;
    troubled(&world, 1200).await;
    store.largest();
    let report = world.bus.seek(&topic("a"), &group("g"), StartPosition::Earliest, false).await.unwrap();
    assert_eq!((report.replayed, report.applied), (1200, true));
    let largest = store.largest();
    assert!((500..=1100).contains(&largest), "{largest} changes in one commit");
    assert_eq!((world.rows(Table::DeadLetters).await, world.rows(Table::Attempts).await), (0, 0));
    assert_eq!(counted(&world), 0);
    let mut member = world.subscribe(bounded(request("a", "g"), 10_000)).await;
    let all = take(&mut member, 1800).await;
    assert!(all.iter().all(|lease| lease.attempt == 1));
}

/// The number of open letters that the metrics show.
fn counted(world: &World) -> i64 {
    world.bus.metrics().group(&topic("a"), &group("g")).dead_letters.get()
}

/// The commit of the letter is on its way when the seek comes; later it becomes durable or is refused, or it is durable
/// and the owner does not know it yet.
async fn what_dies_as_a_seek_comes_is_delivered_and_no_letter(kind: StoreKind) {
    for (when, refused) in [(When::Before, false), (When::Before, true), (When::After, false)] {
        let (world, store) = World::gated(kind).await;
        world.fill("a", 0..2).await;
        let mut member = world.subscribe(attempts(request("a", "g"), 1)).await;
        let leases = take(&mut member, 2).await;
        let gate = store.hold(when, |batch| !batch.events.is_empty());
        let (of, by) = (topic("a"), group("g"));
        let nack = member.nack(&leases[..1], Some(0));
        let seek = world.bus.seek(&of, &by, StartPosition::Earliest, false);
        let release = async {
            gate.reached().await;
            // The seek takes the other lease back.
            world.until("a", "g", |seen| seen.in_flight == 0).await;
            store.refuse_after(if refused { 0 } else { usize::MAX });
            gate.release();
            if refused {
                store.refused().await;
                store.refuse_after(usize::MAX);
            }
            world.keep_passing(1_000).await;
        };
        let over = soon("a seek", async {
            tokio::select! { over = async { tokio::join!(nack, seek) } => over, () = release => unreachable!() }
        });
        let (nacked, sought) = over.await;
        assert_eq!((nacked.unwrap().stale, sought.unwrap().applied), (0, true));
        let again = take(&mut member, 2).await;
        assert_eq!(offsets(&again), [0, 1]);
        assert!(again.iter().all(|lease| lease.attempt == 1));
        assert_eq!((world.rows(Table::DeadLetters).await, counted(&world)), (0, 0));
    }
}

async fn offsets_of_letters(world: &World) -> Vec<u64> {
    letters(world).await.iter().map(|letter| letter.offset.get()).collect()
}

async fn letters(world: &World) -> Vec<LetterInfo> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = world.bus.dead_letters(&topic("a"), &group("g"), after, 1000).await.unwrap();
        found.extend(page.letters);
        match page.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

/// Wherever the process dies, each event is delivered or a dead letter: never neither, never both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seek_that_dies_between_two_steps_loses_nothing() {
    for commits in 0..40 {
        let (mut world, store) = World::gated(StoreKind::Memory).await;
        troubled(&world, 1200).await;
        store.refuse_after(commits);
        let (of, by) = (topic("a"), group("g"));
        let seek = world.bus.seek(&of, &by, StartPosition::Earliest, false);
        let ended = soon("a seek", async {
            tokio::select! {
                () = store.refused() => false,
                // The seek may be over although its last steps were refused.
                ended = seek => ended.is_ok() && !store.has_refused(),
            }
        });
        if ended.await {
            assert!(commits > 3, "in {commits} commits");
            return;
        }
        // The process has died: its later writes are refused.
        world.store = store.inner();
        world.bus =
            Bus::open(store.inner(), Arc::clone(&world.clock) as _, BusOptions::default()).await.unwrap();
        world.clock.advance(100_000);
        let floor = world.store.cursor(&by, &of).await.unwrap().unwrap().floor;
        assert!(matches!(floor.get(), 0 | 1200), "{floor}: half of a seek");
        let open = floor.get();
        let mut member = world.subscribe(bounded(request("a", "g"), 10_000)).await;
        let again = take(&mut member, 1800 - open as usize).await;
        world.settled("a", "g").await;
        assert!(is_idle(&mut member), "{commits}");
        let given: BTreeSet<u64> = offsets(&again).into_iter().collect();
        assert_eq!(given, (open..1800).collect(), "{commits}");
        assert_eq!(member.ack(&again).await.unwrap().stale, 0);
        assert_eq!(offsets_of_letters(&world).await, (0..open).collect::<Vec<_>>(), "{commits}");
        assert_eq!(counted(&world), open as i64, "{commits}");
        world.bus.seek(&topic("a"), &group("g"), StartPosition::Earliest, false).await.unwrap();
        assert_eq!(take(&mut member, 1800).await.len(), 1800, "{commits}");
        assert_eq!((world.rows(Table::DeadLetters).await, world.rows(Table::Attempts).await), (0, 0));
    }
    panic!("it takes too many commits");
}

/// The seek is over once its new cursor is durable; letters that are still open are closed later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_a_seek_cannot_close_are_closed_later() {
    let mut late = 0;
    for commits in 0..40 {
        let (world, store) = World::gated(StoreKind::Memory).await;
        troubled(&world, 1200).await;
        store.refuse_after(commits);
        let (of, by) = (topic("a"), group("g"));
        let mut seek = std::pin::pin!(world.bus.seek(&of, &by, StartPosition::Earliest, false));
        let mut early = None;
        soon("a seek", async {
            tokio::select! {
                () = store.refused() => {}
                ended = &mut seek => early = Some(ended),
            }
        })
        .await;
        if matches!(early, Some(Ok(_))) && !store.has_refused() {
            // Usually two; the steps before the seek may take a commit more or less each time.
            assert!(late >= 1, "in {commits} commits");
            return;
        }
        store.refuse_after(usize::MAX);
        if world.rows(Table::Attempts).await > 0 {
            // The last attempts go with the seek itself, which is not durable yet.
            continue;
        }
        // No time passes, so no commit is tried again.
        let ended = match early {
            Some(ended) => ended,
            None => soon("the seek", seek).await,
        };
        assert!(ended.unwrap().applied);
        late += 1;
        let left = world.rows(Table::DeadLetters).await;
        assert!(left > 0 && counted(&world) == left as i64, "{left}");
        let mut asked = bounded(request("a", "g"), 10_000);
        // Time passes below; no lease may run out.
        asked.member.ack_timeout_ms = 1 << 40;
        let mut member = world.subscribe(asked).await;
        let again = take(&mut member, 1800).await;
        assert!(again.iter().all(|lease| lease.attempt == 1));
        let closing = store.hold(When::Before, |_| true);
        tokio::select! {
            () = closing.reached() => {}
            () = world.keep_passing(100) => unreachable!(),
        }
        closing.release();
        until("closed", async || world.rows(Table::DeadLetters).await == 0).await;
        // The count follows the commit.
        until("counted", async || counted(&world) == 0).await;
        assert_eq!(world.bus.metrics().group(&of, &by).dead_lettered.get(), 1200);
    }
    panic!("it takes too many commits");
}

/// Events are acked while their letters are still to be closed, in several commits; the process dies between two of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acked_before_its_letter_is_closed_is_no_letter() {
    let mut tried = 0;
    for (first, second) in (0..8).flat_map(|first| (0..6).map(move |second| (first, second))) {
        let (mut world, store) = World::gated(StoreKind::Memory).await;
        troubled(&world, 1200).await;
        store.refuse_after(first);
        let (of, by) = (topic("a"), group("g"));
        soon("a seek", async {
            tokio::select! {
                () = store.refused() => {}
                _ = world.bus.seek(&of, &by, StartPosition::Earliest, false) => {}
            }
        })
        .await;
        store.refuse_after(usize::MAX);
        let rows = (world.rows(Table::Attempts).await, world.rows(Table::DeadLetters).await);
        if rows.0 > 0 || rows.1 <= 500 {
            continue;
        }
        tried += 1;
        let mut member = world.subscribe(bounded(request("a", "g"), 10_000)).await;
        let again = take(&mut member, 1800).await;
        store.refuse_after(second);
        soon("acks", async {
            let pass = async {
                // The owner knows the acks, and commits them with the letters.
                world.until("a", "g", |seen| seen.in_flight == 0).await;
                world.keep_passing(1_000).await;
            };
            tokio::select! {
                acked = member.ack(&again) => assert_eq!(acked.unwrap().stale, 0),
                () = store.refused() => {}
                () = pass => unreachable!(),
            }
        })
        .await;
        store.refuse_after(0);
        world.store = store.inner();
        world.bus =
            Bus::open(store.inner(), Arc::clone(&world.clock) as _, BusOptions::default()).await.unwrap();
        let mut member = world.subscribe(bounded(request("a", "g"), 10_000)).await;
        let left = world.settled("a", "g").await.in_flight;
        let again = take(&mut member, left).await;
        assert_eq!(member.ack(&again).await.unwrap().stale, 0);
        assert_eq!(world.until("a", "g", |seen| seen.lag == 0).await.in_flight, 0);
        assert_eq!((offsets_of_letters(&world).await, counted(&world)), (Vec::new(), 0), "{first} {second}");
    }
    assert!(tried > 0);
}
