//! A whole collection at any time, and what changed between two, from its changefeed.
//!
//! What is kept while the feed is read is where each document is, not the documents: those of a page are read afterwards.

use std::collections::BTreeMap;

use promethean_model::{Offset, TopicName};
use promethean_store::port::{PageLimit, Store, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;

use super::payload;
use crate::error::ProjectionError;

/// Documents that can be told apart in one answer, at most.
pub const KEYS_MAX: usize = 1_000_000;
/// Bytes of their keys, at most.
pub const KEY_BYTES_MAX: usize = 64 << 20;
/// Bytes of the documents of a page; one is given whatever its size.
const PAGE_BYTES: usize = 8 << 20;
/// Read at once.
const READ: PageLimit = PageLimit { events: 1000, bytes: 1 << 20 };

/// Which part of an answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// Go on after this key.
    pub after: Option<&'a str>,
    /// How many to give, at most.
    pub limit: usize,
}

/// A document at some time.
#[derive(Debug, Clone, Serialize)]
pub struct DocumentAt {
    /// Its key.
    pub key: String,
    /// The whole document.
    pub document: Box<RawValue>,
    /// The `ts` of the event it comes from.
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
    /// It is another.
    Changed {
        /// Its key.
        key: String,
        /// The document then.
        before: Box<RawValue>,
        /// The document now.
        after: Box<RawValue>,
    },
}

/// Differences by key.
#[derive(Debug, Clone, Serialize)]
pub struct Differences {
    /// What differs.
    pub differences: Vec<Difference>,
    /// The key to go on after, if there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The documents of a collection at a time. A feed that does not exist is one without documents.
pub async fn collection_at(
    store: &dyn Store,
    feed: &TopicName,
    at: i64,
    part: Part<'_>,
) -> Result<CollectionAt, ProjectionError> {
    let mut page = CollectionAt { documents: Vec::new(), next: None };
    let mut room = Room::of(part);
    for (key, [place]) in places(store, feed, [at], part.after).await? {
        let Some(offset) = place else { continue };
        if room.is_full() {
            page.next = page.documents.last().map(|last| last.key.clone());
            break;
        }
        let event = document(store, feed, offset).await?;
        room.take(event.bytes());
        page.documents.push(DocumentAt { key, document: payload(&event)?, ts: event.ts });
    }
    Ok(page)
}

/// What differs between a collection at one time and at another. Documents whose text is the same do not.
pub async fn difference(
    store: &dyn Store,
    feed: &TopicName,
    before: i64,
    after: i64,
    part: Part<'_>,
) -> Result<Differences, ProjectionError> {
    let mut page = Differences { differences: Vec::new(), next: None };
    let mut room = Room::of(part);
    let mut last = None;
    for (key, [then, now]) in places(store, feed, [before, after], part.after).await? {
        if then == now {
            continue;
        }
        if room.is_full() {
            page.next = last;
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
        page.differences.push(difference);
    }
    Ok(page)
}

/// What still fits into a page.
struct Room {
    left: usize,
    bytes: usize,
}

impl Room {
    fn of(part: Part<'_>) -> Self {
        Self { left: part.limit.max(1), bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.left == 0 || self.bytes >= PAGE_BYTES
    }

    fn take(&mut self, bytes: usize) {
        self.left -= 1;
        self.bytes += bytes;
    }
}

/// Where the documents at each of some times are, by key.
async fn places<const N: usize>(
    store: &dyn Store,
    feed: &TopicName,
    at: [i64; N],
    after: Option<&str>,
) -> Result<BTreeMap<String, [Option<Offset>; N]>, ProjectionError> {
    let compacted = store.settings(feed).await?.is_some_and(|settings| settings.compacted);
    let first = at.into_iter().min().unwrap_or(i64::MAX);
    let mut found: BTreeMap<String, [Option<Offset>; N]> = BTreeMap::new();
    let (mut next, end) = (Offset::ZERO, store.durable_end(feed));
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
            let place = (!event.is_tombstone()).then_some(event.offset);
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
                    *slot = place;
                }
            }
        }
        if page.next <= next {
            // It was deleted meanwhile.
            break;
        }
        next = page.next;
    }
    // Of a compacted feed an event after the time asked for may have replaced the one that was wanted.
    if compacted && newest > first { Err(gone(feed, Some(newest))) } else { Ok(found) }
}

fn check_size(feed: &TopicName, keys: usize, bytes: usize) -> Result<(), ProjectionError> {
    let fix = "ask for single keys of the feed instead";
    if keys > KEYS_MAX {
        let what = format!("the number of documents in `{feed}`");
        return Err(ProjectionError::TooLarge { what, max: KEYS_MAX, fix });
    }
    if bytes > KEY_BYTES_MAX {
        let what = format!("the length of all keys in `{feed}`, in bytes,");
        return Err(ProjectionError::TooLarge { what, max: KEY_BYTES_MAX, fix });
    }
    Ok(())
}

async fn text(
    store: &dyn Store,
    feed: &TopicName,
    place: Option<Offset>,
) -> Result<Option<Box<RawValue>>, ProjectionError> {
    match place {
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
