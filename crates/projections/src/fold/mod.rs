//! The fold of a page: the changes of its events applied to documents in memory, before anything is written.

mod deleted_versions;
mod document;

use std::collections::{BTreeSet, HashMap};

use promethean_bus::StoredEvent;
use promethean_bus::publish::Publish;
use promethean_model::{CollectionName, EventId, GroupName, TopicName};
use promethean_store::port::{Doc, DocOp, DocPut, Expect, ReadError, Replaces, StateOp, Store};

use self::deleted_versions::{ChangeVersions, DeletedVersions, TIME_KEY, key_of};
use self::document::Draft;
use crate::change::{Change, Emit};
use crate::collections::WrittenCollections;
use crate::definition::check_target;
use crate::error::ProjectFailure;

/// The header that names the topic of the event that changed a document.
pub(crate) const SOURCE_TOPIC_HEADER: &str = "x-source-topic";
/// The header that says at which offset of that topic the event is.
pub(crate) const SOURCE_OFFSET_HEADER: &str = "x-source-offset";

/// The most documents that are cached between pages.
const CACHED_DOCS_MAX: usize = 4_096;
/// The most bytes of documents that are cached between pages, as they were read or written last.
const CACHED_BYTES_MAX: usize = 8 << 20;
/// Stored versions of deleted documents that a page looks at to find those that are forgotten.
const SWEPT_MAX: usize = 20;
/// About the most bytes of documents in one commit; a fold beyond that is committed at once.
const PAGE_BYTES_MAX: usize = 32 << 20;
/// About the bytes of a document in a changefeed.
const DOC_BYTES_ABOUT: usize = 1 << 10;

/// Documents that the last pages changed, as they are stored. Only their projector writes them, so they stay
/// true.
#[derive(Debug, Default)]
pub(crate) struct DocCache {
    docs: HashMap<CollectionName, HashMap<String, CachedDoc>>,
    /// Versions of deleted documents, of collections with versioned changes.
    deleted: HashMap<CollectionName, DeletedVersions>,
    count: usize,
    bytes: usize,
}

/// A document in the cache, perhaps with changes that are not stored yet.
#[derive(Debug)]
struct CachedDoc {
    draft: Option<Draft>,
    /// The document in the store, once every batch that was given to it is committed.
    stored: Replaces,
    /// The document's place in the order of the page's writes; `None` if the page has not written it.
    written: Option<u32>,
    bytes: usize,
}

/// The fold of a page. After a failure it is thrown away: a document may be half changed.
pub(crate) struct DocFold<'a> {
    store: &'a dyn Store,
    collections: &'a WrittenCollections,
    projector: &'a GroupName,
    publishing: FoldPublishing<'a>,
    cache: DocCache,
    /// The number of documents written so far.
    writes: u32,
    /// About the bytes that were added to documents since they were read.
    grown: usize,
    events: usize,
    emitted: Vec<Publish<'static>>,
    sources: Vec<usize>,
    announced: Vec<Publish<'static>>,
    /// Removals of versions of deleted documents that are forgotten.
    forgotten: Vec<StateOp>,
}

/// What a fold does with events that programs publish.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoldPublishing<'a> {
    /// Whether they are published; a rebuild publishes none.
    pub(crate) publishes: bool,
    /// Topics that they may not be published to.
    pub(crate) reserved: &'a BTreeSet<TopicName>,
}

/// What a fold comes to.
pub(crate) struct FoldedPage {
    /// Writes of documents.
    pub(crate) ops: Vec<StateOp>,
    /// Events that programs publish.
    pub(crate) emitted: Vec<Publish<'static>>,
    /// For each of those, the index in the page of the event that it is made from.
    pub(crate) sources: Vec<usize>,
    /// Events of the changefeeds of collections that keep their history.
    pub(crate) announced: Vec<Publish<'static>>,
    /// Documents for the next page, true once the writes are committed.
    pub(crate) cache: DocCache,
}

impl DocCache {
    pub(crate) fn is_empty(&self) -> bool {
        self.docs.is_empty()
    }

    fn get(&self, collection: &CollectionName, key: &str) -> Option<&CachedDoc> {
        self.docs.get(collection)?.get(key)
    }

    fn get_mut(&mut self, collection: &CollectionName, key: &str) -> Option<&mut CachedDoc> {
        self.docs.get_mut(collection)?.get_mut(key)
    }

