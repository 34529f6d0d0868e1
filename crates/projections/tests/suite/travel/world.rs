//! A store, a bus over it, and one topic.

use std::sync::Arc;

use promethean_bus::publish::Publish;
use promethean_bus::{Bus, BusOptions};
use promethean_model::{Offset, Retention, TopicName, TopicSettings};
use promethean_projections::ProjectionError;
use promethean_projections::compactor::{Compactor, CompactorOptions};
use promethean_projections::snapshot::{Snapshot, group};
use promethean_projections::time_travel::{Reducer, state_at};
use promethean_store::embedded::EmbeddedStore;
use promethean_store::memory::{MemoryStore, Options};
use promethean_store::port::{PageLimit, Store, StoredEvent};
use promethean_testkit::ManualClock;
use serde_json::{Value, json};

use crate::suite::travel::model::{Known, Published, reducers};

pub(crate) const NOW: i64 = 1_000_000;

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bus: Bus,
    pub(crate) topic: TopicName,
    pub(crate) history: Vec<Published>,
    settings: TopicSettings,
    _dir: Option<tempfile::TempDir>,
}

pub(crate) fn name(text: &str) -> TopicName {
    text.parse().unwrap()
}

impl World {
    pub(crate) async fn in_memory() -> Self {
        let clock = Arc::new(ManualClock::new(NOW));
        let store = Arc::new(MemoryStore::new(clock.clone(), Options::default()));
        Self::over(store, clock, None).await
    }

    pub(crate) async fn embedded() -> Self {
        let clock = Arc::new(ManualClock::new(NOW));
        let dir = tempfile::tempdir().unwrap();
        let options = promethean_store::embedded::Options::default();
        let (store, _) = EmbeddedStore::open(dir.path(), clock.clone(), options).await.unwrap();
        Self::over(Arc::new(store), clock, Some(dir)).await
    }

    async fn over(store: Arc<dyn Store>, clock: Arc<ManualClock>, dir: Option<tempfile::TempDir>) -> Self {
        let bus = Bus::open(store.clone(), clock.clone(), BusOptions::default()).await.unwrap();
        Self {
            clock,
            store,
            bus,
            topic: name("t"),
            history: Vec::new(),
            settings: TopicSettings::default(),
            _dir: dir,
        }
    }

    pub(crate) async fn close(self) {
        self.bus.close().await;
        self.store.close().await;
    }

    pub(crate) async fn publish(&mut self, key: &str, ts: i64, payload: Value) {
        let publish = Publish::new(self.topic.clone(), payload.to_string()).key(key).ts(ts);
        let published = self.bus.publish(publish).await.unwrap();
        assert_eq!(published.offset, Offset(self.history.len() as u64));
        self.history.push(Published { key: key.to_owned(), ts, payload });
    }

    pub(crate) fn options(&self, reducer: &Reducer, span: u64) -> CompactorOptions {
        let snapshot_topic = Some(snapshots(reducer)).filter(|_| *reducer != Reducer::Latest);
        CompactorOptions {
            snapshot_topic,
            reducer: reducer.clone(),
            span,
            ..CompactorOptions::new(self.topic.clone())
        }
    }

    pub(crate) async fn compactor(&self, options: CompactorOptions) -> Compactor {
        Compactor::open(&self.bus, self.store.clone(), self.clock.clone(), options).await.unwrap()
    }

    pub(crate) async fn round(&self, reducer: &Reducer, span: u64) -> u64 {
        self.compactor(self.options(reducer, span)).await.run_round().await.unwrap().published
    }

    /// `Ok(None)` where the key is unknown at that time.
    pub(crate) async fn state_at(
        &self,
        key: &str,
        at: i64,
        reducer: &Reducer,
        snapshots: Option<&TopicName>,
    ) -> Result<Option<Known>, ProjectionError> {
        match state_at(&*self.store, self.bus.jq_pool(), &self.topic, key, at, reducer, snapshots).await {
            Ok(found) => {
                assert_eq!(found.key, key);
                let state = serde_json::from_str(found.state.get()).unwrap();
                Ok(Some((state, found.ts, found.offset.get())))
            }
            Err(ProjectionError::UnknownAt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Keeps so many events, whether or not compactors have seen the others.
    pub(crate) async fn keep(&mut self, count: u64) {
        for reducer in reducers() {
            let group = group(&self.topic, &snapshots(&reducer)).unwrap();
            self.store.hold(&self.topic, &group, None);
        }
        self.settings.retention = Retention { count: Some(count), ..Retention::default() };
        self.apply_settings().await;
    }

    pub(crate) async fn compact(&mut self) {
        self.settings.compacted = true;
        self.apply_settings().await;
    }

    async fn apply_settings(&self) {
        self.bus.set_topic(&self.topic, self.settings.clone()).await.unwrap();
        self.store.sweep(NOW).await.unwrap();
    }

    pub(crate) async fn all_events(&self, topic: &TopicName) -> Vec<StoredEvent> {
        let limit = PageLimit { events: usize::MAX, bytes: usize::MAX };
        self.store.read(topic, Offset::ZERO, limit).await.unwrap().events
    }

    pub(crate) async fn all_snapshots(&self, topic: &TopicName) -> Vec<Snapshot> {
        let events = self.all_events(topic).await;
        events.iter().map(|event| Snapshot::read(event).unwrap()).collect()
    }
}

/// Where the compactor with a reducer writes: one has the usual name, the others their own.
pub(crate) fn snapshots(reducer: &Reducer) -> TopicName {
    match reducer {
        Reducer::Latest => name("t.snapshot"),
        Reducer::Merge => name("merged"),
        Reducer::Jq(_) => name("counted.snapshot"),
    }
}

pub(crate) fn patch(n: i64) -> Value {
    json!({ "n": n })
}
