//! Where the history of a collection begins in its feed.

use promethean_bus::rows::feed_key;
use promethean_model::{Offset, TopicName};
use promethean_store::port::{Batch, RowOp, Store, Table};
use serde::{Deserialize, Serialize};

use crate::definition::bad;
use crate::error::ProjectionError;

/// The version of the form of [`FeedRow`].
const FEED_ROW_VERSION: u32 = 1;

/// What is stored of a feed, in the table `Snapshots`. A feed without a row does not have all documents of its
/// collection. The deletion of the feed's topic takes the row with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeedRow {
    v: u32,
    /// The first offset of the feed that counts.
    pub(crate) from: u64,
    /// The time from which on the feed has every change, epoch ms; `None` if it has all of them.
    pub(crate) since: Option<i64>,
}

impl FeedRow {
    pub(crate) const fn new(from: Offset, since: Option<i64>) -> Self {
        Self { v: FEED_ROW_VERSION, from: from.get(), since }
    }

    /// Reads the row of a feed.
    pub(crate) async fn read(store: &dyn Store, feed: &TopicName) -> Result<Option<Self>, ProjectionError> {
        let Some(value) = store.row(Table::Snapshots, &feed_key(feed)).await? else { return Ok(None) };
        let unreadable = |reason| bad(format!("the history in `{feed}`"), reason);
        let row: Self = serde_json::from_slice(&value).map_err(|error| unreadable(error.to_string()))?;
        match row.v {
            FEED_ROW_VERSION => Ok(Some(row)),
            other => Err(unreadable(format!("version {other}"))),
        }
    }

    /// Writes the row durably.
    pub(crate) async fn write(&self, store: &dyn Store, feed: &TopicName) -> Result<(), ProjectionError> {
        let value = serde_json::to_vec(self)
            .map_err(|error| bad(format!("the history in `{feed}`"), error.to_string()))?;
        let (table, key) = (Table::Snapshots, feed_key(feed));
        store.commit(Batch::new().with(RowOp::Put { table, key, value, must_be_new: false })).await?;
        Ok(())
    }

    /// Removes the row: from now on documents change without the feed.
    pub(crate) async fn remove(store: &dyn Store, feed: &TopicName) -> Result<(), ProjectionError> {
        let (table, key) = (Table::Snapshots, feed_key(feed));
        store.commit(Batch::new().with(RowOp::Delete { table, key })).await?;
        Ok(())
    }
}
