//! Retention, compaction and deletion of topics: the events they keep, and the holes they leave.

use std::collections::BTreeMap;
use std::sync::Arc;

use promethean_model::{GroupName, Millis, Offset, Retention, TopicSettings};
use promethean_store::port::{Batch, PageLimit, SettingsOp, Store, TopicOp};

use super::StoreUnderTest;
use super::support::*;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    retention_drops_the_oldest_and_says_so(make().await).await;
    retention_keeps_held_events(make().await).await;
    age_counts_from_append(make().await).await;
    compaction_keeps_the_latest_of_each_key(make().await).await;
    compaction_keeps_held_events(make().await).await;
    a_small_topic_is_compacted_within_minutes(make().await).await;
    a_compacted_topic_needs_keys(make().await).await;
    a_deleted_topic_starts_afresh(make().await).await;
}

async fn set(store: &Arc<dyn Store>, name: &str, settings: TopicSettings) {
    commit(store, Batch::new().with(SettingsOp::Put(topic(name), settings))).await;
}

fn big(n: u64) -> String {
    format!("\"{n:0>1000}\"")
}

async fn retention_drops_the_oldest_and_says_so<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let retention = Retention { count: Some(20), ..Retention::default() };
    set(&store, "a", TopicSettings { retention, ..TopicSettings::default() }).await;
    for n in 0..100 {
        append(&store, event("a", n.to_string(), big(n))).await;
    }
    append(&store, event("b", "0", "1")).await;
    subject.maintain().await;
    let earliest = check_retained(&store).await;
    let Some(subject) = subject.reopen().await else { return };
    assert_eq!(check_retained(&subject.store()).await, earliest);
}

async fn retention_keeps_held_events<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let (slow, fast): (GroupName, GroupName) = ("slow".parse().unwrap(), "fast".parse().unwrap());
    // Also before the topic exists.
    store.hold(&topic("a"), &slow, Some(Offset(10)));
    store.hold(&topic("a"), &fast, Some(Offset(90)));
    let retention = Retention { count: Some(20), ..Retention::default() };
    set(&store, "a", TopicSettings { retention, ..TopicSettings::default() }).await;
    for n in 0..100 {
        append(&store, event("a", n.to_string(), big(n))).await;
    }
    let after = async || {
        subject.maintain().await;
        let info = store.topic_info(&topic("a")).await.unwrap().unwrap();
        (info.earliest.get(), info.held)
    };
    assert_eq!(after().await, (10, 70));
    store.hold(&topic("a"), &slow, Some(Offset(60)));
    assert_eq!(after().await, (60, 20));
    store.hold(&topic("a"), &slow, None);
    assert_eq!(after().await, (80, 0), "the other has read what goes");
    store.hold(&topic("a"), &slow, Some(Offset(5)));
    assert_eq!(after().await, (80, 0), "what is gone is gone");
}

async fn compaction_keeps_held_events<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let reader: GroupName = "reader".parse().unwrap();
    store.hold(&topic("a"), &reader, Some(Offset::ZERO));
    set(&store, "a", TopicSettings { compacted: true, ..TopicSettings::default() }).await;
    for n in 0..100 {
        append(&store, keyed("a", n.to_string(), "k", big(n))).await;
    }
    subject.maintain().await;
    assert_eq!(read_all(&store, "a").await.len(), 100);
    store.hold(&topic("a"), &reader, None);
    subject.maintain().await;
    assert!(read_all(&store, "a").await.len() < 50);
}

async fn a_small_topic_is_compacted_within_minutes<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    set(&store, "a", TopicSettings { compacted: true, ..TopicSettings::default() }).await;
    for n in 0..7 {
        append(&store, keyed("a", n.to_string(), &format!("k{}", n % 2), n.to_string())).await;
    }
    subject.clock().advance(120_000);
    subject.maintain().await;
    let check = async |store: &Arc<dyn Store>| {
        assert_eq!(payloads(store, "a").await, ["5", "6"]);
        let again = append(store, keyed("a", "0", "k0", "0")).await;
        assert_eq!((again.offset, again.duplicate), (Offset(0), true));
    };
    check(&store).await;
    let (subject, store) = match subject.reopen().await {
        Some(subject) => {
            let store = subject.store();
            (Some(subject), store)
        }
        None => (None, store),
    };
    check(&store).await;
    assert_eq!(append(&store, keyed("a", "7", "k1", "7")).await.offset, Offset(7));
    assert_eq!(payloads(&store, "a").await, ["5", "6", "7"]);
    let Some(subject) = subject else { return };
    subject.clock().advance(120_000);
    subject.maintain().await;
    assert_eq!(payloads(&store, "a").await, ["6", "7"]);
}

async fn check_retained(store: &Arc<dyn Store>) -> u64 {
    let info = store.topic_info(&topic("a")).await.unwrap().unwrap();
    let earliest = info.earliest.get();
    assert!(earliest > 0 && earliest <= 80, "earliest {earliest}");
    assert_eq!(info.end, Offset(100));
    let page = store.read(&topic("a"), Offset(3), PageLimit { events: 1, bytes: 1 << 20 }).await.unwrap();
    assert_eq!((page.expired, page.events[0].offset.get()), (earliest - 3, earliest));
    let kept = read_all(store, "a").await;
    assert_eq!(
        kept.iter().map(|event| event.offset.get()).collect::<Vec<_>>(),
        (earliest..100).collect::<Vec<_>>()
    );
    assert_eq!(store.by_id(&topic("a"), id("0")).await.unwrap(), None);
    // Within the dedupe window a dropped event is still recognised.
    let again = append(store, event("a", "0", big(0))).await;
    assert_eq!((again.offset, again.duplicate), (Offset(0), true));
    let other = refused(store, Batch::new().event(event("a", "0", "2"))).await;
    assert_eq!(other.code(), "id_conflict");
    assert_eq!(read_all(store, "b").await.len(), 1);
    earliest
}

