//! The start of a feed whose collection has documents already: the documents are its first events.
//!
//! Events wait meanwhile, so that the documents do not change. A start that is cut off is made again from the
//! first document on; what it published before does not count.

use std::collections::VecDeque;

use promethean_bus::BusError;
use promethean_bus::publish::Publish;
use promethean_model::{CollectionName, EventId, Offset, TopicName};
use promethean_store::port::{Doc, Store};
use tracing::info;

use super::{Interruption, ProjectorRunner};
use crate::collections::WrittenCollections;
use crate::error::ProjectionError;
use crate::fold::{SOURCE_OFFSET_HEADER, SOURCE_TOPIC_HEADER, source_offset};
use crate::time_travel::FeedRow;

/// Documents that are published at once.
const PAGE: usize = 64;

/// Feeds that have yet to begin, the first of them perhaps half begun.
#[derive(Debug, Default)]
pub(super) struct FeedStarts {
    left: VecDeque<FeedStart>,
}

/// A feed that begins with the documents of its collection.
#[derive(Debug)]
struct FeedStart {
    feed: TopicName,
    /// The name of the collection in the store.
    collection: CollectionName,
    progress: Option<FeedProgress>,
}

#[derive(Debug)]
struct FeedProgress {
    /// The end of the feed when its start began.
    from: Offset,
    /// When it began, which tells it from an earlier try.
    began_ms: i64,
    /// The latest time of the start and of the documents.
    since: i64,
    /// The key of the last document that is published.
    after: Option<String>,
}

impl FeedStarts {
    /// Finds the feeds that have yet to begin. `is_new`: the projector has no documents, and makes them event
    /// by event, so that its feeds are whole from the beginning.
    pub(super) async fn find(
        store: &dyn Store,
        collections: &WrittenCollections,
        is_new: bool,
    ) -> Result<Self, ProjectionError> {
        let mut left = VecDeque::new();
        for (name, feed, keeps) in collections.feeds() {
            let row = FeedRow::read(store, &feed).await?;
            if !keeps {
                if row.is_some() {
                    FeedRow::remove(store, &feed).await?;
                }
                continue;
            }
            if row.is_some() {
                continue;
            }
            let docs = store.collection(&name).await?.map_or(0, |info| info.docs);
            if is_new && docs == 0 {
                FeedRow::new(store.durable_end(&feed), None).write(store, &feed).await?;
                continue;
            }
            left.push_back(FeedStart { feed, collection: name, progress: None });
        }
        Ok(Self { left })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}

impl ProjectorRunner {
    /// Publishes the next documents of the feeds that have yet to begin. A store or a bus that does not work is
    /// waited for.
    pub(super) async fn start_feeds(&mut self) -> Result<(), Interruption> {
        let mut waits = 0;
        while let Err(error) = self.start_feeds_step().await {
            if !error.may_heal() {
                let reason = format!("its history could not begin with the documents there are: {error}");
                return Err(Interruption::Halt(crate::status::Activity::Halted, reason));
            }
            waits += 1;
            self.later(&error.to_string(), waits).await?;
        }
        if waits > 0 {
            self.show_activity(crate::status::Activity::Running, None);
        }
        // Other tasks have their turn too.
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn start_feeds_step(&mut self) -> Result<(), ProjectionError> {
        let store = &*self.context.store;
        let Some(start) = self.feed_starts.left.front_mut() else { return Ok(()) };
        let now = self.context.clock.wall_ms();
        let progress = start.progress.get_or_insert_with(|| FeedProgress {
            from: store.durable_end(&start.feed),
            began_ms: now,
            since: now,
            after: None,
        });
        let docs = store.docs_by_key(&start.collection, progress.after.as_deref(), PAGE).await?;
        let Some(last) = docs.last().map(|doc| doc.key.clone()) else {
            FeedRow::new(progress.from, Some(progress.since)).write(store, &start.feed).await?;
            info!(projector = %self.projector.name, feed = %start.feed, "history begins with the documents there are");
            self.feed_starts.left.pop_front();
            return Ok(());
        };
        let event = |doc: &Doc| first_event(&start.feed, &self.projector.topic, progress.began_ms, doc);
        let events = docs.iter().map(event).collect();
        for result in self.follower.publish_each(events).await {
            match result {
                // Published by this start before, in a try that failed later.
                Ok(_) | Err(BusError::IdConflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        progress.since = docs.iter().map(|doc| doc.ts).fold(progress.since, i64::max);
        progress.after = Some(last);
        Ok(())
    }
}

/// The event of a document that was there before its feed.
fn first_event(feed: &TopicName, topic: &TopicName, began_ms: i64, doc: &Doc) -> Publish<'static> {
    let mut name = feed.as_str().as_bytes().to_vec();
    name.push(0);
    name.extend_from_slice(doc.key.as_bytes());
    name.push(0);
    name.extend_from_slice(&began_ms.to_be_bytes());
    let event = Publish::new(feed.clone(), doc.body.clone())
        .id(EventId::derive(b"first", &name))
        .key(doc.key.clone())
        .ts(doc.ts)
        .header(SOURCE_TOPIC_HEADER, topic.as_str());
    match source_offset(doc) {
        Some(offset) => event.header(SOURCE_OFFSET_HEADER, offset.to_string()),
        None => event,
    }
}
