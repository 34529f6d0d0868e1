//! The whole store: every read port, and the one way to write.

use async_trait::async_trait;
use promethean_model::{Durability, GroupName, Offset, TopicName};

use super::{
    AppendEvent, Batch, CatalogReads, Class, CommitError, CursorReads, Damage, DedupeReads, DocReads,
    EventReads, OutboxReads, RowReads, Watch,
};

/// A place in a line of writers. Whoever writes in turn holds it until what is written has its place in the log, so that
/// the next one's comes after.
pub type Turn = tokio::sync::OwnedMutexGuard<()>;

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

    /// Whether a derived batch would be committed now; nothing is written. What is true of collections that only the
    /// caller writes stays so until the caller commits.
    async fn check_derived(&self, batch: &Batch) -> Result<(), CommitError>;

    /// As [`Store::commit`]; the turn ends as soon as the batch has its place.
    async fn commit_in_turn(&self, batch: Batch, turn: Option<Turn>) -> Result<Receipt, CommitError> {
        let receipt = self.commit(batch).await;
        drop(turn);
        receipt
    }

    /// Appends events in their order, each accepted or refused by itself. For a publisher with several events at hand
    /// that do not depend on each other; together they cost little more than one. `None` takes the store's default
    /// durability. The turn ends as soon as the events have their places.
    async fn append_each(
        &self,
        events: Vec<AppendEvent>,
        durability: Option<Durability>,
        turn: Option<Turn>,
    ) -> Vec<Result<Appended, CommitError>> {
        let mut results = Vec::with_capacity(events.len());
        for event in events {
            let receipt = self.commit(Batch::of(Class::Durable(durability)).event(event)).await;
            results.push(receipt.and_then(Appended::only));
        }
        drop(turn);
        results
    }

    /// Removes some of what time has ended: expired dedupe marks, documents of dropped collections. Each call does a
    /// bounded amount of work and returns whether there is more.
    async fn sweep(&self, now_ms: i64) -> Result<bool, CommitError>;

    /// A group of the server's own needs a topic from an offset on, in place of what it needed before; with `None`,
    /// nothing of it. Retention and compaction leave those events alone for as long as there is space. Forgotten at each open.
    fn hold(&self, topic: &TopicName, holder: &GroupName, from: Option<Offset>);

    /// All who need events have said so: retention and compaction may begin. Without this they do so by themselves, a
    /// minute after the open.
    fn holds_are_set(&self);

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

/// What became of an event that was appended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Where it is.
    pub placed: Placed,
    /// As in [`Receipt`].
    pub durability: Option<Durability>,
}

impl Appended {
    /// What a receipt says of its one event.
    pub(crate) fn only(receipt: Receipt) -> Result<Self, CommitError> {
        let durability = receipt.durability;
        let placed = receipt.events.first().copied();
        let lost = || CommitError::UnknownOutcome { reason: "the receipt names no event".to_owned() };
        placed.map(|placed| Self { placed, durability }).ok_or_else(lost)
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
