//! What was: the state of keys and collections at any time.

use promethean_model::{CollectionName, TopicName};

use crate::error::ProjectionError;
use crate::projections::Projections;
use crate::time_travel::feed::{self, CollectionAt, Differences, Part};
use crate::time_travel::{Reducer, StateAt, state_at};

impl Projections {
    /// The state of a key of a topic at a time, epoch ms, by the topic's reducer. Snapshots of a compactor shorten it.
    pub async fn state_at(&self, topic: &TopicName, key: &str, at: i64) -> Result<StateAt, ProjectionError> {
        let inner = &self.inner;
        let snapshots = inner.snapshots_of(topic);
        let reducer = inner.reducers.get(topic).unwrap_or(&Reducer::Latest);
        state_at(&*inner.parts.store, inner.parts.bus.jq_pool(), topic, key, at, reducer, snapshots.as_ref())
            .await
    }

    /// The documents of a collection at a time, by key. The collection must keep its history.
    pub async fn collection_at(
        &self,
        collection: &CollectionName,
        at: i64,
        part: Part<'_>,
    ) -> Result<CollectionAt, ProjectionError> {
        let feed = self.history_of(collection).await?;
        feed::collection_at(&*self.inner.parts.store, &feed, at, part).await
    }

    /// What differs between a collection at one time and at another, by key. The collection must keep its history.
    pub async fn difference(
        &self,
        collection: &CollectionName,
        before: i64,
        after: i64,
        part: Part<'_>,
    ) -> Result<Differences, ProjectionError> {
        let feed = self.history_of(collection).await?;
        feed::difference(&*self.inner.parts.store, &feed, before, after, part).await
    }

    async fn history_of(&self, collection: &CollectionName) -> Result<TopicName, ProjectionError> {
        self.collection(collection).await?;
        self.feed_of(collection)
    }
}
