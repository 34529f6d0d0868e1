//! A collection at any time is the fold of its feed.

use std::collections::BTreeMap;

use promethean_projections::time_travel::feed::{Difference, KeyPage, collection_at, difference};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::suite::time_travel::world::{TopicWorld, patch};

type Documents = BTreeMap<String, Value>;

fn at(history: &[(String, i64, Value)], at: i64) -> Documents {
    let mut documents = Documents::new();
    for (key, _, payload) in history.iter().filter(|(_, ts, _)| *ts <= at) {
        if payload.is_null() {
            documents.remove(key);
        } else {
            documents.insert(key.clone(), payload.clone());
        }
    }
    documents
}

async fn read(world: &TopicWorld, at: i64, limit: usize) -> Documents {
    let mut documents = Documents::new();
    let mut after: Option<String> = None;
    loop {
        let part = KeyPage { after: after.as_deref(), limit };
        let page = collection_at(&*world.store, &world.topic, at, part).await.unwrap();
        assert!(page.documents.len() <= limit);
        for found in page.documents {
            let document = serde_json::from_str(found.document.get()).unwrap();
            assert!(documents.last_key_value().is_none_or(|(last, _)| *last < found.key));
            documents.insert(found.key, document);
        }
        after = page.next;
        if after.is_none() {
            return documents;
        }
    }
}

async fn differences(world: &TopicWorld, before: i64, after: i64, limit: usize) -> Vec<Difference> {
    let mut all = Vec::new();
    let mut from: Option<String> = None;
    loop {
        let part = KeyPage { after: from.as_deref(), limit };
        let page = difference(&*world.store, &world.topic, before, after, part).await.unwrap();
        assert!(page.differences.len() <= limit);
        all.extend(page.differences);
        from = page.next;
        if from.is_none() {
            return all;
        }
    }
}

fn apply(mut documents: Documents, differences: &[Difference]) -> Documents {
    let read = |text: &serde_json::value::RawValue| serde_json::from_str::<Value>(text.get()).unwrap();
    for difference in differences {
        match difference {
            Difference::Added { key, after } => {
                assert_eq!(documents.insert(key.clone(), read(after)), None);
            }
            Difference::Removed { key, before } => assert_eq!(documents.remove(key), Some(read(before))),
            Difference::Changed { key, before, after } => {
                assert_ne!(read(before), read(after));
                assert_eq!(documents.insert(key.clone(), read(after)), Some(read(before)));
            }
        }
    }
    documents
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn a_collection_is_the_fold_of_its_feed(
        events in prop::collection::vec((0..6_u8, 0..10_i64, prop::option::of(0..3_i64)), 0..40),
        (then, now) in (-1..11_i64, -1..11_i64),
        limit in 1..4_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut world = TopicWorld::in_memory().await;
            let mut history = Vec::new();
            for (key, ts, n) in events {
                let (key, payload) = (format!("k{key}"), n.map_or(Value::Null, patch));
                world.publish(&key, ts, payload.clone()).await;
                history.push((key, ts, payload));
            }
            let (before, after) = (at(&history, then), at(&history, now));
            assert_eq!(read(&world, then, limit).await, before);
            assert_eq!(read(&world, now, limit).await, after);
            assert_eq!(apply(before, &differences(&world, then, now, limit).await), after);
            world.close().await;
        });
    }
}

#[tokio::test]
async fn a_feed_that_lost_something_is_refused() {
    let mut world = TopicWorld::in_memory().await;
    for n in 1..=4 {
        world.publish("a", n * 10, patch(n)).await;
    }
    world.compact().await;
    let part = KeyPage { after: None, limit: 10 };
    let at = async |ts| collection_at(&*world.store, &world.topic, ts, part).await;
    assert_eq!(at(40).await.unwrap().documents.len(), 1);
    assert_eq!(at(39).await.unwrap_err().code(), "history_gone");
    world.publish("b", 50, json!({})).await;
    world.keep(1).await;
    let at = async |ts| collection_at(&*world.store, &world.topic, ts, part).await;
    assert_eq!(at(99).await.unwrap_err().code(), "history_gone");
    world.close().await;
}
