//! The changes of a page of events, folded into documents before anything is written.

pub(crate) mod document;

use std::collections::HashMap;

use promethean_bus::StoredEvent;
use promethean_bus::publish::Publish;
use promethean_model::{CollectionName, EventId, GroupName, TopicName};
use promethean_store::port::{DocOp, DocPut, Expect, ReadError, Replaces, StateOp, Store};

use crate::change::{Change, Emit};
use crate::fold::document::{Draft, Source};
use crate::target::Target;

/// The header that names the topic of the event that changed a document.
pub(crate) const SOURCE_TOPIC_HEADER: &str = "x-source-topic";
/// The header that says where in it that event is.
pub(crate) const SOURCE_OFFSET_HEADER: &str = "x-source-offset";

type Place = (CollectionName, String);

/// Documents kept between pages, at most, and bytes of them as they were read or written last.
const KEPT_MAX: usize = 4_096;
const KEPT_BYTES_MAX: usize = 8 << 20;
/// Bytes of the documents of one commit, about; beyond, what is folded so far is committed.
const PAGE_BYTES_MAX: usize = 32 << 20;
/// What a document that is announced takes, about.
const DOC_BYTES_ABOUT: usize = 1 << 10;

/// Documents that the last pages met, as they are stored. Only their projector writes them.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    docs: HashMap<CollectionName, HashMap<String, Held>>,
    count: usize,
    bytes: usize,
}

impl Kept {
    pub(crate) fn is_empty(&self) -> bool {
        self.docs.is_empty()
    }

    fn get_mut(&mut self, collection: &CollectionName, key: &str) -> Option<&mut Held> {
        self.docs.get_mut(collection)?.get_mut(key)
    }

    fn put(&mut self, collection: &CollectionName, key: &str, held: Held) {
        self.count += 1;
        self.bytes += held.bytes;
        match self.docs.get_mut(collection) {
            Some(docs) => _ = docs.insert(key.to_owned(), held),
            None => _ = self.docs.entry(collection.clone()).or_default().insert(key.to_owned(), held),
        }
    }
}

/// Documents that events have met, as those events leave them. After a failure they are to be thrown away: they may be
/// half changed.
pub(crate) struct Drafts<'a> {
    store: &'a dyn Store,
    target: &'a Target,
    projector: &'a GroupName,
    /// Whether events are published, as they are not in a rebuild.
    publishes: bool,
    kept: Kept,
    /// Documents written so far.
    writes: u32,
    /// Bytes that came to documents since they were read, about.
    grown: usize,
}

#[derive(Debug)]
struct Held {
    draft: Option<Draft>,
    /// What the store has, once all that was given to it is committed.
    stored: Replaces,
    /// When it was first written since it was stored, in the order of the page's documents.
    written: Option<u32>,
    bytes: usize,
}

impl Held {
    /// What the store has after the next commit of the document.
    fn after(&self, ts: i64, body: String) -> Replaces {
        let before = if let Replaces::Doc { revision, .. } = self.stored { revision } else { 0 };
        Replaces::Doc { ts, revision: before + 1, body }
    }
}

