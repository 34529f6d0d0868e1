//! The collections that a projector writes, and how documents are read.

use std::collections::HashMap;

use promethean_model::{CollectionName, TopicName};
use promethean_store::port::{
    Batch, Collection, CollectionInfo, CollectionOp, Doc, DocPage, DocQuery, Keeping, ReadError, StateOp,
};
use promethean_store::value::{FieldType, Value};

use crate::definition::{CollectionDeclared, Projector, deleted, is_hidden, shadow};
use crate::error::ProjectionError;
use crate::projections::Projections;
use crate::rebuild::swap::state_hash;

/// Collections read from the store at once.
const PAGE: usize = 100;
/// The most documents of a page.
pub const LIST_MAX: usize = 1_000;
/// The bytes of documents after which a page ends early.
pub const LIST_BYTES: usize = 8 << 20;
/// Documents read from the store at once.
const PIECE: usize = 100;

/// The collections that a projector or its rebuild writes, by the names that changes use.
#[derive(Debug, Clone)]
pub(crate) struct WrittenCollections {
    by_name: HashMap<CollectionName, WrittenCollection>,
}

/// A collection that a projector or its rebuild writes.
#[derive(Debug, Clone)]
pub(crate) struct WrittenCollection {
    /// Its name in the store; another one during a rebuild.
    pub(crate) stored_as: CollectionName,
    /// The collection in the store that has the versions of its deleted documents.
    pub(crate) deleted_as: CollectionName,
    /// The topic of its changes, if it keeps its history and is served.
    pub(crate) feed: Option<TopicName>,
    declared: CollectionDeclared,
}

impl WrittenCollection {
    /// Whether the store may refuse a document because of another document.
    pub(crate) fn has_unique_index(&self) -> bool {
        self.declared.indexes.iter().any(|index| index.unique)
    }

    /// The fields of its unique indexes.
    pub(crate) fn unique_fields(&self) -> impl Iterator<Item = &str> {
        let unique = self.declared.indexes.iter().filter(|index| index.unique);
        unique.flat_map(|index| index.fields.iter().map(|(name, _)| name.as_str()))
    }
}

impl WrittenCollections {
    /// The collections of a projector that are served.
    pub(crate) fn served(projector: &Projector, declared: &[CollectionDeclared]) -> Self {
        let written = declared.iter().filter(|collection| projector.collections.contains(&collection.name));
        let by_name = written.filter_map(|collection| {
            let feed = collection.history.then(|| collection.name.changed_topic().ok()).flatten();
            // A name that is too long for that is refused when it is declared.
            let (stored_as, deleted_as) = (collection.name.clone(), deleted(&collection.name).ok()?);
            let written = WrittenCollection { stored_as, deleted_as, feed, declared: collection.clone() };
            Some((collection.name.clone(), written))
        });
        Self { by_name: by_name.collect() }
    }

    /// The collections that a rebuild writes: the same under other names in the store, and without feeds.
    pub(crate) fn shadow(&self) -> Result<Self, ProjectionError> {
        let mut by_name = HashMap::new();
        for (name, served) in &self.by_name {
            let declared = served.declared.clone();
            let stored_as = shadow(name)?;
            let deleted_as = deleted(&stored_as)?;
            let written = WrittenCollection { stored_as, deleted_as, feed: None, declared };
            by_name.insert(name.clone(), written);
        }
        Ok(Self { by_name })
    }

    pub(crate) fn find(&self, name: &CollectionName) -> Result<&WrittenCollection, String> {
        self.by_name.get(name).ok_or_else(|| {
            format!("collection `{name}` is none of the projector's; add it to its `collections`")
        })
    }

    /// Whether the store may refuse a document because of another document.
    pub(crate) fn has_unique_index(&self) -> bool {
        self.by_name.values().any(WrittenCollection::has_unique_index)
    }

    /// The names in the store, in the order of the names that changes use.
    pub(crate) fn stored_names(&self) -> Vec<CollectionName> {
        let mut written: Vec<_> = self.by_name.iter().collect();
        written.sort_unstable_by_key(|(name, _)| *name);
        written.into_iter().map(|(_, written)| written.stored_as.clone()).collect()
    }

    pub(crate) fn declarations(&self) -> impl Iterator<Item = Collection> {
        self.by_name.values().flat_map(|written| {
            let (fields, indexes) = (Vec::new(), Vec::new());
            let name = written.deleted_as.clone();
            let deleted = Collection { name, keeping: Keeping::Derived, fields, indexes };
            [written.declared.to_store(written.stored_as.clone()), deleted]
        })
    }

    /// Each collection by its name in the store, with the topic of its feed, and whether it keeps its history.
    pub(crate) fn feeds(&self) -> impl Iterator<Item = (CollectionName, TopicName, bool)> {
        self.by_name.values().filter_map(|written| {
            let feed = written.declared.name.changed_topic().ok()?;
            Some((written.stored_as.clone(), feed, written.feed.is_some()))
        })
    }

    /// A batch that drops all of them.
    pub(crate) fn drops(&self) -> Batch {
        let names = self.by_name.values().flat_map(|written| [&written.stored_as, &written.deleted_as]);
        let drops = names.map(|name| StateOp::from(CollectionOp::Drop(name.clone())));
        Batch { state: drops.collect(), ..Batch::derived() }
    }

