//! The store: every read port, and the writes.

use async_trait::async_trait;
use promethean_log::LogFigures;
use promethean_model::{Durability, GroupName, Offset, TopicName};

use super::{
    AppendEvent, Backups, Batch, CatalogReads, Class, CommitError, CursorReads, Damage, DedupeReads,
    DocReads, EventReads, OutboxReads, RowReads, Watch,
};

/// A place in a line of writers. A writer holds its turn until its events have their offsets, so that the events of the
/// next writer come after them.
pub type Turn = tokio::sync::OwnedMutexGuard<()>;

/// A store, which the rest of the system holds as `Arc<dyn Store>`.
///
/// Every change that a caller asks for is a [`Batch`] given to [`Store::commit`], or an event given to
/// [`Store::append_each`], which is a batch of its own. [`Store::sweep`] removes only what has expired.
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
    + Backups
    + Send
    + Sync
    + 'static
{
    /// Writes a batch: all of it or nothing. When this returns, every reader sees the batch, and a durable batch is kept as
    /// the receipt promises. There are two exceptions: readers see events acknowledged as `os` only once they are synced,
    /// since no reader may see an event that a power cut could take back; and readers may see the events of a batch a
    /// moment before its state. Every error except [`CommitError::UnknownOutcome`] means that nothing was written.
    /// Dropping the future does not stop a batch that was already accepted.
    async fn commit(&self, batch: Batch) -> Result<Receipt, CommitError>;

    /// Checks whether a derived batch would be committed now; writes nothing. For collections that only the caller writes,
    /// the answer holds until the caller commits.
    async fn check_derived(&self, batch: &Batch) -> Result<(), CommitError>;

    /// As [`Store::commit`]; the turn ends as soon as the batch has its place in the order of batches.
    async fn commit_in_turn(&self, batch: Batch, turn: Option<Turn>) -> Result<Receipt, CommitError> {
        let receipt = self.commit(batch).await;
        drop(turn);
        receipt
    }

    /// Appends events in their order, each accepted or refused by itself, as if each were a batch of its own. For a
    /// publisher with several events that do not depend on each other; together they cost little more than one. `None`
    /// takes the store's default durability. The turn ends as soon as the events have their offsets.
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

    /// Removes expired dedupe marks and documents of dropped collections. Each call does a bounded amount of work and
    /// returns whether there is more.
    async fn sweep(&self, now_ms: i64) -> Result<bool, CommitError>;

    /// Keeps the events of a topic from an offset on for a group of the server itself; replaces the group's earlier hold on
    /// the topic; `None` ends it. Retention and compaction keep held events for as long as there is space. A hold is
    /// forgotten at each open.
    fn hold(&self, topic: &TopicName, holder: &GroupName, from: Option<Offset>);

    /// Says that all holds are set: retention and compaction may begin. Without this call they begin a minute after the
    /// open.
    fn holds_are_set(&self);

    /// The condition of the store.
    fn health(&self) -> Health;

    /// Figures for the operator, from memory; `None` for a store without files.
    fn figures(&self) -> Option<LogFigures> {
        None
    }

    /// Refuses new batches, finishes the accepted batches, and closes. A second call does nothing.
    async fn close(&self);
}

/// The result of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The place of each event, in the order of the batch.
    pub events: Vec<Placed>,
    /// The durability of the batch. `None`: it is kept in the memory of this process only (the memory store, derived
    /// batches).
    pub durability: Option<Durability>,
}

impl Receipt {
    /// The word for this durability in acknowledgements.
    pub fn durability_word(&self) -> &'static str {
        self.durability.map_or("memory", Durability::as_str)
    }
}

/// The result of one event of [`Store::append_each`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The place of the event.
    pub placed: Placed,
    /// The durability, as in [`Receipt`].
    pub durability: Option<Durability>,
}

impl Appended {
    /// The only event of a receipt.
    pub(crate) fn only(receipt: Receipt) -> Result<Self, CommitError> {
        let durability = receipt.durability;
        let placed = receipt.events.first().copied();
        let lost = || CommitError::UnknownOutcome { reason: "the receipt names no event".to_owned() };
        placed.map(|placed| Self { placed, durability }).ok_or_else(lost)
    }
}

/// The place and time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its offset; for a duplicate, the offset of the first event.
    pub offset: Offset,
    /// Its time; for a duplicate, the time of the first event.
    pub ts: i64,
    /// Whether an event with the same id was already there.
    pub duplicate: bool,
}

/// The condition of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Why the store refuses batches: it is full, poisoned or closed. Reads still work. `None`: it accepts batches.
    pub refusing: Option<String>,
    /// Why the store answers late or refuses some requests as busy: a step hangs, or descriptors are missing. `None`: it
    /// works as it should.
    pub degraded: Option<String>,
    /// Ranges of events that cannot be read.
    pub damage: Vec<Damage>,
}