/// What an event publishes.
#[derive(Default)]
pub(crate) struct Emitted {
    /// By its program.
    pub(crate) events: Vec<Publish<'static>>,
    /// By the collections that keep their history.
    pub(crate) changes: Vec<Publish<'static>>,
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
        kept: Kept,
    ) -> Self {
        Self { store, target, projector, publishes, kept, writes: 0, grown: 0 }
    }

    /// Folds the changes of one event; what is to be published for it.
    pub(crate) async fn fold(
        &mut self,
        event: &StoredEvent,
        changes: Vec<Change>,
    ) -> Result<Emitted, FoldError> {
        let source = Source { ts: event.ts, offset: event.offset.get() };
        let mut emitted = Emitted::default();
        // Documents with a feed, as they were before the event.
        let mut before: Vec<(Place, Option<Draft>)> = Vec::new();
        let mut emits = 0_u32;
        for change in changes {
            let (collection, key) = match &change {
                Change::Upsert(upsert) => (&upsert.collection, &upsert.key),
                Change::Delete(removal) => (&removal.collection, &removal.key),
                Change::Publish(_) => {
                    if let Change::Publish(emit) = change
                        && self.publishes
                    {
                        emitted.events.push(self.emitted(event, emits, emit));
                    }
                    emits += 1;
                    continue;
                }
            };
            let has_feed = self.publishes && self.target.find(collection)?.feed.is_some();
            self.load(collection, key).await?;
            let Some(held) = self.kept.get_mut(collection, key) else { continue };
            if has_feed && !before.iter().any(|((c, k), _)| c == collection && k == key) {
                before.push(((collection.clone(), key.clone()), held.draft.clone()));
            }
            let is_written = match change {
                Change::Upsert(upsert) => Draft::upsert(&mut held.draft, upsert, source)?,
                Change::Delete(removal) if Draft::is_newer(held.draft.as_ref(), removal.version) => false,
                _ => held.draft.take().is_some(),
            };
            if is_written && held.written.is_none() {
                held.written = Some(self.writes);
                self.writes += 1;
            }
            self.grown += event.bytes();
        }
        for (place, before) in before {
            self.announce(event, &place, before.as_ref(), &mut emitted.changes)?;
        }
        self.grown += emitted.changes.len() * DOC_BYTES_ABOUT;
        Ok(emitted)
    }

    /// Whether so much is held that it is time to write it.
    pub(crate) fn is_full(&self) -> bool {
        self.kept.bytes + self.grown > PAGE_BYTES_MAX
    }

    /// What is to be written: what goes first, so that what it had to itself is free; then in the order of the events.
    pub(crate) fn ops(&mut self) -> Result<Vec<StateOp>, String> {
        let mut ops = Vec::new();
        let docs =
            self.kept.docs.iter_mut().flat_map(|(name, docs)| docs.iter_mut().map(move |doc| (name, doc)));
        for (name, (key, held)) in docs {
            let Some(written) = held.written else { continue };
            let (collection, key) = (self.target.find(name)?.stored_as.clone(), key.clone());
            self.kept.bytes -= held.bytes;
            held.bytes = 0;
            let op: StateOp = match &held.draft {
                None => {
                    held.stored = Replaces::Nothing;
                    DocOp::Delete { collection, key, expect: Expect::Any }.into()
                }
                Some(draft) => {
                    let body = draft.body(&key)?;
                    held.bytes = 2 * body.len();
                    let (ts, version) = (draft.ts, draft.version);
                    let after = held.after(ts, body.clone());
                    let replaces = std::mem::replace(&mut held.stored, after);
                    DocPut { collection, key, ts, version, body, expect: Expect::Any, replaces }.into()
                }
            };
            self.kept.bytes += held.bytes;
            ops.push((held.draft.is_some(), written, op));
        }
        ops.sort_unstable_by_key(|(stays, written, _)| (*stays, *written));
        Ok(ops.into_iter().map(|(_, _, op)| op).collect())
    }

    /// All is written: what to keep for the next page.
    pub(crate) fn into_kept(mut self) -> Kept {
        if self.kept.count > KEPT_MAX || self.kept.bytes > KEPT_BYTES_MAX {
            return Kept::default();
        }
        for held in self.kept.docs.values_mut().flat_map(HashMap::values_mut) {
            held.written = None;
        }
        self.kept
    }

    /// Makes sure that the document is at hand.
    async fn load(&mut self, collection: &CollectionName, key: &str) -> Result<(), FoldError> {
        if self.kept.get_mut(collection, key).is_some() {
            return Ok(());
        }
        if key.is_empty() {
            let reason = "a change of a document with an empty key; give it one";
            return Err(FoldError::Event(reason.to_owned()));
        }
        let stored_as = &self.target.find(collection)?.stored_as;
        let doc = self.store.doc(stored_as, key).await?;
        let draft = doc.as_ref().map(Draft::read).transpose()?;
        // The draft, and what is stored.
        let bytes = doc.as_ref().map_or(0, |doc| 2 * doc.body.len());
        let stored = doc.map_or(Replaces::Nothing, |doc| Replaces::Doc {
            ts: doc.ts,
            revision: doc.revision,
            body: doc.body,
        });
        self.kept.put(collection, key, Held { draft, stored, written: None, bytes });
        Ok(())
    }

    fn emitted(&self, event: &StoredEvent, n: u32, emit: Emit) -> Publish<'static> {
        let id = derived_id(b"projected", self.projector, event, &n.to_be_bytes());
        emit.into_event(id).caused_by(vec![event.id])
    }

    /// Adds what the feed of a collection says of an event: the document as the event leaves it.
    fn announce(
        &self,
        event: &StoredEvent,
        place: &Place,
        before: Option<&Draft>,
        published: &mut Vec<Publish<'static>>,
    ) -> Result<(), String> {
        let (collection, key) = place;
        let Some(feed) = &self.target.find(collection)?.feed else { return Ok(()) };
        let held = self.kept.docs.get(collection).and_then(|docs| docs.get(key));
        let draft = held.and_then(|held| held.draft.as_ref());
        if draft == before {
            return Ok(());
        }
        let payload = draft.map_or_else(|| Ok("null".to_owned()), |draft| draft.body(key))?;
        let mut name = collection.as_str().as_bytes().to_vec();
        name.push(0);
        name.extend_from_slice(key.as_bytes());
        let id = derived_id(b"changed", self.projector, event, &name);
        published.push(changed(feed.clone(), id, event, key, payload));
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
