//! Short ways to subscribe and to take what is delivered.

use std::path::Path;

use promethean_bus::rows::{AskedOptions, StartPosition};
use promethean_bus::subscription::Subscribe;
use promethean_bus::{BusError, Lease, Subscription, SubscriptionItem};
use promethean_store::port::StoredEvent;

pub(crate) use promethean_testkit::world::{WALL_MS, small_files};
pub(crate) use promethean_testkit::{StoreKind, World, group, on_both_stores, soon, topic, until};

/// A request for a subscription from the earliest event on, with default options.
pub(crate) fn request(subject: &str, group: &str) -> Subscribe {
    request_from(subject, group, StartPosition::Earliest)
}

pub(crate) fn request_from(subject: &str, group: &str, from: StartPosition) -> Subscribe {
    let options = AskedOptions { from: Some(from), ..AskedOptions::default() };
    Subscribe { options, ..Subscribe::new(subject.parse().unwrap(), group.parse().unwrap()) }
}

/// The request with a bound on leases in flight.
pub(crate) fn bounded(mut request: Subscribe, max_in_flight: usize) -> Subscribe {
    request.member.max_in_flight = max_in_flight;
    request
}

pub(crate) fn attempts(mut request: Subscribe, max_attempts: u32) -> Subscribe {
    request.options.max_attempts = Some(max_attempts);
    request
}

/// The next `count` leases.
pub(crate) async fn take(subscription: &mut Subscription, count: usize) -> Vec<Lease> {
    let mut found = Vec::new();
    while found.len() < count {
        let given = soon("next", subscription.next(count - found.len())).await.unwrap();
        if let SubscriptionItem::Leases(leases) = given {
            found.extend(leases);
        }
    }
    found
}

pub(crate) async fn take_one(subscription: &mut Subscription) -> Lease {
    take(subscription, 1).await.pop().unwrap()
}

/// The payload of an event, which is a number in most tests.
pub(crate) fn number(event: &StoredEvent) -> u64 {
    str::from_utf8(event.payload()).unwrap().parse().unwrap()
}

pub(crate) fn numbers(leases: &[Lease]) -> Vec<u64> {
    leases.iter().map(|lease| number(&lease.event)).collect()
}

pub(crate) fn offsets(leases: &[Lease]) -> Vec<u64> {
    leases.iter().map(|lease| lease.event.offset.get()).collect()
}

/// Whether the subscription has nothing to take. Only useful once the group has settled.
pub(crate) fn is_idle(subscription: &mut Subscription) -> bool {
    subscription.try_take(1).is_none()
}

/// The error with which the subscription ends.
pub(crate) async fn end_of(subscription: &mut Subscription) -> BusError {
    soon("end", async {
        loop {
            if let Err(error) = subscription.next(100).await {
                return error;
            }
        }
    })
    .await
}

/// Copies a folder with all that is in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
