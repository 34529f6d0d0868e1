//! Why state could not be read or changed. Messages are for people and say what to do; `code()` is for programs.

use promethean_bus::BusError;
use promethean_model::{CollectionName, GroupName, TopicName};
use promethean_store::port::{CommitError, ReadError};
use thiserror::Error;

/// Every refusal of this crate.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ProjectionError {
    /// What the bus said.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// What the store said of a read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What the store said of a write.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A declaration that cannot work.
    #[error("{what}: {reason}")]
    BadDeclaration {
        /// What was declared.
        what: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// No such projector.
    #[error("projector `{name}` does not exist; see `GET /ops` for those there are")]
    UnknownProjector {
        /// The name asked for.
        name: GroupName,
    },
    /// It is being rebuilt already.
    #[error("projector `{name}` is being rebuilt; wait until `GET /ops` says that it is done")]
    Rebuilding {
        /// The projector.
        name: GroupName,
    },
    /// Only a rebuild helps.
    #[error("projector `{name}` cannot go on with the state it has: {reason}")]
    RebuildNeeded {
        /// The projector.
        name: GroupName,
        /// Why.
        reason: String,
    },
    /// No such document.
    #[error("collection `{collection}` has no document `{key}`")]
    UnknownDocument {
        /// The collection.
        collection: CollectionName,
        /// The key asked for.
        key: String,
    },
    /// There is no default collection.
    #[error(
        "no collection is the default one; name it, or set `default = true` for one in the configuration"
    )]
    NoDefault,
    /// A projector writes the collection.
    #[error(
        "collection `{collection}` is written by projector `{name}`; take that out of the configuration first"
    )]
    CollectionInUse {
        /// The collection.
        collection: CollectionName,
        /// Who writes it.
        name: GroupName,
    },
    /// Events that are needed are no longer kept.
    #[error(
        "topic `{topic}` no longer has what came before {}; {fix}",
        earliest.map_or("its end".to_owned(), |ts| format!("{ts} (epoch ms)"))
    )]
    HistoryGone {
        /// The topic.
        topic: TopicName,
        /// The time of the oldest event that is kept.
        earliest: Option<i64>,
        /// What to do.
        fix: &'static str,
    },
    /// The key had no state then.
    #[error("key `{key}` of topic `{topic}` has no state at {at}; ask for a later time, or check the key")]
    UnknownAt {
        /// The topic.
        topic: TopicName,
        /// The key.
        key: String,
        /// The time asked for, epoch ms.
        at: i64,
    },
    /// The collection keeps no history.
    #[error("collection `{collection}` keeps no history; set `history = true` for it in the configuration")]
    NoHistory {
        /// The collection.
        collection: CollectionName,
    },
    /// More than can be answered at once.
    #[error("{what} is larger than {max}; {fix}")]
    TooLarge {
        /// What there is too much of.
        what: String,
        /// How much there may be.
        max: usize,
        /// What to do.
        fix: &'static str,
    },
    /// A reducer failed.
    #[error("the reducer of topic `{topic}` failed at offset {offset}: {reason}")]
    ReducerFailed {
        /// The topic.
        topic: TopicName,
        /// The event.
        offset: u64,
        /// Why.
        reason: String,
    },
    /// Everything is shutting down.
    #[error("the server is shutting down; connect again")]
    Closed,
}

impl ProjectionError {
    /// A stable word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Bus(error) => error.code(),
            Self::Read(error) => error.code(),
            Self::Commit(error) => error.code(),
            Self::BadDeclaration { .. } => "bad_declaration",
            Self::UnknownProjector { .. } => "unknown_projector",
            Self::Rebuilding { .. } => "rebuilding",
            Self::RebuildNeeded { .. } => "rebuild_needed",
            Self::UnknownDocument { .. } | Self::UnknownAt { .. } => "not_found",
            Self::NoDefault => "no_default_collection",
            Self::CollectionInUse { .. } => "collection_in_use",
            Self::HistoryGone { .. } => "history_gone",
            Self::NoHistory { .. } => "no_history",
            Self::TooLarge { .. } => "too_large",
            Self::ReducerFailed { .. } => "reducer_failed",
            Self::Closed => "closed",
        }
    }

    /// Whether the same may work later, without anything being changed.
    pub(crate) const fn may_heal(&self) -> bool {
        match self {
            Self::Bus(error) => {
                error.is_retryable()
                    || matches!(error, BusError::Busy { .. } | BusError::StorageFailed { .. })
            }
            Self::Read(error) => matches!(error, ReadError::Storage { .. } | ReadError::Closed),
            Self::Commit(error) => error.is_retryable() || matches!(error, CommitError::Storage { .. }),
            _ => false,
        }
    }
}
