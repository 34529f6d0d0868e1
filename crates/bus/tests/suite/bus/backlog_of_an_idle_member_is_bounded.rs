//! The events that wait for an idle member are bounded.

use promethean_bus::publish::Publish;
use promethean_bus::subscription::Subscribe;
use promethean_bus::{Backlog, Lease, Subscription, SubscriptionItem};

use super::harness::*;

on_both_stores!(more_comes_once_half_has_been_taken, members_that_share_it_are_told_together);

/// Much more than is read from the log at once.
const MAX: usize = 4 << 20;
const EVENTS: usize = 100;

async fn filled(kind: StoreKind) -> (World, Backlog) {
    let world = World::new(kind).await;
    let payload = format!("\"{}\"", "x".repeat(100 << 10));
    for _ in 0..EVENTS {
        world.bus.publish(Publish::new(topic("t"), payload.as_str())).await.unwrap();
    }
    (world, Backlog::new(MAX))
}

fn kept_by(mut request: Subscribe, backlog: &Backlog) -> Subscribe {
    request.member.backlog = Some(backlog.clone());
    bounded(request, 1_000)
}

/// Takes the next event without telling the group: a group that is told looks whether there is room.
async fn taken(subscription: &mut Subscription) -> Lease {
    match soon("take", subscription.take(1)).await.unwrap() {
        SubscriptionItem::Leases(mut leases) => leases.remove(0),
        other => panic!("{other:?}"),
    }
}

async fn more_comes_once_half_has_been_taken(kind: StoreKind) {
    let (world, backlog) = filled(kind).await;
    let mut subscription = world.subscribe(kept_by(request("t", "g"), &backlog)).await;
    let first = world.settled("t", "g").await.in_flight;
    let (mut left, mut bytes) = (first, 0);
    while left == first || left * bytes > MAX / 2 {
        // Several looks, so that the group has worked on all earlier messages.
        for _ in 0..5 {
            assert_eq!(world.seen("t", "g").await.in_flight, first, "told while {left} wait");
        }
        bytes = taken(&mut subscription).await.event.bytes();
        assert!(first < EVENTS && first * bytes >= MAX, "{first} events wait");
        left -= 1;
    }
    assert!(left + 1 < first, "there was much to take");
    world.until("t", "g", |seen| seen.in_flight > first).await;
    take(&mut subscription, EVENTS - (first - left)).await;
}

async fn members_that_share_it_are_told_together(kind: StoreKind) {
    let (world, backlog) = filled(kind).await;
    let mut first = world.subscribe(kept_by(request("t", "g"), &backlog)).await;
    world.settled("t", "g").await;
    let mut second = world.subscribe(kept_by(request("t", "h"), &backlog)).await;
    let seen = world.settled("t", "h").await;
    assert_eq!((seen.in_flight, seen.reason.unwrap().as_str()), (0, "credit"));
    for _ in 0..2 * EVENTS {
        soon("either", async {
            tokio::select! {
                lease = taken(&mut first) => lease,
                lease = taken(&mut second) => lease,
            }
        })
        .await;
    }
    assert!(is_idle(&mut first) && is_idle(&mut second));
}
