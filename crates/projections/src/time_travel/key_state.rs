//! A snapshot to begin a fold with.

use promethean_jq::Pool;
use promethean_model::{Offset, OffsetRange, TopicName};
use promethean_store::port::Store;

use super::key_history::{Backward, all_below};
use super::reducer::Reducer;
use crate::error::ProjectionError;
use crate::snapshot::{self, Snapshot};

/// A snapshot, and how much of the topic it speaks for.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) snapshot: Snapshot,
    /// No event of the key between the snapshot's offset and this one exists, or ever did.
    pub(super) covers: Offset,
}

/// What was asked for a base.
pub(super) struct Wanted<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) pool: &'a Pool,
    pub(super) topic: &'a TopicName,
    pub(super) key: &'a str,
    pub(super) at: i64,
    pub(super) reducer: &'a Reducer,
}

impl Wanted<'_> {
    /// The newest snapshot of the key whose events all have `ts` at or before the time asked for.
    pub(super) async fn nearest(&self, snapshots: &TopicName) -> Result<Option<Base>, ProjectionError> {
        // Before any snapshot is read: what the cursor has passed is in those we will see.
        let passed = self.passed(snapshots).await?;
        let end = self.store.durable_end(snapshots);
        let mut back = Backward::new(self.store, snapshots, self.key, all_below(end));
        let label = self.reducer.label();
        let mut newest = true;
        loop {
            let page = back.next_page().await?;
            if page.is_empty() {
                return Ok(None);
            }
            for snapshot in page.iter().filter_map(Snapshot::read) {
                if snapshot.is_of(&label) && snapshot.max_ts.is_some_and(|max| max <= self.at) {
                    return self.base(snapshot, snapshots, passed.filter(|_| newest)).await;
                }
                newest = false;
            }
        }
    }

    async fn base(
        &self,
        snapshot: Snapshot,
        snapshots: &TopicName,
        passed: Option<Offset>,
    ) -> Result<Option<Base>, ProjectionError> {
        if self.is_of_another_topic(&snapshot).await? {
            return Ok(None);
        }
        let mut covers = snapshot.offset;
        if let Some(passed) = passed
            && let Some(last) =
                snapshot::last(self.store, snapshots, self.store.durable_end(snapshots)).await?
            && last.by == snapshot.by
            && last.since <= snapshot.offset
        {
            covers = covers.max(passed);
        }
        Ok(Some(Base { snapshot, covers }))
    }

    /// How far the compactor has come.
    async fn passed(&self, snapshots: &TopicName) -> Result<Option<Offset>, ProjectionError> {
        let group = snapshot::group(self.topic, snapshots)?;
        Ok(self.store.cursor(&group, self.topic).await?.map(|cursor| cursor.floor))
    }

    /// Whether the snapshot is of a topic of the same name that was deleted since.
    async fn is_of_another_topic(&self, snapshot: &Snapshot) -> Result<bool, ProjectionError> {
        if snapshot.offset > self.store.durable_end(self.topic) {
            return Ok(true);
        }
        let Some(source) = snapshot.offset.prev() else { return Ok(true) };
        let there = self.store.key_history(self.topic, self.key, OffsetRange::single(source), 1).await?;
        Ok(there.first().is_some_and(|event| Some(event.id) != snapshot.source))
    }
}
