//! A memory store that is full says so, and takes events again once retention, compaction or a deletion made room.

use std::sync::Arc;

use promethean_model::{Clock, Millis, Offset, Retention, TopicSettings};
use promethean_store::memory::{MemoryOptions, MemoryStore};
use promethean_store::port::{AppendEvent, Batch, CommitError, EventReads, SettingsOp, Store, TopicOp};
use promethean_testkit::ManualClock;

use crate::suite::support::{clock, commit, event, topic};

const BYTES: u64 = 10_000;

fn open() -> (MemoryStore, Arc<ManualClock>) {
    let clock = clock();
    let options = MemoryOptions { event_bytes_max: BYTES, ..MemoryOptions::default() };
    (MemoryStore::new(Arc::<ManualClock>::clone(&clock), options), clock)
}

fn big(to: &str, name: &str, key: &str) -> AppendEvent {
    AppendEvent { key: Some(key.to_owned()), payload: format!("\"{}\"", "x".repeat(1000)), ..event(to, name) }
}

async fn publish(store: &MemoryStore, event: AppendEvent) -> Result<(), CommitError> {
    store.commit(Batch::new().event(event)).await.map(drop)
}

/// Publishes until the store refuses. Returns the refusal.
async fn fill(store: &MemoryStore, to: &str) -> CommitError {
    for n in 0..100 {
        if let Err(error) = publish(store, big(to, &format!("{to} {n}"), &n.to_string())).await {
            return error;
        }
    }
    panic!("the store is never full");
}

async fn set(store: &MemoryStore, settings: TopicSettings) {
    commit(store, Batch::new().with(SettingsOp::Put(topic("a"), settings))).await;
}

#[tokio::test]
async fn health_names_the_setting_and_retention_makes_room() {
    let (store, clock) = open();
    let retention = Retention { age: Some(Millis::from_secs(60)), ..Retention::default() };
    set(&store, TopicSettings { retention, ..TopicSettings::default() }).await;
    assert_eq!(store.health().refusing, None);
    let refused = fill(&store, "a").await;
    assert_eq!(refused.code(), "storage_full");
    assert!(refused.to_string().contains("memory_bytes"), "{refused}");
    let said = store.health().refusing.unwrap();
    assert!(said.contains("memory_bytes") && said.contains("10000"), "{said}");
    // A sweep that finds nothing to remove changes nothing.
    store.sweep(clock.wall_ms()).await.unwrap();
    assert_eq!(store.health().refusing.unwrap(), said);
    clock.advance(61_000);
    store.sweep(clock.wall_ms()).await.unwrap();
    assert_eq!(store.health().refusing, None, "there is room again");
    publish(&store, big("a", "later", "k")).await.unwrap();
    assert_eq!(store.topic_info(&topic("a")).await.unwrap().unwrap().earliest, Offset(9));
}

#[tokio::test]
async fn a_publish_that_finds_no_room_makes_it_first() {
    let (store, clock) = open();
    set(&store, TopicSettings { compacted: true, ..TopicSettings::default() }).await;
    for n in 0..100 {
        clock.advance(1_000);
        publish(&store, big("a", &n.to_string(), &format!("k{}", n % 3))).await.unwrap();
    }
    assert_eq!(store.health().refusing, None);
    assert!(store.topic_info(&topic("a")).await.unwrap().unwrap().bytes <= BYTES);
}

#[tokio::test]
async fn a_smaller_event_and_a_deletion_end_the_refusal() {
    let (store, _clock) = open();
    fill(&store, "a").await;
    assert!(store.health().refusing.is_some());
    publish(&store, event("a", "small")).await.unwrap();
    assert_eq!(store.health().refusing, None, "what fits is taken");
    fill(&store, "b").await;
    assert!(store.health().refusing.is_some());
    commit(&store, Batch::new().with(TopicOp::Delete(topic("a")))).await;
    assert_eq!(store.health().refusing, None);
    publish(&store, big("b", "after", "k")).await.unwrap();
}
