//! The changes of a page of events, folded into documents before anything is written.

use std::collections::HashMap;

use promethean_bus::StoredEvent;
use promethean_bus::publish::Publish;
use promethean_model::{CollectionName, EventId, GroupName, TopicName};
use promethean_store::port::{DocOp, DocPut, Expect, ReadError, StateOp, Store};

use crate::change::{Change, Emit};
use crate::document::{Draft, Source};
use crate::target::Target;

/// The header that names the topic of the event that changed a document.
pub(crate) const SOURCE_TOPIC_HEADER: &str = "x-source-topic";
/// The header that says where in it that event is.
pub(crate) const SOURCE_OFFSET_HEADER: &str = "x-source-offset";

type Place = (CollectionName, String);

/// Documents that events have met, as those events leave them.
pub(crate) struct Drafts<'a> {
    store: &'a dyn Store,
    target: &'a Target,
    projector: &'a GroupName,
    /// Whether events are published, as they are not in a rebuild.
    publishes: bool,
    docs: HashMap<Place, Held>,
}

struct Held {
    draft: Option<Draft>,
    written: bool,
}

/// Why an event could not be folded.
pub(crate) enum FoldError {
    /// The event is at fault.
    Event(String),
    /// The store is.
    Store(ReadError),
}

impl From<ReadError> for FoldError {
    fn from(error: ReadError) -> Self {
        Self::Store(error)
    }
}

impl From<String> for FoldError {
    fn from(reason: String) -> Self {
        Self::Event(reason)
    }
}

impl<'a> Drafts<'a> {
    pub(crate) fn new(
        store: &'a dyn Store,
        target: &'a Target,
        projector: &'a GroupName,
        publishes: bool,
    ) -> Self {
        Self { store, target, projector, publishes, docs: HashMap::new() }
    }

    /// Folds the changes of one event, all or none; what is to be published for it.
    pub(crate) async fn fold(
        &mut self,
        event: &StoredEvent,
        changes: &[Change],
    ) -> Result<Vec<Publish<'static>>, FoldError> {
        let source = Source { ts: event.ts, offset: event.offset.get() };
        let mut staged: Vec<(Place, Option<Draft>)> = Vec::new();
        let mut emits = Vec::new();
        for change in changes {
            match change {
                Change::Upsert(upsert) => {
                    let place = self.load(&upsert.collection, &upsert.key).await?;
                    let before =
                        staged.iter().rev().find(|(other, _)| *other == place).map(|(_, draft)| draft);
                    let before = before.unwrap_or_else(|| self.draft(&place)).as_ref();
                    if let Some(after) = Draft::upsert(before, upsert, source)? {
                        staged.push((place, Some(after)));
                    }
                }
                Change::Delete(removal) => {
                    let place = self.load(&removal.collection, &removal.key).await?;
                    staged.push((place, None));
                }
                Change::Publish(emit) => emits.push(emit),
            }
        }
        let mut published = Vec::new();
        if self.publishes {
            for (n, emit) in (0_u32..).zip(emits) {
                published.push(self.emitted(event, n, emit.clone()));
            }
            self.announce(event, &staged, &mut published)?;
        }
        self.keep(staged)?;
        Ok(published)
    }

    /// What is to be written.
    pub(crate) fn into_ops(self) -> Result<Vec<StateOp>, String> {
        let mut ops = Vec::with_capacity(self.docs.len());
        for ((name, key), held) in self.docs {
            if !held.written {
                continue;
            }
            let collection = self.target.find(&name)?.stored_as.clone();
            ops.push(match held.draft {
                None => DocOp::Delete { collection, key, expect: Expect::Any }.into(),
                Some(draft) => {
                    let body = draft.body(&key)?;
                    let (ts, version) = (draft.ts, draft.version);
                    DocPut { collection, key, ts, version, body, expect: Expect::Any }.into()
                }
            });
        }
        Ok(ops)
    }

    fn draft(&self, place: &Place) -> &Option<Draft> {
        self.docs.get(place).map_or(&None, |held| &held.draft)
    }

    /// Makes sure that the document is at hand.
    async fn load(&mut self, collection: &CollectionName, key: &str) -> Result<Place, FoldError> {
        let place = (collection.clone(), key.to_owned());
        if !self.docs.contains_key(&place) {
            if key.is_empty() {
                return Err(FoldError::Event(
                    "a change of a document with an empty key; give it one".to_owned(),
                ));
            }
            let stored_as = &self.target.find(collection)?.stored_as;
            let doc = self.store.doc(stored_as, key).await?;
            let draft = doc.as_ref().map(Draft::read).transpose()?;
            self.docs.insert(place.clone(), Held { draft, written: false });
        }
        Ok(place)
    }

    fn keep(&mut self, staged: Vec<(Place, Option<Draft>)>) -> Result<(), String> {
        for ((_, key), draft) in &staged {
            if let Some(draft) = draft {
                // Refused now, while it is known which event is at fault.
                draft.body(key)?;
            }
        }
        for (place, draft) in staged {
            self.docs.insert(place, Held { draft, written: true });
        }
        Ok(())
    }

    fn emitted(&self, event: &StoredEvent, n: u32, emit: Emit) -> Publish<'static> {
        let id = derived_id(b"projected", self.projector, event, &n.to_be_bytes());
        emit.into_event(id).caused_by(vec![event.id])
    }

    /// Adds what the feeds of the collections say of an event: each document as the event leaves it.
    fn announce(
        &self,
        event: &StoredEvent,
        staged: &[(Place, Option<Draft>)],
        published: &mut Vec<Publish<'static>>,
    ) -> Result<(), String> {
        for (at, (place, draft)) in staged.iter().enumerate() {
            let (collection, key) = place;
            let Some(feed) = &self.target.find(collection)?.feed else { continue };
            let changed_again = staged.iter().skip(at + 1).any(|(other, _)| other == place);
            if changed_again || draft == self.draft(place) {
                continue;
            }
            let payload = draft.as_ref().map_or_else(|| Ok("null".to_owned()), |draft| draft.body(key))?;
            let mut name = collection.as_str().as_bytes().to_vec();
            name.push(0);
            name.extend_from_slice(key.as_bytes());
            let id = derived_id(b"changed", self.projector, event, &name);
            published.push(changed(feed.clone(), id, event, key, payload));
        }
        Ok(())
    }
}

fn changed(
    feed: TopicName,
    id: EventId,
    event: &StoredEvent,
    key: &str,
    payload: String,
) -> Publish<'static> {
    Publish::new(feed, payload)
        .id(id)
        .key(key)
        .ts(event.ts)
        .caused_by(vec![event.id])
        .header(SOURCE_TOPIC_HEADER, event.topic.as_str())
        .header(SOURCE_OFFSET_HEADER, event.offset.to_string())
}

/// The same for the same event however often it is projected.
fn derived_id(kind: &[u8], projector: &GroupName, event: &StoredEvent, which: &[u8]) -> EventId {
    let mut name = Vec::with_capacity(64);
    name.extend_from_slice(projector.as_str().as_bytes());
    name.push(0);
    name.extend_from_slice(event.topic.as_str().as_bytes());
    name.push(0);
    name.extend_from_slice(&event.offset.get().to_be_bytes());
    // A topic that was deleted and born again has other events at its offsets.
    name.extend_from_slice(event.id.as_bytes());
    name.extend_from_slice(which);
    EventId::derive(kind, &name)
}
