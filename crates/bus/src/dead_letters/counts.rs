//! The number of open dead letters of each group, and the locks of their letters.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use promethean_model::{GroupName, IgnorePoison, TopicName};
use promethean_store::port::Table;
use tokio::sync::MutexGuard;

use crate::base::Base;
use crate::error::BusError;
use crate::locks::StripedLock;
use crate::metrics::GroupMetrics;
use crate::rows::EventKey;
use crate::schemas::Schemas;
use crate::topics::Topics;

/// Rows read at once.
const ROWS_PAGE: usize = 1000;

/// The dead-letter layer of one bus. It counts the open letters of all groups, because the gauge must include
/// groups whose owner does not run.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    pub(crate) base: Arc<Base>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) schemas: Arc<Schemas>,
    locks: StripedLock,
    /// One entry for each group with open letters.
    open: Mutex<HashMap<(TopicName, GroupName), OpenLetters>>,
}

#[derive(Debug)]
struct OpenLetters {
    count: i64,
    metrics: GroupMetrics,
}

impl DeadLetters {
    /// Opens the layer and counts the stored letters.
    pub(crate) async fn load(schemas: Arc<Schemas>) -> Result<Self, BusError> {
        let (base, topics) = (Arc::clone(&schemas.base), Arc::clone(&schemas.topics));
        let letters = Self { base, topics, schemas, locks: StripedLock::default(), open: Mutex::default() };
        let mut after: Option<Vec<u8>> = None;
        loop {
            let rows = letters.base.store.rows(Table::DeadLetters, b"", after.as_deref(), ROWS_PAGE).await?;
            let Some(last) = rows.last() else { return Ok(letters) };
            after = Some(last.key.clone());
            for row in &rows {
                let key = EventKey::decode(&row.key, "DeadLetters")?;
                letters.add(&key.topic, &key.group, 1);
            }
        }
    }

    /// Locks the letters of a group on a topic. A task that reads letters in order to change them holds this
    /// lock until the change is committed and the group's owner knows it.
    pub(crate) async fn lock(&self, topic: &TopicName, group: &GroupName) -> MutexGuard<'_, ()> {
        self.locks.lock(&(topic, group)).await
    }

    /// The number of open letters of a group on a topic.
    pub(crate) fn count(&self, topic: &TopicName, group: &GroupName) -> u64 {
        let open = self.open.lock().ignore_poison();
        let letters = open.get(&(topic.clone(), group.clone()));
        letters.map_or(0, |letters| u64::try_from(letters.count).unwrap_or(0))
    }

    /// Changes the count of open letters.
    pub(crate) fn add(&self, topic: &TopicName, group: &GroupName, change: i64) {
        if change == 0 {
            return;
        }
        let key = (topic.clone(), group.clone());
        let mut open = self.open.lock().ignore_poison();
        let metrics = || self.base.metrics.group(topic, group);
        let entry = open.entry(key.clone()).or_insert_with(|| OpenLetters { count: 0, metrics: metrics() });
        entry.count += change;
        entry.metrics.set_dead_letters(entry.count);
        if entry.count == 0 {
            open.remove(&key);
        }
    }

    /// Removes the count of a deleted group, or of all groups of a deleted topic.
    pub(crate) fn forget(&self, topic: &TopicName, group: Option<&GroupName>) {
        let mut open = self.open.lock().ignore_poison();
        open.retain(|key, _| key.0 != *topic || group.is_some_and(|group| key.1 != *group));
    }
}
