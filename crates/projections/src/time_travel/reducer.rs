//! How the state of a key follows from its events.

use std::slice;

use promethean_bus::user_event;
use promethean_jq::{Caps, Pool, Program, RunError};
use promethean_store::port::StoredEvent;
use serde_json::value::RawValue;

use super::merge::Document;
use crate::error::ProjectionError;

/// Events folded before others get their turn.
const CHUNK: usize = 64;

/// How the state of a key follows from its events, in offset order. A tombstone ends the state whatever the reducer: the
/// next event begins anew.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Reducer {
    /// The payload of the last event.
    #[default]
    Latest,
    /// Each payload is a JSON merge patch (RFC 7386) of what there was.
    Merge,
    /// A program whose input is `{"state": ..., "event": ...}` and whose output is the next state. `null` is no state.
    Jq(Program),
}

impl Reducer {
    /// What names it in snapshots: `latest`, `merge`, or `jq:` and a hash of the program's text.
    pub fn label(&self) -> String {
        match self {
            Self::Latest => "latest".to_owned(),
            Self::Merge => "merge".to_owned(),
            Self::Jq(program) => format!("jq:{:016x}", xxhash_rust::xxh3::xxh3_64(program.text().as_bytes())),
        }
    }

    /// Whether the state after an event is the same whatever came before it.
    pub(crate) fn begins_at(&self, event: &StoredEvent) -> bool {
        match self {
            Self::Latest => true,
            Self::Merge => !event.payload().starts_with(b"{"),
            Self::Jq(_) => event.is_tombstone(),
        }
    }

    /// The state after events of one key; `None` is no state.
    pub(crate) async fn fold(
        &self,
        pool: &Pool,
        before: Option<Box<RawValue>>,
        events: &[StoredEvent],
    ) -> Result<Option<Box<RawValue>>, ProjectionError> {
        let (before, events) = since_tombstone(before, events);
        match self {
            Self::Latest => events.last().map_or(Ok(before), |event| payload(event).map(Some)),
            Self::Merge => merge(before, events).await,
            Self::Jq(program) => run(pool, program, before, events).await,
        }
    }
}

/// Nothing before a tombstone matters after it.
fn since_tombstone(
    before: Option<Box<RawValue>>,
    events: &[StoredEvent],
) -> (Option<Box<RawValue>>, &[StoredEvent]) {
    match events.iter().rposition(StoredEvent::is_tombstone) {
        Some(at) => (None, events.get(at + 1..).unwrap_or_default()),
        None => (before, events),
    }
}

async fn merge(
    before: Option<Box<RawValue>>,
    events: &[StoredEvent],
) -> Result<Option<Box<RawValue>>, ProjectionError> {
    let unreadable = |error: serde_json::Error| failed(events, error.to_string());
    let mut state = before.map(|text| Document::read(&text)).transpose().map_err(unreadable)?;
    for chunk in events.chunks(CHUNK) {
        for event in chunk {
            state = Some(Document::patched(state, &payload(event)?).map_err(unreadable)?);
        }
        tokio::task::yield_now().await;
    }
    state.map(|state| state.text()).transpose().map_err(unreadable)
}

async fn run(
    pool: &Pool,
    program: &Program,
    before: Option<Box<RawValue>>,
    events: &[StoredEvent],
) -> Result<Option<Box<RawValue>>, ProjectionError> {
    let mut state = before.map_or_else(|| "null".to_owned(), |text| text.get().to_owned());
    for chunk in events.chunks(CHUNK) {
        state = step(pool, program, state, chunk).await?;
    }
    let text = RawValue::from_string(state).map_err(|error| failed(events, error.to_string()))?;
    Ok(Some(text).filter(|text| text.get() != "null"))
}

/// A failure names its event: those before it are run again by themselves, since a fold does not say how far it came.
async fn step(
    pool: &Pool,
    program: &Program,
    before: String,
    events: &[StoredEvent],
) -> Result<String, ProjectionError> {
    let texts = events.iter().map(event_json).collect::<Result<Vec<_>, _>>()?;
    let error = match program.fold(pool, before.clone(), texts.clone(), Caps::default()).await {
        Ok(state) => return Ok(state),
        Err(error) => error,
    };
    let mut state = before;
    if !matches!(error, RunError::Stuck | RunError::NoThread | RunError::Busy) {
        for (event, text) in events.iter().zip(texts) {
            match program.fold(pool, state, vec![text], Caps::default()).await {
                Ok(next) => state = next,
                Err(error) => return Err(failed(slice::from_ref(event), error.to_string())),
            }
        }
    }
    Err(failed(events, error.to_string()))
}

/// The event as users see it.
pub(crate) fn event_json(event: &StoredEvent) -> Result<String, ProjectionError> {
    serde_json::to_string(&user_event(event)?)
        .map_err(|error| failed(slice::from_ref(event), error.to_string()))
}

pub(crate) fn payload(event: &StoredEvent) -> Result<Box<RawValue>, ProjectionError> {
    let text =
        str::from_utf8(event.payload()).map_err(|error| failed(slice::from_ref(event), error.to_string()))?;
    RawValue::from_string(text.to_owned()).map_err(|error| failed(slice::from_ref(event), error.to_string()))
}

/// At the first of some events.
fn failed(events: &[StoredEvent], reason: String) -> ProjectionError {
    match events.first() {
        Some(event) => {
            ProjectionError::ReducerFailed { topic: event.topic.clone(), offset: event.offset.get(), reason }
        }
        None => ProjectionError::BadDeclaration { what: "the state of a snapshot".to_owned(), reason },
    }
}
