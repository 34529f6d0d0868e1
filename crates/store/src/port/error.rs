//! Why a store did not do what it was asked. Messages are for people and say what to do; `code()` is for programs.

use promethean_model::{CollectionName, EventId, GroupName, MetaError, Offset, OffsetRange, TopicName};
use thiserror::Error;

use crate::value::FieldType;

/// A range of events that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("events {range} of topic `{topic}` are damaged ({detail}); restore the file from a backup, or read on from {}", range.end)]
pub struct Damage {
    /// The topic.
    pub topic: TopicName,
    /// The offsets concerned.
    pub range: OffsetRange,
    /// File and bytes.
    pub detail: String,
}

/// Why a read failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// Stored events do not match their checksums.
    #[error(transparent)]
    CorruptRange(#[from] Damage),
    /// No such collection.
    #[error("collection `{collection}` does not exist; declare it, or check the spelling")]
    UnknownCollection {
        /// The name asked for.
        collection: CollectionName,
    },
    /// The field was not declared.
    #[error("collection `{collection}` has no declared field `{field}`; query one of: {declared}")]
    UnknownField {
        /// The collection.
        collection: CollectionName,
        /// The field asked for.
        field: String,
        /// The declared fields.
        declared: String,
    },
    /// The value is not of the field's type.
    #[error("field `{field}` of collection `{collection}` is a {kind}; compare it with a {kind}")]
    WrongType {
        /// The collection.
        collection: CollectionName,
        /// The field.
        field: String,
        /// Its declared type.
        kind: FieldType,
    },
    /// Disk or engine failed.
    #[error(
        "storage failed: {reason}; see the server's log, and run `promethean verify` before trusting the disk"
    )]
    Storage {
        /// What failed.
        reason: String,
    },
    /// The store was closed.
    #[error("the store is closed; the server is shutting down, connect again")]
    Closed,
}

/// An event whose bytes passed their checksum but cannot be decoded: a newer release wrote them.
impl From<MetaError> for ReadError {
    fn from(error: MetaError) -> Self {
        Self::Storage { reason: error.to_string() }
    }
}

impl ReadError {
    /// The stable code of this error.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::CorruptRange(_) => "corrupt_range",
            Self::UnknownCollection { .. } => "unknown_collection",
            Self::UnknownField { .. } => "unknown_field",
            Self::WrongType { .. } => "wrong_type",
            Self::Storage { .. } => "storage_failed",
            Self::Closed => "closed",
        }
    }
}

