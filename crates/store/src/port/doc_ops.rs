//! Changes of documents and collections.

use promethean_model::CollectionName;

use super::Collection;

/// The document that must exist before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expect {
    /// Any document, or none.
    #[default]
    Any,
    /// No document.
    Absent,
    /// A document at any revision.
    Present,
    /// The document at this revision.
    Revision(u64),
}

/// A change of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocOp {
    /// Writes it whole.
    Put(DocPut),
    /// Removes it. Removing a document that does not exist does nothing.
    Delete {
        /// Its collection.
        collection: CollectionName,
        /// Its key.
        key: String,
        /// The document that must exist.
        expect: Expect,
    },
}

/// A document to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocPut {
    /// Its collection.
    pub collection: CollectionName,
    /// Its key.
    pub key: String,
    /// Its `_ts`.
    pub ts: i64,
    /// Its `_v`.
    pub version: Option<i64>,
    /// The whole document as it is to be served, a JSON object.
    pub body: String,
    /// The document that must exist: `Any` upserts, `Present` replaces, `Absent` inserts.
    pub expect: Expect,
    /// The document that this one replaces, if the writer knows it.
    pub replaces: Replaces,
}

/// The document that a put replaces. Only the single writer of a collection may give it; a wrong one leaves index entries
/// behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Replaces {
    /// Not known: the store reads it.
    #[default]
    Unknown,
    /// No document.
    Nothing,
    /// This document.
    Doc {
        /// Its `_ts`.
        ts: i64,
        /// Its revision.
        revision: u64,
        /// The whole document.
        body: String,
    },
}

/// A change of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectionOp {
    /// Declares it, in a batch of its class. Declaring it again unchanged does nothing. Fields can change at any time,
    /// indexes only while it is empty, its class never.
    Declare(Collection),
    /// Drops it with its documents, in a batch of its class. Dropping a collection that does not exist does nothing.
    Drop(CollectionName),
    /// Gives a collection the name of another, which is dropped if it exists; in a batch of the class of both.
    Rename {
        /// Its name before.
        from: CollectionName,
        /// Its name after.
        to: CollectionName,
    },
}
