//! Documents in collections.

use async_trait::async_trait;
use promethean_model::CollectionName;

use super::ReadError;
use crate::value::{FieldType, Value};

/// The most fields of one index: its entries must fit the longest key of the engine.
pub const INDEX_FIELDS_MAX: usize = 8;
/// The most indexes of one collection.
pub const INDEXES_MAX: usize = 32;

/// A declared collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    /// Its name.
    pub name: CollectionName,
    /// The class of batches that write it.
    pub keeping: Keeping,
    /// The fields that queries may name.
    pub fields: Vec<Field>,
    /// Its indexes, over declared fields.
    pub indexes: Vec<Index>,
}

/// The class of batches that may write a collection. It is one class only: a power cut can undo derived writes but not
/// durable ones, and index entries computed from both would no longer match their documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Written by derived batches; can be computed again from the log.
    Derived,
    /// Written by durable batches.
    Durable,
}

/// A field that queries may name, at the top level of the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// The type of values that queries compare it with.
    pub kind: FieldType,
}

/// An index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Its fields, most significant first.
    pub fields: Vec<(String, Direction)>,
    /// Whether two documents may not have the same values. Documents in which every field of the index is null or
    /// missing are exempt.
    pub unique: bool,
}

/// The order of one field in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Smallest first.
    Ascending,
    /// Greatest first.
    Descending,
}

/// One document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doc {
    /// Its key.
    pub key: String,
    /// Its `_ts`.
    pub ts: i64,
    /// Its `_v`.
    pub version: Option<i64>,
    /// How often it was written since it was inserted, from 1; an expectation names it.
    pub revision: u64,
    /// The whole document as it is served, JSON text.
    pub body: String,
}

/// A declared collection and its number of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionInfo {
    /// The declaration.
    pub collection: Collection,
    /// How many documents it has.
    pub docs: u64,
}

/// A query for documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocQuery {
    /// The collection to search.
    pub collection: CollectionName,
    /// DeclaredCollection fields, each with the value that it must equal.
    pub equals: Vec<(String, Value)>,
    /// How many matches to skip.
    pub offset: usize,
    /// The most documents to return.
    pub limit: usize,
}

/// Matches, newest `_ts` first; among equals by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocPage {
    /// The documents.
    pub docs: Vec<Doc>,
    /// Whether there are matches after them.
    pub more: bool,
}

impl Index {
    /// Its name in messages: `host, -ts`.
    pub fn label(&self) -> String {
        let field = |(name, direction): &(String, Direction)| match direction {
            Direction::Ascending => name.clone(),
            Direction::Descending => format!("-{name}"),
        };
        self.fields.iter().map(field).collect::<Vec<_>>().join(", ")
    }
}

/// Reads of documents.
#[async_trait]
pub trait DocReads {
    /// One collection.
    async fn collection(&self, name: &CollectionName) -> Result<Option<CollectionInfo>, ReadError>;
    /// Collections by name, after `after`, at most `limit`.
    async fn collections(
        &self,
        after: Option<&CollectionName>,
        limit: usize,
    ) -> Result<Vec<CollectionInfo>, ReadError>;
    /// One document; `None` also where there is no such collection.
    async fn doc(&self, collection: &CollectionName, key: &str) -> Result<Option<Doc>, ReadError>;
    /// Documents by key, after key `after`, at most `limit`; for exports and hashes of a whole collection.
    async fn docs_by_key(
        &self,
        collection: &CollectionName,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Doc>, ReadError>;
    /// Documents with given values.
    async fn query(&self, query: &DocQuery) -> Result<DocPage, ReadError>;
}
