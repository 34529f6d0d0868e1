//! A publisher with a rate of its own is refused beyond it.

use std::sync::Arc;

use promethean_bus::limits::Rate;
use promethean_bus::publish::Publish;
use promethean_bus::{Bus, BusError, BusOptions, RateOwner};
use promethean_store::memory::{MemoryOptions, MemoryStore};
use promethean_testkit::ManualClock;

#[tokio::test]
async fn what_is_beyond_the_rate_is_refused_and_the_rest_keeps_its_place() {
    let clock = Arc::new(ManualClock::new(1_000));
    let store = Arc::new(MemoryStore::new(clock.clone(), MemoryOptions::default()));
    let bus = Bus::open(store, clock.clone(), BusOptions::default()).await.unwrap();
    let event = || Publish::new("a".parse().unwrap(), "1");
    let publisher = bus.publisher(Some(Rate::new(1, 3)));
    let over = publisher.publish_batch(vec![event(), event(), event(), event()]).await.unwrap_err();
    assert_eq!(over, BusError::OverBurst { whose: RateOwner::Connection, asked: 4, burst: 3 });
    publisher.publish(event()).await.unwrap();
    let results = publisher.publish_each(vec![event(), event(), event()]).await;
    let codes: Vec<_> = results.iter().map(|result| result.as_ref().map_err(BusError::code)).collect();
    assert!(matches!(codes[..], [Ok(first), Ok(second), Err("rate_limited")]
        if (first.offset.get(), second.offset.get()) == (1, 2)));
    let said = over.to_string();
    assert!(said.contains("this connection (`publish_rate` in `[limits]`)"), "{said}");
    let Err(BusError::RateLimited { retry_after_ms, .. }) = publisher.publish(event()).await else {
        panic!("the bucket is empty")
    };
    clock.advance(retry_after_ms);
    publisher.publish(event()).await.unwrap();
    bus.publisher(None).publish_batch(vec![event(), event()]).await.unwrap();
}