    /// A batch that gives the collections of `rebuilt` the names of these.
    pub(crate) fn replaced_by(&self, rebuilt: &Self) -> Batch {
        let pairs = self.by_name.iter().filter_map(|(name, written)| {
            let from = rebuilt.by_name.get(name)?;
            Some([(&from.stored_as, &written.stored_as), (&from.deleted_as, &written.deleted_as)])
        });
        let rename = |(from, to): (&CollectionName, &CollectionName)| {
            StateOp::from(CollectionOp::Rename { from: from.clone(), to: to.clone() })
        };
        let renames = pairs.flatten().map(rename);
        Batch { state: renames.collect(), ..Batch::derived() }
    }
}

impl Projections {
    /// The collection of `/snap` and `/list`.
    pub fn default_collection(&self) -> Result<CollectionName, ProjectionError> {
        self.inner.default_collection.clone().ok_or(ProjectionError::NoDefault)
    }

    /// Every collection, by name, including those of earlier configurations.
    pub async fn collections(&self) -> Result<Vec<CollectionInfo>, ProjectionError> {
        let mut found: Vec<CollectionInfo> = Vec::new();
        loop {
            let after = found.last().map(|info| info.collection.name.clone());
            let page = self.inner.context.store.collections(after.as_ref(), PAGE).await?;
            if page.is_empty() {
                found.retain(|info| !is_hidden(&info.collection.name));
                return Ok(found);
            }
            found.extend(page);
        }
    }

    /// One collection.
    pub async fn collection(&self, name: &CollectionName) -> Result<CollectionInfo, ProjectionError> {
        let found = self.inner.context.store.collection(name).await?;
        // The collections of a rebuild and of deleted versions are not shown.
        let found = found.filter(|_| !is_hidden(name));
        found.ok_or_else(|| ReadError::UnknownCollection { collection: name.clone() }.into())
    }

    /// One document.
    pub async fn document(&self, collection: &CollectionName, key: &str) -> Result<Doc, ProjectionError> {
        let doc = self.inner.context.store.doc(collection, key).await?;
        if let Some(doc) = doc.filter(|_| !is_hidden(collection)) {
            return Ok(doc);
        }
        self.collection(collection).await?;
        Err(ProjectionError::UnknownDocument { collection: collection.clone(), key: key.to_owned() })
    }

    /// Documents whose declared fields have the given values, newest first. Values are given as text and
    /// parsed by the declared types of the fields.
    pub async fn list(
        &self,
        collection: &CollectionName,
        equals: &[(String, String)],
        offset: usize,
        limit: usize,
    ) -> Result<DocPage, ProjectionError> {
        let info = self.collection(collection).await?;
        let mut typed = Vec::with_capacity(equals.len());
        for (name, text) in equals {
            let field = info.collection.fields.iter().find(|field| field.name == *name).ok_or_else(|| {
                let declared: Vec<&str> =
                    info.collection.fields.iter().map(|field| field.name.as_str()).collect();
                let declared = if declared.is_empty() { "none".to_owned() } else { declared.join(", ") };
                ReadError::UnknownField { collection: collection.clone(), field: name.clone(), declared }
            })?;
            let value = typed_value(field.kind, text).ok_or_else(|| ReadError::WrongType {
                collection: collection.clone(),
                field: name.clone(),
                kind: field.kind,
            })?;
            typed.push((name.clone(), value));
        }
        let wanted = limit.min(LIST_MAX);
        let mut page = DocPage { docs: Vec::new(), more: false };
        let mut bytes = 0;
        // A piece at a time: how large the documents are is known only when they are read.
        loop {
            let (offset, limit) = (offset + page.docs.len(), (wanted - page.docs.len()).min(PIECE));
            let query = DocQuery { collection: collection.clone(), equals: typed.clone(), offset, limit };
            let piece = self.inner.context.store.query(&query).await?;
            bytes += piece.docs.iter().map(|doc| doc.body.len()).sum::<usize>();
            page.docs.extend(piece.docs);
            page.more = piece.more;
            if !page.more || page.docs.len() >= wanted || bytes >= LIST_BYTES {
                return Ok(page);
            }
        }
    }

    /// Removes a collection that no projector writes.
    pub async fn drop_collection(&self, name: &CollectionName) -> Result<(), ProjectionError> {
        if let Some(writer) = self.writer_of(name) {
            return Err(ProjectionError::CollectionInUse { collection: name.clone(), name: writer });
        }
        self.collection(name).await?;
        let mut batch = Batch::derived().with(CollectionOp::Drop(name.clone()));
        if let Ok(deleted) = deleted(name) {
            batch = batch.with(CollectionOp::Drop(deleted));
        }
        self.inner.context.store.commit(batch).await?;
        Ok(())
    }

    /// A hash of what collections hold: the same for the same documents, whatever the collections are called.
    pub async fn state_hash(&self, collections: &[CollectionName]) -> Result<u128, ProjectionError> {
        Ok(state_hash(&*self.inner.context.store, collections).await?)
    }
}

fn typed_value(kind: FieldType, text: &str) -> Option<Value> {
    match kind {
        FieldType::Text => Some(text.into()),
        FieldType::Bool => text.parse::<bool>().ok().map(Value::from),
        // A number of JSON: no `inf`, no `+1`.
        FieldType::Number => serde_json::from_str::<f64>(text).ok().map(Value::from),
    }
}