/// Why a batch was not committed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommitError {
    /// The topic does not end where the batch expected.
    #[error("topic `{topic}` is at offset {actual}, not {expected}; read what was added and try again")]
    Conflict {
        /// The topic.
        topic: TopicName,
        /// The next offset that the batch expected.
        expected: Offset,
        /// The actual offset.
        actual: Offset,
    },
    /// The key's latest event is not the one the batch expected.
    #[error("the latest event of the key in topic `{topic}` is {}, not {}; read it and try again", at(*actual), at(*expected))]
    KeyConflict {
        /// The topic.
        topic: TopicName,
        /// What the batch expected.
        expected: Option<Offset>,
        /// The actual offset.
        actual: Option<Offset>,
    },
    /// The id is taken by another event.
    #[error("topic `{topic}` already has a different event with id {id}, at offset {offset}; use a new id")]
    IdConflict {
        /// The topic.
        topic: TopicName,
        /// The id.
        id: EventId,
        /// Where the other event is.
        offset: Offset,
    },
    /// Another owner has taken the cursor over.
    #[error(
        "group `{group}` on topic `{topic}` is at epoch {actual}, not {expected}; another owner took over, stop"
    )]
    Fenced {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: TopicName,
        /// The epoch the batch named.
        expected: u64,
        /// The epoch stored.
        actual: u64,
    },
    /// The cursor would be above the end of its topic, and so skip events that are yet to come.
    #[error(
        "group `{group}` cannot be at offset {floor} of topic `{topic}`, which ends at {end}; use at most {end}"
    )]
    BeyondEnd {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: TopicName,
        /// Where the cursor would be.
        floor: Offset,
        /// The topic's durable end.
        end: Offset,
    },
    /// Another document has the same values.
    #[error(
        "unique index ({index}) of collection `{collection}`: document `{existing}` has the values of `{key}`; change one of them"
    )]
    UniqueViolation {
        /// The collection.
        collection: CollectionName,
        /// The index.
        index: String,
        /// The document in the batch.
        key: String,
        /// The document that has the values.
        existing: String,
    },
    /// The document is not as the batch expected it.
    #[error("document `{key}` of collection `{collection}` is at revision {actual}; read it and try again")]
    DocConflict {
        /// The collection.
        collection: CollectionName,
        /// The document.
        key: String,
        /// Its revision, 0 if it does not exist.
        actual: u64,
    },
    /// No such collection.
    #[error("collection `{collection}` does not exist; declare it first")]
    UnknownCollection {
        /// The name.
        collection: CollectionName,
    },
    /// The collection belongs to the other kind of batch.
    #[error("collection `{collection}` is written by {keeping} batches only; commit this change in one")]
    WrongKeeping {
        /// The collection.
        collection: CollectionName,
        /// `durable` or `derived`.
        keeping: &'static str,
    },
    /// The declaration is not valid.
    #[error("collection `{collection}`: {reason}")]
    BadIndex {
        /// The collection.
        collection: CollectionName,
        /// What is wrong and what to change.
        reason: String,
    },
    /// A document that is not a JSON object, or has no key.
    #[error("document `{key}` of collection `{collection}`: {reason}")]
    BadDocument {
        /// The collection.
        collection: CollectionName,
        /// The document.
        key: String,
        /// What is wrong and what to change.
        reason: String,
    },
    /// The id is already marked, and the batch wanted to be the first.
    #[error("`{id}` is already marked in `{scope}`; its work is done, skip it")]
    AlreadySeen {
        /// The scope.
        scope: String,
        /// The id.
        id: String,
    },
    /// The row already exists, and the batch wanted to be the first.
    #[error("the row exists already; read it and try again")]
    RowExists,
    /// The outbox has another row with that id.
    #[error("the outbox already has a different row with id {id}; use a new id")]
    OutboxConflict {
        /// The id.
        id: EventId,
    },
    /// The outbox has no such row.
    #[error("the outbox has no row with id {id}; it may have been deleted")]
    UnknownOutboxRow {
        /// The id.
        id: EventId,
    },
    /// The topic is compacted and the event has no key.
    #[error("topic `{topic}` is compacted; give the event a key")]
    KeyRequired {
        /// The topic.
        topic: TopicName,
    },
    /// Something exceeds a limit.
    #[error("{what} has {size}; the limit is {max}")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// The store has reached its limit of topics.
    #[error("there are already {max} topics; delete some, or raise `limits.events.topics_max`")]
    TooManyTopics {
        /// The limit.
        max: u64,
    },
    /// The topic is being deleted.
    #[error("topic `{topic}` was deleted during the request; try again to create a new one")]
    TopicDeleted {
        /// The topic.
        topic: TopicName,
    },
    /// A derived batch with events.
    #[error("a derived batch cannot append events; commit them in a durable batch first")]
    DerivedWithEvents,
    /// A derived batch with a change that must be durable.
    #[error("a derived batch cannot change {what}; commit that in a durable batch")]
    NotDerivable {
        /// What the batch would change.
        what: &'static str,
    },
    /// This store does not offer the durability.
    #[error("this store does not offer durability `{asked}`; use one of: {offered}")]
    NotOffered {
        /// What was asked for.
        asked: &'static str,
        /// The durabilities that the store offers.
        offered: &'static str,
    },
    /// The disk is nearly full, or the last write found no space.
    #[error("storage is full ({reason}); free some space or add retention, then try again")]
    StorageFull {
        /// What there is too little of.
        reason: String,
    },
    /// The store cannot take the batch now, because earlier work is not done. The batch was not written.
    #[error("the store is busy with {what}; try again")]
    Busy {
        /// The work that the batch would have to wait for.
        what: &'static str,
    },
    /// An earlier failure stopped all writing.
    #[error("writing stopped after a failure ({reason}); check the disk and restart the server")]
    Poisoned {
        /// The failure.
        reason: String,
    },
    /// The batch may or may not have been written.
    #[error("the outcome is unknown ({reason}); after the server is back, try again with the same ids")]
    UnknownOutcome {
        /// The failure.
        reason: String,
    },
    /// Reading what the batch depends on failed.
    #[error(
        "storage failed: {reason}; see the server's log, and run `promethean verify` before trusting the disk"
    )]
    Storage {
        /// What failed.
        reason: String,
    },
    /// The store was closed.
    #[error("the store is closed; the server is shutting down, connect again")]
    Closed,
}

impl CommitError {
    /// The stable code of this error.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Conflict { .. } | Self::KeyConflict { .. } | Self::DocConflict { .. } | Self::RowExists => {
                "conflict"
            }
            Self::IdConflict { .. } | Self::OutboxConflict { .. } => "id_conflict",
            Self::Fenced { .. } => "fenced",
            Self::BeyondEnd { .. } => "beyond_end",
            Self::UniqueViolation { .. } => "unique_violation",
            Self::UnknownCollection { .. } => "unknown_collection",
            Self::WrongKeeping { .. } => "wrong_keeping",
            Self::BadIndex { .. } => "bad_index",
            Self::BadDocument { .. } => "bad_document",
            Self::AlreadySeen { .. } => "already_seen",
            Self::UnknownOutboxRow { .. } => "unknown_id",
            Self::KeyRequired { .. } => "key_required",
            Self::TooLarge { .. } => "too_large",
            Self::TooManyTopics { .. } => "too_many_topics",
            Self::TopicDeleted { .. } => "topic_deleted",
            Self::DerivedWithEvents => "derived_with_events",
            Self::NotDerivable { .. } => "not_derivable",
            Self::NotOffered { .. } => "not_offered",
            Self::StorageFull { .. } => "storage_full",
            Self::Busy { .. } => "busy",
            Self::Poisoned { .. } => "poisoned",
            Self::UnknownOutcome { .. } => "unknown_outcome",
            Self::Storage { .. } => "storage_failed",
            Self::Closed => "closed",
        }
    }

    /// Whether nothing of the batch was or will be written.
    pub const fn has_no_side_effects(&self) -> bool {
        !matches!(self, Self::UnknownOutcome { .. })
    }

    /// Whether the same batch may succeed later without being changed.
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::StorageFull { .. }
                | Self::Busy { .. }
                | Self::UnknownOutcome { .. }
                | Self::Poisoned { .. }
                | Self::Closed
                | Self::TopicDeleted { .. }
        )
    }
}

fn at(offset: Option<Offset>) -> String {
    offset.map_or_else(|| "none".to_owned(), |offset| format!("at offset {offset}"))
}
