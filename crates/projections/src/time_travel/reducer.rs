//! Reducers: how the state of a key follows from its events.

use std::collections::BTreeMap;
use std::slice;

use promethean_bus::user_event;
use promethean_jq::{Caps, Pool, Program, RunError};
use promethean_store::port::StoredEvent;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::ProjectionError;

/// Events folded before other tasks have their turn.
const CHUNK: usize = 64;

/// How the state of a key follows from its events, in offset order. With every reducer a tombstone ends the
/// state, and the next event begins a new one.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Reducer {
    /// The payload of the last event.
    #[default]
    Latest,
    /// Each payload is a JSON merge patch (RFC 7386) of the state before it.
    Merge,
    /// A program whose input is `{"state": ..., "event": ...}` and whose output is the next state. `null` is
    /// no state.
    Jq(Program),
}

impl Reducer {
    /// Its name in snapshots: `latest`, `merge`, or `jq:` and a hash of the program's text.
    pub fn label(&self) -> String {
        match self {
            Self::Latest => "latest".to_owned(),
            Self::Merge => "merge".to_owned(),
            Self::Jq(program) => format!("jq:{:016x}", xxhash_rust::xxh3::xxh3_64(program.text().as_bytes())),
        }
    }

    /// Whether the state after an event does not depend on the events before it.
    pub(crate) fn begins_at(&self, event: &StoredEvent) -> bool {
        match self {
            Self::Latest => true,
            Self::Merge => !event.payload().starts_with(b"{"),
            Self::Jq(_) => event.is_tombstone(),
        }
    }

    /// Folds events of one key; `None` is no state.
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

/// Leaves out what is before the last tombstone, which does not matter after it.
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
    let mut state = before.map(|text| MergeDoc::read(&text)).transpose().map_err(unreadable)?;
    for chunk in events.chunks(CHUNK) {
        for event in chunk {
            state = Some(MergeDoc::patched(state, &payload(event)?).map_err(unreadable)?);
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

/// Folds a chunk. If that fails, the events are folded again one by one, so that the error names the event: a
/// fold does not say how far it came.
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

/// The payload of an event as JSON text.
pub(crate) fn payload(event: &StoredEvent) -> Result<Box<RawValue>, ProjectionError> {
    let text =
        str::from_utf8(event.payload()).map_err(|error| failed(slice::from_ref(event), error.to_string()))?;
    RawValue::from_string(text.to_owned()).map_err(|error| failed(slice::from_ref(event), error.to_string()))
}

/// The error for the first of some events.
fn failed(events: &[StoredEvent], reason: String) -> ProjectionError {
    match events.first() {
        Some(event) => {
            ProjectionError::ReducerFailed { topic: event.topic.clone(), offset: event.offset.get(), reason }
        }
        None => ProjectionError::BadDeclaration { what: "the state of a snapshot".to_owned(), reason },
    }
}

/// A state that JSON merge patches (RFC 7386) are applied to.
///
/// Values that a patch does not look into keep their text, so numbers stay as they were written. Names come
/// out sorted: the same events give the same bytes whether they are folded at once or from a snapshot on.
#[derive(Debug)]
enum MergeDoc {
    Object(BTreeMap<String, Self>),
    Other(Box<RawValue>),
}

impl MergeDoc {
    /// Applies a patch to a document, or to nothing. A `null` at the top is a tombstone, which the caller
    /// deals with.
    fn patched(before: Option<Self>, patch: &RawValue) -> serde_json::Result<Self> {
        if !patch.get().starts_with('{') {
            return Ok(Self::Other(patch.to_owned()));
        }
        let mut members = match before {
            Some(Self::Object(members)) => members,
            _ => BTreeMap::new(),
        };
        for (name, value) in serde_json::from_str::<BTreeMap<String, &RawValue>>(patch.get())? {
            let before = members.remove(&name);
            if value.get() != "null" {
                members.insert(name, Self::patched(before, value)?);
            }
        }
        Ok(Self::Object(members))
    }

    /// Reads the text that [`MergeDoc::text`] wrote.
    fn read(text: &RawValue) -> serde_json::Result<Self> {
        if !text.get().starts_with('{') {
            return Ok(Self::Other(text.to_owned()));
        }
        let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(text.get())?;
        let read = |(name, value)| Self::read(value).map(|value| (name, value));
        members.into_iter().map(read).collect::<Result<_, _>>().map(Self::Object)
    }

    fn text(&self) -> serde_json::Result<Box<RawValue>> {
        serde_json::value::to_raw_value(self)
    }
}

impl Serialize for MergeDoc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object(members) => serializer.collect_map(members),
            Self::Other(text) => text.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(target: &str, patch: &str) -> String {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let target = MergeDoc::read(&raw(target)).unwrap();
        MergeDoc::patched(Some(target), &raw(patch)).unwrap().text().unwrap().get().to_owned()
    }

    #[test]
    fn the_examples_of_the_rfc() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            (r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            (r#"{}"#, r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merge(target, patch), result, "{target} with {patch}");
        }
    }

    #[test]
    fn numbers_stay_as_they_were_written() {
        assert_eq!(
            merge(r#"{"a":1.50,"b":123456789012345678901234567890}"#, r#"{"c":{"d":1e2}}"#),
            r#"{"a":1.50,"b":123456789012345678901234567890,"c":{"d":1e2}}"#
        );
    }
}