async fn age_counts_from_append<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let clock = subject.clock();
    let retention = Retention { age: Some(Millis::from_secs(60)), ..Retention::default() };
    set(&store, "a", TopicSettings { retention, ..TopicSettings::default() }).await;
    let old_ts = |name: &str| {
        let mut event = event("a", name, "1");
        event.ts = Some(0);
        event
    };
    append(&store, old_ts("first")).await;
    clock.advance(40_000);
    append(&store, old_ts("second")).await;
    subject.maintain().await;
    assert_eq!(read_all(&store, "a").await.len(), 2, "old by `ts`, young by append");
    clock.advance(80_000);
    append(&store, old_ts("third")).await;
    subject.maintain().await;
    let kept: Vec<_> = read_all(&store, "a").await.iter().map(|event| event.offset.get()).collect();
    assert_eq!(kept, [2]);
    assert_eq!(append(&store, old_ts("fourth")).await.offset, Offset(3));
}

async fn compaction_keeps_the_latest_of_each_key<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    set(&store, "a", TopicSettings { compacted: true, ..TopicSettings::default() }).await;
    let mut latest = BTreeMap::new();
    for n in 0..120u64 {
        let key = format!("k{}", n % 5);
        let payload = if n == 117 { "null".to_owned() } else { big(n) };
        append(&store, keyed("a", n.to_string(), &key, payload)).await;
        latest.insert(key, n);
    }
    subject.maintain().await;
    check_compacted(&store, &latest).await;
    if let Some(subject) = subject.reopen().await {
        check_compacted(&subject.store(), &latest).await;
    }
}

async fn check_compacted(store: &Arc<dyn Store>, latest: &BTreeMap<String, u64>) {
    let kept = read_all(store, "a").await;
    assert!(kept.len() < 120 && kept.len() >= latest.len(), "{} are kept", kept.len());
    assert!(kept.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    for (key, offset) in latest {
        let found = store.latest_by_keys(&topic("a"), std::slice::from_ref(key)).await.unwrap();
        let found = found[0].as_ref().unwrap();
        assert_eq!(found.offset, Offset(*offset));
        assert_eq!(found.is_tombstone(), *offset == 117);
        assert!(kept.contains(found));
    }
    // A page that starts in a hole continues after it.
    let hole = (0..120).find(|offset| !kept.iter().any(|event| event.offset.get() == *offset)).unwrap();
    let page = store.read(&topic("a"), Offset(hole), PageLimit { events: 1, bytes: 1 << 20 }).await.unwrap();
    let behind = kept.iter().find(|event| event.offset.get() > hole);
    assert_eq!(page.events.first().or(behind), behind);
    assert!(page.next > Offset(hole));
    let again = append(store, keyed("a", "0", "k0", big(0))).await;
    assert_eq!((again.offset, again.duplicate), (Offset(0), true));
}

async fn a_compacted_topic_needs_keys<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    // Settings may come before the topic.
    set(&store, "a", TopicSettings { compacted: true, ..TopicSettings::default() }).await;
    let batch = || Batch::new().event(event("b", "0", "1")).event(event("a", "0", "1")).with(row("r", "1"));
    assert_eq!(refused(&store, batch()).await.code(), "key_required");
    assert_untouched(&store, &["a", "b"]).await;
    append(&store, keyed("a", "1", "k", "1")).await;
    assert_eq!(refused(&store, batch()).await.code(), "key_required");
    let store = match subject.reopen().await {
        Some(subject) => subject.store(),
        None => store,
    };
    assert_eq!(refused(&store, batch()).await.code(), "key_required");
    commit(&store, Batch::new().with(SettingsOp::Delete(topic("a")))).await;
    commit(&store, batch()).await;
}

async fn a_deleted_topic_starts_afresh<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    set(&store, "a", TopicSettings { compacted: true, ..TopicSettings::default() }).await;
    for n in 0..5 {
        append(&store, keyed("a", n.to_string(), "k", "1")).await;
        append(&store, event("b", n.to_string(), "1")).await;
    }
    commit(&store, Batch::new().with(cursor_put("g", "a", 4, 0, 1)).with(cursor_put("g", "b", 4, 0, 1)))
        .await;
    commit(&store, Batch::new().with(TopicOp::Delete(topic("a"))).with(row("r", "1"))).await;
    commit(&store, Batch::new().with(TopicOp::Delete(topic("never")))).await;
    assert_eq!(rows(&store).await.len(), 1);
    check_gone(&store).await;
    let store = match subject.reopen().await {
        Some(subject) => subject.store(),
        None => store,
    };
    check_gone(&store).await;
    let again = append(&store, event("a", "3", "1")).await;
    assert_eq!((again.offset, again.duplicate), (Offset(0), false));
}

async fn check_gone(store: &Arc<dyn Store>) {
    assert_eq!(store.topic_info(&topic("a")).await.unwrap(), None);
    assert_eq!(payloads(store, "a").await, Vec::<String>::new());
    assert_eq!(store.by_id(&topic("a"), id("3")).await.unwrap(), None);
    assert_eq!(store.settings(&topic("a")).await.unwrap(), None);
    assert_eq!(store.cursor(&group("g"), &topic("a")).await.unwrap(), None);
    assert_eq!(store.durable_end(&topic("a")), Offset::ZERO);
    assert!(!store.has_topic(&topic("a")));
    assert!(store.cursor(&group("g"), &topic("b")).await.unwrap().is_some());
    assert_eq!(read_all(store, "b").await.len(), 5);
    let listed = store.topics(None, 10).await.unwrap().topics;
    assert_eq!(listed.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["b"]);
}
