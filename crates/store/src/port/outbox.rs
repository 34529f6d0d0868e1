//! The outbox: rows that become events.

use async_trait::async_trait;
use promethean_model::{EventId, TopicName};

use super::ReadError;

/// The status of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutboxStatus {
    /// To be published.
    Pending,
    /// Published.
    Sent,
    /// Refused; see the row's error.
    Error,
}

/// A row of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its place in the order of adding; assigned by the store.
    pub seq: u64,
    /// The id of the event it becomes, and the row's own.
    pub id: EventId,
    /// Its status.
    pub status: OutboxStatus,
    /// When it was added, by the caller's clock.
    pub ts: i64,
    /// The topic it goes to.
    pub topic: TopicName,
    /// The event's key.
    pub key: Option<String>,
    /// The event's encoded meta.
    pub meta: Vec<u8>,
    /// The event's payload, JSON text.
    pub payload: String,
    /// Why it was refused.
    pub error: Option<String>,
}

impl OutboxStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Sent, Self::Error];

    /// The word users see.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sent => "sent",
            Self::Error => "error",
        }
    }
}

/// Reads of the outbox.
#[async_trait]
pub trait OutboxReads {
    /// Rows of a status in the order they were added, after sequence number `after`, at most `limit`.
    async fn outbox(
        &self,
        status: OutboxStatus,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<OutboxRow>, ReadError>;
    /// One row.
    async fn outbox_row(&self, id: EventId) -> Result<Option<OutboxRow>, ReadError>;
}
