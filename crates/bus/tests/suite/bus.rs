//! The bus as its users see it, on the store in memory.

use std::sync::Arc;

use promethean_bus::publish::Publish;
use promethean_bus::rows::{AskedOptions, Start};
use promethean_bus::subscribe::Subscribe;
use promethean_bus::{Bus, BusOptions, Given, Lease, Subscription};
use promethean_model::{Offset, SystemClock};
use promethean_store::memory::{MemoryStore, Options};

async fn memory_bus() -> Bus {
    let clock = Arc::new(SystemClock::new());
    let store = Arc::new(MemoryStore::new(clock.clone(), Options::default()));
    Bus::open(store, clock, BusOptions::default()).await.unwrap()
}

fn request(subject: &str, group: &str, from: Start) -> Subscribe {
    let options = AskedOptions { from: Some(from), ..AskedOptions::default() };
    Subscribe { options, ..Subscribe::new(subject.parse().unwrap(), group.parse().unwrap()) }
}

async fn leases(subscription: &mut Subscription, count: usize) -> Vec<Lease> {
    let mut found = Vec::new();
    while found.len() < count {
        if let Given::Leases(leases) = subscription.next(count - found.len()).await.unwrap() {
            found.extend(leases);
        }
    }
    found
}

#[tokio::test]
async fn what_is_published_is_delivered_and_acked() {
    let bus = memory_bus().await;
    let mut early = bus.subscribe(request("a.b", "g", Start::Earliest)).await.unwrap();
    for n in 0..10 {
        let published = bus.publish(Publish::new("a.b".parse().unwrap(), n.to_string())).await.unwrap();
        assert_eq!(published.offset, Offset(n));
    }
    let given = leases(&mut early, 10).await;
    let payloads: Vec<_> = given.iter().map(|lease| lease.event.payload().to_vec()).collect();
    assert_eq!(payloads, (0..10).map(|n| n.to_string().into_bytes()).collect::<Vec<_>>());
    assert_eq!(early.ack(&given).await.unwrap().stale, 0);
    assert_eq!(early.ack(&given).await.unwrap().stale, 10);
    let progress = bus.group(&"a.b".parse().unwrap(), &"g".parse().unwrap()).await.unwrap();
    assert_eq!((progress.floor, progress.lag, progress.in_flight), (Offset(10), 0, 0));
    bus.close().await;
}
