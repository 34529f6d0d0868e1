//! Changes of documents and collections.

use promethean_model::CollectionName;

use super::Collection;

/// What must be there before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expect {
    /// Anything or nothing.
    #[default]
    Any,
    /// Nothing.
    Absent,
    /// Something.
    Present,
    /// The document at this revision.
    Revision(u64),
}

/// A change of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocOp {
    /// Writes it whole.
    Put(DocPut),
    /// Removes it; one that is not there stays so.
    Delete {
        /// Its collection.
        collection: CollectionName,
        /// Its key.
        key: String,
        /// What must be there.
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
    /// What must be there: `Any` upserts, `Present` replaces, `Absent` inserts.
    pub expect: Expect,
    /// What is there, where the writer knows.
    pub replaces: Replaces,
}

/// What a document replaces. Only who is the one writer of a collection may know; what is wrong here leaves index entries
/// behind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Replaces {
    /// The store is to look.
    #[default]
    Unknown,
    /// Nothing.
    Nothing,
    /// A document.
    Doc {
        /// Its `_ts`.
        ts: i64,
        /// Its revision.
        revision: u64,
        /// All of it.
        body: String,
    },
}

/// A change of a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectionOp {
    /// Declares it, in a batch of the class it is kept by. Declaring it again as it is does nothing. Fields can change
    /// at any time, indexes only while it is empty, its keeping never.
    Declare(Collection),
    /// Drops it with its documents, in a batch of the class it is kept by. One that is not there stays so.
    Drop(CollectionName),
    /// Gives a collection the name of another, which is dropped if it is there; in a batch of the class both are kept by.
    Rename {
        /// What it is called.
        from: CollectionName,
        /// What it is called then.
        to: CollectionName,
    },
}
