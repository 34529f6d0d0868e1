//! Why state could not be read or changed, and why a projector fails at an event.
//!
//! Messages are for people and say what to do; `code()` is for programs.

use promethean_bus::BusError;
use promethean_model::{CollectionName, GroupName, TopicName};
use promethean_store::port::{CommitError, ReadError};
use thiserror::Error;

/// Every error that this crate returns.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ProjectionError {
    /// An error of the bus.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The store could not read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store refused a commit.
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
    /// The projector does not exist.
    #[error("projector `{name}` does not exist; `GET /ops` lists the projectors")]
    UnknownProjector {
        /// The name asked for.
        name: GroupName,
    },
    /// The projector is being rebuilt already.
    #[error("projector `{name}` is being rebuilt; wait until `GET /ops` says that the rebuild is done")]
    Rebuilding {
        /// The projector.
        name: GroupName,
    },
    /// The projector cannot be resumed: only a rebuild helps.
    #[error("projector `{name}` cannot go on with the state it has: {reason}")]
    RebuildNeeded {
        /// The projector.
        name: GroupName,
        /// Why.
        reason: String,
    },
    /// The document does not exist.
    #[error("collection `{collection}` has no document `{key}`")]
    UnknownDocument {
        /// The collection.
        collection: CollectionName,
        /// The key asked for.
        key: String,
    },
    /// No collection is the default one.
    #[error(
        "no collection is the default one; name a collection, or set `default = true` for one in the configuration"
    )]
    NoDefault,
    /// A projector writes the collection.
    #[error(
        "collection `{collection}` is written by projector `{name}`; remove the projector from the configuration first"
    )]
    CollectionInUse {
        /// The collection.
        collection: CollectionName,
        /// The projector that writes it.
        name: GroupName,
    },
    /// Events that are needed are no longer kept.
    #[error(
        "topic `{topic}` no longer has the events before {}; {fix}",
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
    /// The answer would need more than the limit.
    #[error("{what} is larger than {max}; {fix}")]
    TooLarge {
        /// The thing that is too large.
        what: String,
        /// The limit.
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
    /// The server is shutting down.
    #[error("the server is shutting down; connect again")]
    Closed,
}

impl ProjectionError {
    /// The stable word for this error.
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

    /// Whether the same call may succeed later without any change by a person.
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

/// Why a projector could not deal with an event, and so what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProjectFailure {
    /// The event is at fault, or the program is at this event: the event is tried again, then given up.
    Event(String),
    /// The program took too long for this event, and would again: the event is given up without another try.
    TooSlow(String),
    /// The program keeps too many threads: the event is tried again once it gives one back.
    Stuck(String),
    /// Going on would make it worse: the projector halts.
    Halt(String),
    /// The store or the bus does not work now: the same is tried again until it does.
    Later(String),
}

impl ProjectFailure {
    pub(crate) fn of_read(error: &ReadError) -> Self {
        // Damage stays; anything else may pass.
        match error {
            ReadError::CorruptRange(_) => Self::Halt(error.to_string()),
            _ => Self::Later(error.to_string()),
        }
    }

    pub(crate) fn of_publish(error: &BusError) -> Self {
        let reason = format!("its publish was refused: {error}");
        match error {
            error if error.is_retryable() => Self::Later(reason),
            BusError::Busy { .. } | BusError::StorageFailed { .. } => Self::Later(reason),
            _ => Self::Event(reason),
        }
    }

    pub(crate) fn of_commit(error: &CommitError) -> Self {
        let reason = error.to_string();
        match error {
            CommitError::UniqueViolation { .. }
            | CommitError::BadDocument { .. }
            | CommitError::TooLarge { .. }
            | CommitError::DocConflict { .. } => Self::Event(reason),
            CommitError::Fenced { .. }
            | CommitError::BeyondEnd { .. }
            | CommitError::UnknownCollection { .. } => Self::Halt(reason),
            _ => Self::Later(reason),
        }
    }
}