    fn put(&mut self, collection: &CollectionName, key: &str, doc: CachedDoc) {
        self.count += 1;
        self.bytes += doc.bytes;
        match self.docs.get_mut(collection) {
            Some(docs) => _ = docs.insert(key.to_owned(), doc),
            None => _ = self.docs.entry(collection.clone()).or_default().insert(key.to_owned(), doc),
        }
    }

    /// The cache for the next page: empty if this one is too large.
    fn trimmed(mut self) -> Self {
        let count = self.count + self.deleted.values().map(DeletedVersions::len).sum::<usize>();
        if count > CACHED_DOCS_MAX || self.bytes > CACHED_BYTES_MAX {
            return Self::default();
        }
        for doc in self.docs.values_mut().flat_map(HashMap::values_mut) {
            doc.written = None;
        }
        self
    }
}

impl CachedDoc {
    /// What the store has after the next commit of the document.
    fn after(&self, ts: i64, body: String) -> Replaces {
        let before = if let Replaces::Doc { revision, .. } = self.stored { revision } else { 0 };
        Replaces::Doc { ts, revision: before + 1, body }
    }
}

impl<'a> DocFold<'a> {
    pub(crate) fn new(
        store: &'a dyn Store,
        collections: &'a WrittenCollections,
        projector: &'a GroupName,
        publishing: FoldPublishing<'a>,
        cache: DocCache,
    ) -> Self {
        Self {
            store,
            collections,
            projector,
            publishing,
            cache,
            writes: 0,
            grown: 0,
            events: 0,
            emitted: Vec::new(),
            sources: Vec::new(),
            announced: Vec::new(),
            forgotten: Vec::new(),
        }
    }

