//! A world with one topic whose whole history is known.

use promethean_bus::BusOptions;
use promethean_bus::publish::Publish;
use promethean_model::{Offset, Retention, TopicName, TopicSettings};
use promethean_projections::ProjectionError;
use promethean_projections::compactor::{Compactor, CompactorOptions};
use promethean_projections::snapshot::{Snapshot, group};
use promethean_projections::time_travel::{Reducer, state_at};
use promethean_testkit::{ManualClock, StoreKind, World, topic};
use serde_json::{Value, json};

use crate::suite::time_travel::model::{Known, Published, reducers};

pub(crate) const NOW: i64 = 1_000_000;

/// A world with one topic, and all events ever published to it.
pub(crate) struct TopicWorld {
    pub(crate) world: World,
    pub(crate) topic: TopicName,
    pub(crate) history: Vec<Published>,
    settings: TopicSettings,
}

impl std::ops::Deref for TopicWorld {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl TopicWorld {
    pub(crate) async fn in_memory() -> Self {
        Self::open(StoreKind::Memory).await
    }

    pub(crate) async fn embedded() -> Self {
        Self::open(StoreKind::Embedded).await
    }

    async fn open(kind: StoreKind) -> Self {
        let world = World::open(kind, ManualClock::new(NOW), BusOptions::default()).await;
        Self { world, topic: topic("t"), history: Vec::new(), settings: TopicSettings::default() }
    }

    pub(crate) async fn close(self) {
        self.world.close().await;
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

    /// The state of a key at a time; `Ok(None)` if the key is unknown at that time.
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

    /// Keeps this many events, also if compactors have not seen the others.
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
        self.maintain().await;
    }

    pub(crate) async fn all_snapshots(&self, topic: &TopicName) -> Vec<Snapshot> {
        let events = self.events(topic.as_str()).await;
        events.iter().map(|event| Snapshot::read(event).unwrap()).collect()
    }
}

/// The snapshot topic of the compactor with this reducer: the usual name for one, names of their own for the others.
pub(crate) fn snapshots(reducer: &Reducer) -> TopicName {
    match reducer {
        Reducer::Latest => topic("t.snapshot"),
        Reducer::Merge => topic("merged"),
        Reducer::Jq(_) => topic("counted.snapshot"),
    }
}

pub(crate) fn patch(n: i64) -> Value {
    json!({ "n": n })
}
