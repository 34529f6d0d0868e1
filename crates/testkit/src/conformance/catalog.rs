//! Topic settings.

use std::sync::Arc;

use promethean_model::{Durability, Millis, Retention, TopicSettings};
use promethean_store::port::{Batch, SettingsOp, Store};

use super::Subject;
use super::support::*;

/// Runs every case.
pub async fn all<S: Subject>(make: &impl AsyncFn() -> S) {
    settings_are_what_was_put(make().await).await;
}

async fn settings_are_what_was_put<S: Subject>(subject: S) {
    let store = subject.store();
    let full = TopicSettings {
        retention: Retention { age: Some(Millis::from_hours(1)), bytes: Some(5), count: Some(7) },
        compacted: true,
        partitions: Some(12),
        dedupe_window: Millis::from_secs(90),
        durability: Some(Durability::Os),
        max_attempts: 9,
        ..TopicSettings::default()
    };
    let put = |name: &str, settings: &TopicSettings| SettingsOp::Put(topic(name), settings.clone());
    for name in ["c", "a", "b.x", "b"] {
        commit(&store, Batch::new().with(put(name, &TopicSettings::default()))).await;
    }
    commit(&store, Batch::new().with(put("a", &full)).with(SettingsOp::Delete(topic("c")))).await;
    assert_eq!(store.topics(None, 10).await.unwrap().topics, [], "settings make no topic");
    let check = async |store: &Arc<dyn Store>| {
        assert_eq!(store.settings(&topic("a")).await.unwrap().as_ref(), Some(&full));
        assert_eq!(store.settings(&topic("b")).await.unwrap(), Some(TopicSettings::default()));
        assert_eq!(store.settings(&topic("c")).await.unwrap(), None);
        let names = async |after: Option<&str>, limit| -> Vec<String> {
            let after = after.map(topic);
            let page = store.settings_page(after.as_ref(), limit).await.unwrap();
            page.iter().map(|config| config.topic.to_string()).collect()
        };
        assert_eq!(names(None, 10).await, ["a", "b", "b.x"]);
        assert_eq!(names(Some("a"), 1).await, ["b"]);
        assert_eq!(names(Some("b.x"), 10).await, Vec::<String>::new());
        assert_eq!(names(None, 0).await, Vec::<String>::new());
    };
    check(&store).await;
    if let Some(subject) = subject.reopen().await {
        check(&subject.store()).await;
    }
}
