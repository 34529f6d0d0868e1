//! The events of one key, read from the newest back.

use promethean_model::{Offset, OffsetRange, TopicName};
use promethean_store::port::{Store, StoredEvent};

use super::reducer::Reducer;
use crate::error::ProjectionError;

/// The most events of a key that are folded for one answer.
pub const FOLDED_EVENTS_MAX: usize = 100_000;
/// The most bytes of events that are folded for one answer.
pub const FOLDED_BYTES_MAX: usize = 256 << 20;
/// The most events of a key that are read for one answer.
const LOOKED_AT_MAX: usize = 1_000_000;
/// Events of the first page: few, since most questions are about the present.
const PAGE_FIRST: usize = 8;
/// The most events of a page: so many of the largest events still fit into memory.
const PAGE_MAX: usize = 256;
/// The bytes of a page after which the next page is short again.
const PAGE_BYTES: usize = 1 << 20;

/// Reads the events of a key in pages, newest first. The cost depends on the key's events alone.
pub(crate) struct KeyHistory<'a> {
    store: &'a dyn Store,
    topic: &'a TopicName,
    key: &'a str,
    left: OffsetRange,
    limit: usize,
    looked_at: usize,
}

impl<'a> KeyHistory<'a> {
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

/// The events of a key that a fold needs.
#[derive(Debug, Default)]
pub(crate) struct FoldInput {
    /// In offset order.
    pub(crate) events: Vec<StoredEvent>,
    /// Whether the state begins with the first of them, so that no event before it matters.
    pub(crate) begun: bool,
}

/// Reads the key's events with `ts` at or before `at`, back to where its state begins.
pub(crate) async fn fold_input(
    mut history: KeyHistory<'_>,
    at: i64,
    reducer: &Reducer,
) -> Result<FoldInput, ProjectionError> {
    let mut input = FoldInput::default();
    let mut bytes = 0;
    'pages: loop {
        let page = history.next_page().await?;
        if page.is_empty() {
            break;
        }
        for event in page.into_iter().filter(|event| event.ts <= at) {
            bytes += event.bytes();
            input.begun = reducer.begins_at(&event);
            input.events.push(event);
            if input.begun {
                break 'pages;
            }
            if input.events.len() > FOLDED_EVENTS_MAX || bytes > FOLDED_BYTES_MAX {
                return Err(too_large(&history, input.events.len()));
            }
        }
    }
    input.events.reverse();
    Ok(input)
}

fn too_large(history: &KeyHistory<'_>, events: usize) -> ProjectionError {
    let of = format!("of key `{}` of topic `{}`", history.key, history.topic);
    let (what, max) = if events > FOLDED_EVENTS_MAX {
        (format!("the number of events to fold {of}"), FOLDED_EVENTS_MAX)
    } else {
        (format!("the size in bytes of the events to fold {of}"), FOLDED_BYTES_MAX)
    };
    let fix = "let a compactor with the same reducer write snapshots of the topic, which shorten the fold";
    ProjectionError::TooLarge { what, max, fix }
}

/// All offsets below the durable end.
pub(crate) fn all_below(end: Offset) -> OffsetRange {
    OffsetRange::new(Offset::ZERO, end)
}
