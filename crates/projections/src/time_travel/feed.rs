//! A whole collection at any time, and its differences between two times, from its changefeed.
//!
//! While the feed is read only the offset of each document is kept. The documents of a page are read
//! afterwards.

use std::collections::BTreeMap;

use promethean_model::{CollectionName, Offset, TopicName};
use promethean_store::port::{PageLimit, Store, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{FeedRow, payload};
use crate::error::ProjectionError;
use crate::projections::Projections;

/// The most documents that are told apart for one answer.
pub const KEYS_MAX: usize = 1_000_000;
/// The most bytes of their keys.
pub const KEY_BYTES_MAX: usize = 64 << 20;
/// The bytes of documents after which a page ends; it has at least one document.
const PAGE_BYTES: usize = 8 << 20;
/// The page of the feed that is read at once.
const READ: PageLimit = PageLimit { events: 1000, bytes: 1 << 20 };

const NOT_BEGUN: &str = "the topic was deleted, or the documents there are are still being written to it; history begins again when the server starts";
const BEGUN_LATER: &str = "ask for a later time: the collection keeps its history since then";

/// The page of an answer that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPage<'a> {
    /// The key after which the page begins.
    pub after: Option<&'a str>,
    /// The most documents of the page.
    pub limit: usize,
}

/// A document at some time.
#[derive(Debug, Clone, Serialize)]
pub struct DocumentAt {
    /// Its key.
    pub key: String,
    /// The whole document.
    pub document: Box<RawValue>,
    /// The `ts` of the event that wrote it.
    pub ts: i64,
}

/// Documents by key.
#[derive(Debug, Clone, Serialize)]
pub struct CollectionAt {
    /// The documents.
    pub documents: Vec<DocumentAt>,
    /// The key to go on after, if there are more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How a document differs between two times.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// It was not there before.
    Added {
        /// Its key.
        key: String,
        /// The document.
        after: Box<RawValue>,
    },
    /// It is not there any more.
    Removed {
        /// Its key.
        key: String,
        /// The document.
        before: Box<RawValue>,
    },
    /// It is different.
    Changed {
        /// Its key.
        key: String,
        /// The document at the earlier time.
        before: Box<RawValue>,
        /// The document at the later time.
        after: Box<RawValue>,
    },
}

/// Differences by key.
#[derive(Debug, Clone, Serialize)]
pub struct Differences {
    /// The differences.
    pub differences: Vec<Difference>,
    /// The key to go on after, if there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Projections {
    /// The documents of a collection at a time, by key. The collection must keep its history.
    pub async fn collection_at(
        &self,
        collection: &CollectionName,
        at: i64,
        page: KeyPage<'_>,
    ) -> Result<CollectionAt, ProjectionError> {
        let (feed, from) = self.whole_feed(collection, at).await?;
        documents_at(&*self.inner.context.store, &feed, from, at, page).await
    }

    /// The differences between a collection at one time and at another, by key. The collection must keep its
    /// history.
    pub async fn difference(
        &self,
        collection: &CollectionName,
        before: i64,
        after: i64,
        page: KeyPage<'_>,
    ) -> Result<Differences, ProjectionError> {
        let (feed, from) = self.whole_feed(collection, before.min(after)).await?;
        differences(&*self.inner.context.store, &feed, from, before, after, page).await
    }

    /// The feed of a collection, and its first offset that counts. Fails if the feed does not have every change
    /// up to this time.
    async fn whole_feed(
        &self,
        collection: &CollectionName,
        at: i64,
    ) -> Result<(TopicName, Offset), ProjectionError> {
        self.collection(collection).await?;
        let feed = self.feed_of(collection)?;
        let store = &*self.inner.context.store;
        let row = FeedRow::read(store, &feed).await?;
        let gone = |earliest, fix| Err(ProjectionError::HistoryGone { topic: feed.clone(), earliest, fix });
        match row.filter(|row| Offset(row.from) <= store.durable_end(&feed)) {
            None => gone(None, NOT_BEGUN),
            Some(FeedRow { since: Some(since), .. }) if at < since => gone(Some(since), BEGUN_LATER),
            Some(row) => Ok((feed, Offset(row.from))),
        }
    }
}

/// Reads the documents of a collection at a time from its whole feed. A feed that does not exist has no
/// documents.
pub async fn collection_at(
    store: &dyn Store,
    feed: &TopicName,
    at: i64,
    page: KeyPage<'_>,
) -> Result<CollectionAt, ProjectionError> {
    documents_at(store, feed, Offset::ZERO, at, page).await
}

async fn documents_at(
    store: &dyn Store,
    feed: &TopicName,
    from: Offset,
    at: i64,
    page: KeyPage<'_>,
) -> Result<CollectionAt, ProjectionError> {
    let mut answer = CollectionAt { documents: Vec::new(), next: None };
    let mut room = PageRoom::new(page);
    for (key, [offset]) in offsets(store, feed, from, [at], page.after).await? {
        let Some(offset) = offset else { continue };
        if room.is_full() {
            answer.next = answer.documents.last().map(|last| last.key.clone());
            break;
        }
        let event = document(store, feed, offset).await?;
        room.take(event.bytes());
        answer.documents.push(DocumentAt { key, document: payload(&event)?, ts: event.ts });
    }
    Ok(answer)
}