    /// Whether the changes of an event may free a value that a document has in a unique index.
    pub(crate) async fn may_free(&mut self, changes: &[Change]) -> Result<bool, ProjectFailure> {
        for change in changes {
            let (collection, key) = match change {
                Change::Upsert(upsert) => (&upsert.collection, &upsert.key),
                Change::Delete(removal) => (&removal.collection, &removal.key),
                Change::Publish(_) => continue,
            };
            // A change that cannot be applied fails when it is folded.
            let Ok(written) = self.collections.find(collection) else { continue };
            if !written.has_unique_index() || key.is_empty() {
                continue;
            }
            self.load(collection, key).await?;
            let Some(draft) = self.cache.get(collection, key).and_then(|doc| doc.draft.as_ref()) else {
                continue;
            };
            match change {
                Change::Upsert(upsert)
                    if written.unique_fields().any(|field| draft.changes(field, upsert)) =>
                {
                    return Ok(true);
                }
                Change::Delete(_) => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Folds the changes of the next event of the page.
    pub(crate) async fn add(
        &mut self,
        event: &StoredEvent,
        changes: Vec<Change>,
    ) -> Result<(), ProjectFailure> {
        // Documents of collections with a feed, as they were before the event.
        let mut before: Vec<(CollectionName, String, Option<Draft>)> = Vec::new();
        let mut emits = 0_u32;
        for change in changes {
            let (collection, key) = match &change {
                Change::Upsert(upsert) => (&upsert.collection, &upsert.key),
                Change::Delete(removal) => (&removal.collection, &removal.key),
                Change::Publish(_) => {
                    if let Change::Publish(emit) = change {
                        self.emit(event, emits, emit).map_err(ProjectFailure::Event)?;
                    }
                    emits += 1;
                    continue;
                }
            };
            let written = self.collections.find(collection).map_err(ProjectFailure::Event)?;
            let has_feed = self.publishing.publishes && written.feed.is_some();
            self.load(collection, key).await?;
            let versions = self.versions(&change, event).await?;
            if versions.is_older() {
                continue;
            }
            if let Some(deleted) = self.cache.deleted.get_mut(collection) {
                match &change {
                    Change::Delete(_) => deleted.put(key, &versions, event.ts),
                    _ if versions.given.is_some() => deleted.remove(key),
                    _ => {}
                }
            }
            let Some(doc) = self.cache.get_mut(collection, key) else { continue };
            if has_feed && !before.iter().any(|(c, k, _)| c == collection && k == key) {
                before.push((collection.clone(), key.clone(), doc.draft.clone()));
            }
            let is_written = match change {
                Change::Upsert(upsert) => {
                    Draft::upsert(&mut doc.draft, upsert, event).map_err(ProjectFailure::Event)?
                }
                _ => doc.draft.take().is_some(),
            };
            if is_written && doc.written.is_none() {
                doc.written = Some(self.writes);
                self.writes += 1;
            }
            self.grown += event.bytes();
        }
        for (collection, key, before) in before {
            let announced = self.announce(event, &collection, &key, before.as_ref());
            announced.map_err(ProjectFailure::Event)?;
        }
        self.events += 1;
        Ok(())
    }

    /// The versions that decide whether a change is too old. An event with a versioned change moves the time of its
    /// collection.
    async fn versions(
        &mut self,
        change: &Change,
        event: &StoredEvent,
    ) -> Result<ChangeVersions, ProjectFailure> {
        let (collection, key, given, deletes) = match change {
            Change::Upsert(upsert) => (&upsert.collection, &upsert.key, upsert.version, false),
            Change::Delete(removal) => (&removal.collection, &removal.key, removal.version, true),
            Change::Publish(_) => return Ok(ChangeVersions::default()),
        };
        let draft = self.cache.get(collection, key).and_then(|doc| doc.draft.as_ref());
        let there = draft.and_then(|draft| draft.version);
        if given.is_none() && !(deletes && there.is_some()) {
            return Ok(ChangeVersions::default());
        }
        let stored_as = &self.collections.find(collection).map_err(ProjectFailure::Event)?.deleted_as;
        let later = |error: ReadError| ProjectFailure::Later(error.to_string());
        if !self.cache.deleted.contains_key(collection) {
            let time = self.store.doc(stored_as, TIME_KEY).await.map_err(later)?;
            self.cache.deleted.insert(collection.clone(), DeletedVersions::read(time.as_ref()));
        }
        let Some(deleted) = self.cache.deleted.get_mut(collection) else {
            return Ok(ChangeVersions::default());
        };
        if !deleted.knows(key) {
            let stored = match deleted.has_time() {
                true => self.store.doc(stored_as, &key_of(key)).await.map_err(later)?,
                // Before the first deletion the store has none.
                false => None,
            };
            deleted.add(key, stored.as_ref());
        }
        deleted.pass(event.ts);
        let deleted = if there.is_none() { deleted.get(key) } else { None };
        Ok(ChangeVersions { given, there, deleted })
    }

    /// Finds some stored versions of deleted documents that are forgotten, and removes them with this page.
    pub(crate) async fn forget_deleted(&mut self) -> Result<(), ProjectFailure> {
        for (name, deleted) in &mut self.cache.deleted {
            if deleted.moved_time().is_none() {
                continue;
            }
            let stored_as = &self.collections.find(name).map_err(ProjectFailure::Event)?.deleted_as;
            let page = self.store.docs_by_key(stored_as, deleted.swept.as_deref(), SWEPT_MAX).await;
            let page = page.map_err(|error| ProjectFailure::Later(error.to_string()))?;
            deleted.swept = page.get(SWEPT_MAX - 1).map(|last| last.key.clone());
            for doc in page.into_iter().filter(|doc| deleted.is_forgotten(doc)) {
                let collection = stored_as.clone();
                self.forgotten.push(DocOp::Delete { collection, key: doc.key, expect: Expect::Any }.into());
            }
        }
        Ok(())
    }

    /// Whether the documents are large enough for a commit.
    pub(crate) fn is_full(&self) -> bool {
        self.cache.bytes + self.grown > PAGE_BYTES_MAX
    }

    /// Ends the fold.
    pub(crate) fn finish(mut self) -> Result<FoldedPage, String> {
        let ops = self.ops()?;
        let Self { cache, emitted, sources, announced, .. } = self;
        Ok(FoldedPage { ops, emitted, sources, announced, cache: cache.trimmed() })
    }

    /// The writes of documents: removals first, so that what they had in a unique index is free, then in the
    /// order of the events.
    fn ops(&mut self) -> Result<Vec<StateOp>, String> {
        let mut ops = Vec::new();
        let docs =
            self.cache.docs.iter_mut().flat_map(|(name, docs)| docs.iter_mut().map(move |doc| (name, doc)));
        for (name, (key, doc)) in docs {
            let Some(written) = doc.written else { continue };
            let (collection, key) = (self.collections.find(name)?.stored_as.clone(), key.clone());
            self.cache.bytes -= doc.bytes;
            doc.bytes = 0;
            let op: StateOp = match &doc.draft {
                None => {
                    doc.stored = Replaces::Nothing;
                    DocOp::Delete { collection, key, expect: Expect::Any }.into()
                }
                Some(draft) => {
                    let body = draft.body(&key)?;
                    doc.bytes = 2 * body.len();
                    let (ts, version) = (draft.ts, draft.version);
                    let after = doc.after(ts, body.clone());
                    let replaces = std::mem::replace(&mut doc.stored, after);
                    DocPut { collection, key, ts, version, body, expect: Expect::Any, replaces }.into()
                }
            };
            self.cache.bytes += doc.bytes;
            ops.push((doc.draft.is_some(), written, op));
        }
        ops.sort_unstable_by_key(|(stays, written, _)| (*stays, *written));
        let mut ops: Vec<StateOp> = ops.into_iter().map(|(_, _, op)| op).collect();
        ops.append(&mut self.forgotten);
        for (name, deleted) in &mut self.cache.deleted {
            ops.extend(deleted.ops(&self.collections.find(name)?.deleted_as));
        }
        Ok(ops)
    }

    /// Reads a document into the cache, if it is not there yet.
    async fn load(&mut self, collection: &CollectionName, key: &str) -> Result<(), ProjectFailure> {
        if self.cache.get(collection, key).is_some() {
            return Ok(());
        }
        if key.is_empty() {
            let reason = "a change of a document with an empty key; give it one";
            return Err(ProjectFailure::Event(reason.to_owned()));
        }
        let stored_as = &self.collections.find(collection).map_err(ProjectFailure::Event)?.stored_as;
        let doc = self.store.doc(stored_as, key).await;
        let doc = doc.map_err(|error| ProjectFailure::Later(error.to_string()))?;
        let draft = doc.as_ref().map(Draft::read).transpose().map_err(ProjectFailure::Event)?;
        // Twice: the draft, and the document as it is stored.
        let bytes = doc.as_ref().map_or(0, |doc| 2 * doc.body.len());
        let stored = doc.map_or(Replaces::Nothing, |doc| Replaces::Doc {
            ts: doc.ts,
            revision: doc.revision,
            body: doc.body,
        });
        self.cache.put(collection, key, CachedDoc { draft, stored, written: None, bytes });
        Ok(())
    }

    /// Adds the `n`th event that the program publishes for an event. A reserved topic is refused in a rebuild
    /// too, so that it comes to the same state.
    fn emit(&mut self, event: &StoredEvent, n: u32, emit: Emit) -> Result<(), String> {
        check_target(&emit.topic, self.publishing.reserved)?;
        if !self.publishing.publishes {
            return Ok(());
        }
        let id = derived_id(b"projected", self.projector, event, &n.to_be_bytes());
        self.emitted.push(emit.into_event(id).caused_by(vec![event.id]));
        self.sources.push(self.events);
        Ok(())
    }

    /// Adds the document to the feed of its collection as the event leaves it, if the event changed it.
    fn announce(
        &mut self,
        event: &StoredEvent,
        collection: &CollectionName,
        key: &str,
        before: Option<&Draft>,
    ) -> Result<(), String> {
        let Some(feed) = &self.collections.find(collection)?.feed else { return Ok(()) };
        let draft = self.cache.get(collection, key).and_then(|doc| doc.draft.as_ref());
        if draft == before {
            return Ok(());
        }
        let payload = draft.map_or_else(|| Ok("null".to_owned()), |draft| draft.body(key))?;
        let mut name = collection.as_str().as_bytes().to_vec();
        name.push(0);
        name.extend_from_slice(key.as_bytes());
        let id = derived_id(b"changed", self.projector, event, &name);
        self.announced.push(changed(feed.clone(), id, event, key, payload));
        self.grown += DOC_BYTES_ABOUT;
        Ok(())
    }
}

/// The offset of the event that wrote a document last.
pub(crate) fn source_offset(doc: &Doc) -> Option<u64> {
    Draft::read(doc).ok()?.fields.get(document::OFFSET)?.as_u64()
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

/// Returns an id that is the same however often the event is projected.
fn derived_id(kind: &[u8], projector: &GroupName, event: &StoredEvent, which: &[u8]) -> EventId {
    let mut name = Vec::with_capacity(64);
    name.extend_from_slice(projector.as_str().as_bytes());
    name.push(0);
    name.extend_from_slice(event.topic.as_str().as_bytes());
    name.push(0);
    name.extend_from_slice(&event.offset.get().to_be_bytes());
    // A topic that was deleted and created again has other events at the same offsets.
    name.extend_from_slice(event.id.as_bytes());
    name.extend_from_slice(which);
    EventId::derive(kind, &name)
}
