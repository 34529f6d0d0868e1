//! The events of one key, from the newest back.

use promethean_model::{Offset, OffsetRange, TopicName};
use promethean_store::port::{Store, StoredEvent};

use super::reducer::Reducer;
use crate::error::ProjectionError;

/// Events of a key that are folded for one answer, at most.
pub const FOLDED_EVENTS_MAX: usize = 100_000;
/// Their bytes, at most.
pub const FOLDED_BYTES_MAX: usize = 256 << 20;
/// Events of a key that are looked at for one answer, at most.
const LOOKED_AT_MAX: usize = 1_000_000;
/// The first page is small: most questions are about the present.
const PAGE_FIRST: usize = 8;
/// So many of the largest events still fit into memory.
const PAGE_MAX: usize = 256;
/// A page of more bytes than this is followed by a shorter one.
const PAGE_BYTES: usize = 1 << 20;

/// Reads in pages whose cost depends on the key's events alone.
pub(crate) struct Backward<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) topic: &'a TopicName,
    pub(crate) key: &'a str,
    left: OffsetRange,
    limit: usize,
    looked_at: usize,
}

impl<'a> Backward<'a> {
    pub(crate) fn new(store: &'a dyn Store, topic: &'a TopicName, key: &'a str, range: OffsetRange) -> Self {
        Self { store, topic, key, left: range, limit: PAGE_FIRST, looked_at: 0 }
    }

    /// The next older events, newest first; empty when there are none left.
    pub(crate) async fn next_page(&mut self) -> Result<Vec<StoredEvent>, ProjectionError> {
        if self.left.is_empty() {
            return Ok(Vec::new());
        }
        let mut page = self.store.key_history(self.topic, self.key, self.left, self.limit).await?;
        self.left.end = page.first().map_or(self.left.start, |oldest| oldest.offset);
        self.looked_at += page.len();
        if self.looked_at > LOOKED_AT_MAX {
            return Err(ProjectionError::TooLarge {
                what: format!("the history of key `{}` of topic `{}`, in events", self.key, self.topic),
                max: LOOKED_AT_MAX,
                fix: "ask for a later time",
            });
        }
        let bytes: usize = page.iter().map(StoredEvent::bytes).sum();
        self.limit = if bytes > PAGE_BYTES { PAGE_FIRST } else { (self.limit * 4).min(PAGE_MAX) };
        page.reverse();
        Ok(page)
    }
}

/// What is to be folded.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    /// In offset order.
    pub(crate) events: Vec<StoredEvent>,
    /// Whether the first of them begins the state, so that nothing before it matters.
    pub(crate) begun: bool,
}

/// The key's events in a range whose `ts` is not after `at`, back to where its state begins.
pub(crate) async fn needed(
    mut back: Backward<'_>,
    at: i64,
    reducer: &Reducer,
) -> Result<Needed, ProjectionError> {
    let mut needed = Needed::default();
    let mut bytes = 0;
    'pages: loop {
        let page = back.next_page().await?;
        if page.is_empty() {
            break;
        }
        for event in page.into_iter().filter(|event| event.ts <= at) {
            bytes += event.bytes();
            needed.begun = reducer.begins_at(&event);
            needed.events.push(event);
            if needed.begun {
                break 'pages;
            }
            if needed.events.len() > FOLDED_EVENTS_MAX || bytes > FOLDED_BYTES_MAX {
                return Err(too_large(&back, needed.events.len()));
            }
        }
    }
    needed.events.reverse();
    Ok(needed)
}

fn too_large(back: &Backward<'_>, events: usize) -> ProjectionError {
    let of = format!("of key `{}` of topic `{}`", back.key, back.topic);
    let (what, max) = if events > FOLDED_EVENTS_MAX {
        (format!("what is to be folded {of}, in events,"), FOLDED_EVENTS_MAX)
    } else {
        (format!("what is to be folded {of}, in bytes,"), FOLDED_BYTES_MAX)
    };
    let fix = "let a compactor with the same reducer write snapshots of the topic, which shorten the fold";
    ProjectionError::TooLarge { what, max, fix }
}

/// Everything below the durable end.
pub(crate) fn all_below(end: Offset) -> OffsetRange {
    OffsetRange::new(Offset::ZERO, end)
}
