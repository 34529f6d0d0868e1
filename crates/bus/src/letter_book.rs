//! How many dead letters are open, and who may change them now.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Mutex, MutexGuard};

use promethean_model::{GroupName, IgnorePoison, TopicName};
use promethean_store::port::{Store, Table};

use crate::error::BusError;
use crate::metrics::{BusMetrics, GroupMetrics};
use crate::rows::EventKey;

/// Rows read at once.
const ROWS_PAGE: usize = 1000;
/// Locks there are. Groups that share one wait for each other, which costs time only.
const LOCKS: usize = 64;

type Key = (TopicName, GroupName);

/// Counts open letters also of groups that nobody serves now, as the gauge must. As large as there are groups with open
/// letters.
#[derive(Debug)]
pub(crate) struct LetterBook {
    open: Mutex<HashMap<Key, Open>>,
    locks: [tokio::sync::Mutex<()>; LOCKS],
}

#[derive(Debug)]
struct Open {
    count: i64,
    metrics: GroupMetrics,
}

impl LetterBook {
    /// Counts what is stored.
    pub(crate) async fn load(store: &dyn Store, metrics: &BusMetrics) -> Result<Self, BusError> {
        let locks = std::array::from_fn(|_| tokio::sync::Mutex::new(()));
        let book = Self { open: Mutex::default(), locks };
        let mut after: Option<Vec<u8>> = None;
        loop {
            let rows = store.rows(Table::DeadLetters, b"", after.as_deref(), ROWS_PAGE).await?;
            let Some(last) = rows.last() else { return Ok(book) };
            after = Some(last.key.clone());
            for row in &rows {
                let key = EventKey::decode(&row.key, "DeadLetters")?;
                book.add(metrics, &key.topic, &key.group, 1);
            }
        }
    }

    /// Held by whoever looks at letters of a group in order to change them, until the change is committed and told to
    /// the group's owner.
    pub(crate) async fn lock(&self, topic: &TopicName, group: &GroupName) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((topic, group));
        let [first, ..] = &self.locks;
        self.locks.get(hash as usize % LOCKS).unwrap_or(first).lock().await
    }

    /// So many more letters are open, or fewer.
    pub(crate) fn add(&self, metrics: &BusMetrics, topic: &TopicName, group: &GroupName, change: i64) {
        if change == 0 {
            return;
        }
        let key = (topic.clone(), group.clone());
        let mut open = self.lock_open();
        let entry = open
            .entry(key.clone())
            .or_insert_with(|| Open { count: 0, metrics: metrics.group(topic, group) });
        entry.count += change;
        entry.metrics.set_dead_letters(entry.count);
        if entry.count == 0 {
            open.remove(&key);
        }
    }

    /// The group, or the topic with all its groups, is deleted.
    pub(crate) fn forget(&self, topic: &TopicName, group: Option<&GroupName>) {
        self.lock_open().retain(|key, _| key.0 != *topic || group.is_some_and(|group| key.1 != *group));
    }

    fn lock_open(&self) -> MutexGuard<'_, HashMap<Key, Open>> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.open.lock().ignore_poison()
    }
}
