//! Topic settings.

use std::sync::Arc;

use promethean_model::{Durability, Millis, Retention, TopicSettings};
use promethean_store::port::{Batch, Class, CommitError, SettingsOp, Store};

use super::StoreUnderTest;
use super::support::*;

/// Runs every case.
pub async fn all<S: StoreUnderTest>(make: &impl AsyncFn() -> S) {
    settings_are_what_was_put(make().await).await;
    durabilities_that_are_not_offered_are_refused(make().await).await;
}

async fn settings_are_what_was_put<S: StoreUnderTest>(subject: S) {
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

/// A store offers either the durabilities of files or those of a replica set, for batches and as settings alike.
async fn durabilities_that_are_not_offered_are_refused<S: StoreUnderTest>(subject: S) {
    let store = subject.store();
    let is_offered = |outcome: Result<_, CommitError>| match outcome {
        Ok(_) => true,
        Err(CommitError::NotOffered { .. }) => false,
        Err(other) => panic!("{other}"),
    };
    let of_files = is_offered(store.commit(of(Durability::Fsync)).await);
    for durability in Durability::ALL {
        let offered = durability.is_embedded() == of_files;
        assert_eq!(is_offered(store.commit(of(durability)).await), offered, "{durability}");
        let before = store.settings(&topic("a")).await.unwrap();
        let settings = TopicSettings { durability: Some(durability), ..TopicSettings::default() };
        let put = SettingsOp::Put(topic("a"), settings.clone());
        assert_eq!(is_offered(store.commit(Batch::new().with(put)).await), offered, "{durability}");
        let now = store.settings(&topic("a")).await.unwrap();
        assert_eq!(now, if offered { Some(settings) } else { before }, "{durability}");
    }
}

fn of(durability: Durability) -> Batch {
    Batch::of(Class::Durable(Some(durability))).event(event("a", "", "1"))
}
