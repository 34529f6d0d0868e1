//! Small tables. The layer above the store defines the bytes of their rows.

use async_trait::async_trait;

use super::ReadError;

/// The tables. Their numbers are persisted: never change or reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Table {
    /// Failed deliveries per group and event.
    Attempts = 1,
    /// Open dead letters.
    DeadLetters = 2,
    /// Schema versions per topic.
    Schemas = 3,
    /// Options of groups, set when they are created.
    Groups = 4,
    /// Projectors: their definitions and the progress of their rebuilds.
    Projectors = 5,
    /// Snapshot and changefeed bookkeeping.
    Snapshots = 6,
    /// Resume tokens of changefeeds from other databases.
    Feeds = 7,
    /// Events that projectors gave up and whose dead letters were dropped or redriven to the topic.
    ClosedLetters = 8,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 8] = [
        Self::Attempts,
        Self::DeadLetters,
        Self::Schemas,
        Self::Groups,
        Self::Projectors,
        Self::Snapshots,
        Self::Feeds,
        Self::ClosedLetters,
    ];
}

/// A row's longest key.
pub const ROW_KEY_BYTES_MAX: usize = 4096;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its key; rows are ordered by its bytes.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// Reads of rows.
#[async_trait]
pub trait RowReads {
    /// The value at a key.
    async fn row(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError>;
    /// Rows whose key begins with `prefix`, by key, after key `after`, at most `limit`.
    async fn rows(
        &self,
        table: Table,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, ReadError>;
}
