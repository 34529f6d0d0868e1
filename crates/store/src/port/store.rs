//! The whole store: every read port, and the one way to write.

use async_trait::async_trait;
use promethean_model::{Durability, Offset};

use super::{
    Batch, CatalogReads, CommitError, CursorReads, Damage, DedupeReads, DocReads, EventReads, OutboxReads,
    RowReads, Watch,
};

/// What the rest of the system holds, as `Arc<dyn Store>`.
#[async_trait]
pub trait Store:
    EventReads
    + CursorReads
    + DocReads
    + CatalogReads
    + DedupeReads
    + OutboxReads
    + RowReads
    + Watch
    + Send
    + Sync
    + 'static
{
    /// Writes a batch: all of it or nothing. When it returns, every reader sees it, and a durable batch has survived
    /// what the receipt says. Two things are seen at other times: events acknowledged as `os` only once they are
    /// synced, since no reader may see what a power cut could take back; and the events of a batch may be seen a moment
    /// before its state. Every error but [`CommitError::UnknownOutcome`] means that nothing was written. Dropping
    /// the future does not stop a batch that was already accepted.
    async fn commit(&self, batch: Batch) -> Result<Receipt, CommitError>;

    /// Commits batches in their order, each on its own: one that is refused does not stop those after it. For callers
    /// with many batches at hand this is cheaper than one commit after another, and keeps their order where commits
    /// running side by side would not.
    async fn commit_many(&self, batches: Vec<Batch>) -> Vec<Result<Receipt, CommitError>> {
        let mut results = Vec::with_capacity(batches.len());
        for batch in batches {
            results.push(self.commit(batch).await);
        }
        results
    }

    /// Removes some of what time has ended: expired dedupe marks, documents of dropped collections. Each call does a
    /// bounded amount of work and returns whether there is more.
    async fn sweep(&self, now_ms: i64) -> Result<bool, CommitError>;

    /// How the store is.
    fn health(&self) -> Health;

    /// Refuses new batches, finishes the accepted ones, and closes. Calling it again does nothing.
    async fn close(&self);
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Where each event is, in the order of the batch.
    pub events: Vec<Placed>,
    /// What the batch has survived. `None`: it is in this process's memory only (the memory store, derived batches).
    pub durability: Option<Durability>,
}

impl Receipt {
    /// The word for acknowledgements.
    pub fn durability_word(&self) -> &'static str {
        self.durability.map_or("memory", Durability::as_str)
    }
}

/// Where an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its place in the topic; for a duplicate, the place of the first.
    pub offset: Offset,
    /// Its time; for a duplicate, that of the first.
    pub ts: i64,
    /// Whether an event with the same id was already there.
    pub duplicate: bool,
}

/// How a store is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Why it takes no batches, if so: full, poisoned or closed. Reads go on.
    pub refusing: Option<String>,
    /// Ranges of events that cannot be read.
    pub damage: Vec<Damage>,
}
