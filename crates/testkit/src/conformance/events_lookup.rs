//! Finding events: by id, by key, by time, against a plain list.

use std::collections::BTreeSet;
use std::sync::Arc;

use promethean_model::{Offset, OffsetRange};
use promethean_store::port::{AppendEvent, Batch, Store, StoredEvent, TopicOp};

use super::StoreUnderTest;
use super::support::*;
use crate::SeededRng;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    for seed in 0..4 {
        lookups_agree_with_a_list(make().await, seed).await;
    }
    topics_are_listed_by_name(make().await).await;
}

const KEYS: [&str; 5] = ["a", "b", "ab", "", "\u{0}z"];

async fn lookups_agree_with_a_list<S: StoreUnderTest>(subject: S, seed: u64) {
    let mut rng = SeededRng::new(seed);
    let store = subject.store();
    for batch in 0..rng.range(5..20) {
        let mut events = Batch::new();
        for n in 0..rng.range(1..12) {
            let name = ["x", "y"][rng.range(0..2) as usize];
            let payload = if rng.chance(15) { "null".to_owned() } else { format!("[{batch},{n}]") };
            let key = rng.chance(80).then(|| KEYS[rng.range(0..KEYS.len() as u64) as usize].to_owned());
            let ts = rng.chance(50).then(|| rng.range(0..50) as i64 - 10);
            let new = event(name, format!("{batch}-{n}"), payload);
            events = events.event(AppendEvent { key, ts, ..new });
        }
        commit(&store, events).await;
        subject.clock().advance_wall(rng.range(0..9) as i64 - 3);
    }
    check(&store, &mut rng).await;
    if let Some(subject) = subject.reopen().await {
        check(&subject.store(), &mut rng).await;
    }
}

async fn check(store: &Arc<dyn Store>, rng: &mut SeededRng) {
    for name in ["x", "y"] {
        let list = read_all(store, name).await;
        let found = topic(name);
        for event in &list {
            assert_eq!(store.by_id(&found, event.id).await.unwrap().as_ref(), Some(event));
        }
        assert_eq!(store.by_id(&found, id("unknown")).await.unwrap(), None);
        let keys: Vec<String> = KEYS.iter().copied().chain(["none"]).map(str::to_owned).collect();
        let latest = |key: &str| list.iter().rfind(|event| event.key() == Some(key)).cloned();
        let expected: Vec<_> = keys.iter().map(|key| latest(key)).collect();
        assert_eq!(store.latest_by_keys(&found, &keys).await.unwrap(), expected);
        for key in &keys {
            check_history(store, rng, name, &list, key).await;
        }
        for ts in
            list.iter().flat_map(|event| [event.ts - 1, event.ts, event.ts + 1]).collect::<BTreeSet<_>>()
        {
            let expected = list.iter().find(|event| event.ts >= ts).map(|event| event.offset);
            assert_eq!(store.offset_at(&found, ts).await.unwrap(), expected, "offset at {ts}");
        }
    }
}

async fn check_history(
    store: &Arc<dyn Store>,
    rng: &mut SeededRng,
    name: &str,
    list: &[StoredEvent],
    key: &str,
) {
    let of_key: Vec<_> = list.iter().filter(|event| event.key() == Some(key)).collect();
    let whole = OffsetRange::new(Offset::ZERO, Offset::MAX);
    let end = list.len() as u64 + 2;
    let part = OffsetRange::new(Offset(rng.range(0..end)), Offset(rng.range(0..end)));
    for (range, limit) in [(whole, 1000), (part, 1000), (whole, rng.range(0..5) as usize)] {
        let got = store.key_history(&topic(name), key, range, limit).await.unwrap();
        let inside: Vec<_> = of_key.iter().filter(|event| range.contains(event.offset)).copied().collect();
        let expected: Vec<_> = inside.iter().skip(inside.len().saturating_sub(limit)).copied().collect();
        assert_eq!(got.iter().collect::<Vec<_>>(), expected, "history of {key:?} in {range}, {limit}");
    }
}

async fn topics_are_listed_by_name<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let mut names: Vec<String> = (0..25).map(|n| format!("t{}.x", (n * 7) % 25)).collect();
    for (n, name) in names.iter().enumerate() {
        append(&store, event(name, n.to_string(), "1")).await;
    }
    commit(&store, Batch::new().with(TopicOp::Create(topic("empty")))).await;
    commit(&store, Batch::new().with(TopicOp::Create(topic("t0.x")))).await;
    assert!(store.has_topic(&topic("empty")));
    names.push("empty".to_owned());
    names.sort_unstable();
    let check = async |store: &Arc<dyn Store>| {
        let mut listed = Vec::new();
        let mut after = None;
        loop {
            let page = store.topics(after.as_ref(), 4).await.unwrap();
            assert!(page.topics.len() <= 4);
            listed.extend(page.topics);
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(listed.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), names);
        for info in listed {
            let end = if info.name.as_str() == "empty" { 0 } else { 1 };
            assert_eq!((info.earliest, info.end), (Offset::ZERO, Offset(end)));
            assert_eq!(store.topic_info(&info.name).await.unwrap(), Some(info));
        }
    };
    check(&store).await;
    if let Some(subject) = subject.reopen().await {
        check(&subject.store()).await;
    }
}
