//! Reading collections.

use promethean_model::CollectionName;
use promethean_store::port::{Batch, CollectionInfo, CollectionOp, Doc, DocPage, DocQuery, ReadError};
use promethean_store::value::{FieldType, Value};

use crate::definition::SHADOW;
use crate::error::ProjectionError;
use crate::hash::state_hash;
use crate::projections::Projections;

/// Collections listed at once.
const PAGE: usize = 100;
/// Documents of a page, at most.
pub const LIST_MAX: usize = 1_000;
/// Bytes of documents after which a page ends early.
pub const LIST_BYTES: usize = 8 << 20;
/// Documents asked for at once.
const PIECE: usize = 100;

impl Projections {
    /// The collection of `/snap` and `/list`.
    pub fn default_collection(&self) -> Result<CollectionName, ProjectionError> {
        self.inner.default_collection.clone().ok_or(ProjectionError::NoDefault)
    }

    /// Every collection, by name, those of earlier configurations included.
    pub async fn collections(&self) -> Result<Vec<CollectionInfo>, ProjectionError> {
        let mut found: Vec<CollectionInfo> = Vec::new();
        loop {
            let after = found.last().map(|info| info.collection.name.clone());
            let page = self.inner.parts.store.collections(after.as_ref(), PAGE).await?;
            if page.is_empty() {
                found.retain(|info| !info.collection.name.as_str().ends_with(SHADOW));
                return Ok(found);
            }
            found.extend(page);
        }
    }

    /// One collection.
    pub async fn collection(&self, name: &CollectionName) -> Result<CollectionInfo, ProjectionError> {
        let found = self.inner.parts.store.collection(name).await?;
        // One that is being made is nobody's business.
        let found = found.filter(|_| !name.as_str().ends_with(SHADOW));
        found.ok_or_else(|| ReadError::UnknownCollection { collection: name.clone() }.into())
    }

    /// One document.
    pub async fn document(&self, collection: &CollectionName, key: &str) -> Result<Doc, ProjectionError> {
        let doc = self.inner.parts.store.doc(collection, key).await?;
        if let Some(doc) = doc.filter(|_| !collection.as_str().ends_with(SHADOW)) {
            return Ok(doc);
        }
        self.collection(collection).await?;
        Err(ProjectionError::UnknownDocument { collection: collection.clone(), key: key.to_owned() })
    }

    /// Documents whose declared fields have given values, newest first. Values come as text and are read as the fields
    /// are declared.
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
        // A piece at a time, since nobody knows how large they are.
        loop {
            let (offset, limit) = (offset + page.docs.len(), (wanted - page.docs.len()).min(PIECE));
            let query = DocQuery { collection: collection.clone(), equals: typed.clone(), offset, limit };
            let piece = self.inner.parts.store.query(&query).await?;
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
        self.inner.parts.store.commit(Batch::derived().with(CollectionOp::Drop(name.clone()))).await?;
        Ok(())
    }

    /// A number that is the same for collections that hold the same.
    pub async fn state_hash(&self, collections: &[CollectionName]) -> Result<u128, ProjectionError> {
        Ok(state_hash(&*self.inner.parts.store, collections).await?)
    }
}

fn typed_value(kind: FieldType, text: &str) -> Option<Value> {
    match kind {
        FieldType::Text => Some(text.into()),
        FieldType::Bool => text.parse::<bool>().ok().map(Value::from),
        // As JSON has it: no `inf`, no `+1`.
        FieldType::Number => serde_json::from_str::<f64>(text).ok().map(Value::from),
    }
}