/// Reads the differences between a collection at one time and at another from its whole feed. Documents with
/// the same text do not differ.
pub async fn difference(
    store: &dyn Store,
    feed: &TopicName,
    before: i64,
    after: i64,
    page: KeyPage<'_>,
) -> Result<Differences, ProjectionError> {
    differences(store, feed, Offset::ZERO, before, after, page).await
}

async fn differences(
    store: &dyn Store,
    feed: &TopicName,
    from: Offset,
    before: i64,
    after: i64,
    page: KeyPage<'_>,
) -> Result<Differences, ProjectionError> {
    let mut answer = Differences { differences: Vec::new(), next: None };
    let mut room = PageRoom::new(page);
    let mut last = None;
    for (key, [then, now]) in offsets(store, feed, from, [before, after], page.after).await? {
        if then == now {
            continue;
        }
        if room.is_full() {
            answer.next = last;
            break;
        }
        let (before, after) = (text(store, feed, then).await?, text(store, feed, now).await?);
        let bytes = [&before, &after].into_iter().flatten().map(|text| text.get().len()).sum();
        last = Some(key.clone());
        let difference = match (before, after) {
            (None, Some(after)) => Difference::Added { key, after },
            (Some(before), None) => Difference::Removed { key, before },
            (Some(before), Some(after)) if before.get() != after.get() => {
                Difference::Changed { key, before, after }
            }
            _ => continue,
        };
        room.take(bytes);
        answer.differences.push(difference);
    }
    Ok(answer)
}

/// The room that is left in a page.
struct PageRoom {
    left: usize,
    bytes: usize,
}

impl PageRoom {
    fn new(page: KeyPage<'_>) -> Self {
        Self { left: page.limit.max(1), bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.left == 0 || self.bytes >= PAGE_BYTES
    }

    fn take(&mut self, bytes: usize) {
        self.left -= 1;
        self.bytes += bytes;
    }
}

/// The offsets of the documents at each of some times, by key.
async fn offsets<const N: usize>(
    store: &dyn Store,
    feed: &TopicName,
    from: Offset,
    at: [i64; N],
    after: Option<&str>,
) -> Result<BTreeMap<String, [Option<Offset>; N]>, ProjectionError> {
    let compacted = store.settings(feed).await?.is_some_and(|settings| settings.compacted);
    let first = at.into_iter().min().unwrap_or(i64::MAX);
    let mut found: BTreeMap<String, [Option<Offset>; N]> = BTreeMap::new();
    let (mut next, end) = (from, store.durable_end(feed));
    let (mut key_bytes, mut newest) = (0, i64::MIN);
    while next < end {
        let page = store.read(feed, next, READ).await?;
        if page.expired > 0 {
            let earliest = page.events.first().map(|event| event.ts);
            return Err(gone(feed, earliest));
        }
        for event in page.events.iter().filter(|event| event.offset < end) {
            newest = newest.max(event.ts);
            let Some(key) = event.key().filter(|key| after.is_none_or(|after| *key > after)) else {
                continue;
            };
            let offset = (!event.is_tombstone()).then_some(event.offset);
            if at.iter().all(|at| event.ts > *at) {
                continue;
            }
            if !found.contains_key(key) {
                key_bytes += key.len();
                check_size(feed, found.len() + 1, key_bytes)?;
                found.insert(key.to_owned(), [None; N]);
            }
            for (slot, at) in found.get_mut(key).into_iter().flatten().zip(at) {
                if event.ts <= at {
                    *slot = offset;
                }
            }
        }
        if page.next <= next {
            // The feed was deleted meanwhile.
            break;
        }
        next = page.next;
    }
    // Compaction may have removed the event that was wanted, for the sake of one after the time asked for.
    if compacted && newest > first { Err(gone(feed, Some(newest))) } else { Ok(found) }
}

fn check_size(feed: &TopicName, keys: usize, bytes: usize) -> Result<(), ProjectionError> {
    let fix = "ask for single keys of the feed instead";
    if keys > KEYS_MAX {
        let what = format!("the number of documents in `{feed}`");
        return Err(ProjectionError::TooLarge { what, max: KEYS_MAX, fix });
    }
    if bytes > KEY_BYTES_MAX {
        let what = format!("the size in bytes of all keys in `{feed}`");
        return Err(ProjectionError::TooLarge { what, max: KEY_BYTES_MAX, fix });
    }
    Ok(())
}

/// The text of the document at an offset of the feed.
async fn text(
    store: &dyn Store,
    feed: &TopicName,
    offset: Option<Offset>,
) -> Result<Option<Box<RawValue>>, ProjectionError> {
    match offset {
        Some(offset) => payload(&document(store, feed, offset).await?).map(Some),
        None => Ok(None),
    }
}

async fn document(
    store: &dyn Store,
    feed: &TopicName,
    offset: Offset,
) -> Result<StoredEvent, ProjectionError> {
    let page = store.read(feed, offset, PageLimit { events: 1, ..READ }).await?;
    let earliest = page.events.first().map(|event| event.ts);
    let there = page.events.into_iter().find(|event| event.offset == offset);
    there.ok_or_else(|| gone(feed, earliest))
}

fn gone(feed: &TopicName, earliest: Option<i64>) -> ProjectionError {
    let fix = "keep the whole feed: set no retention for it, and do not compact it";
    ProjectionError::HistoryGone { topic: feed.clone(), earliest, fix }
}
