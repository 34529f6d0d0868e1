//! What the parts of the bus share.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use promethean_model::{Clock, GroupName, IdMint, TopicName};
use promethean_store::port::Store;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, broadcast, watch};
use tokio::task::JoinSet;

use crate::coordinators::Coordinators;
use crate::delivery::types::{MemberNo, Now};
use crate::group::Owners;
use crate::letter_book::LetterBook;
use crate::limits::BucketSet;
use crate::metrics::BusMetrics;
use crate::options::BusOptions;
use crate::settings::SettingsMirror;

/// Everything of one bus.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: BusOptions,
    pub(crate) mint: IdMint,
    pub(crate) metrics: BusMetrics,
    pub(crate) settings: SettingsMirror,
    pub(crate) letters: LetterBook,
    pub(crate) owners: Owners,
    pub(crate) coordinators: Coordinators,
    pub(crate) topic_rates: Option<BucketSet<TopicName>>,
    /// One is held while a group's row is read and written again; a group's name says which.
    group_rows: [AsyncMutex<()>; GROUP_ROW_LOCKS],
    pub(crate) births: broadcast::Sender<TopicName>,
    pub(crate) tasks: Tasks,
    /// Those that run handlers, which end before the owners that their acks go to.
    pub(crate) consumers: Tasks,
    pub(crate) closed: AtomicBool,
    /// Becomes true when the bus closes, for tasks that wait for something else.
    pub(crate) shutdown: watch::Sender<bool>,
    members: AtomicU64,
}

/// Groups that can be changed at the same time, about.
const GROUP_ROW_LOCKS: usize = 64;

/// Topics born that a slow subscriber to a pattern has not heard of yet; beyond, it looks at all topics again.
pub(crate) const BIRTHS_MAX: usize = 1024;

/// What [`Core::new`] is given.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: BusOptions,
    pub(crate) mint: IdMint,
    pub(crate) metrics: BusMetrics,
    pub(crate) settings: SettingsMirror,
    pub(crate) letters: LetterBook,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { store, clock, options, mint, metrics, settings, letters } = parts;
        let now_ms = clock.monotonic_ms();
        let topic_rates =
            options.topic_rate.map(|rate| BucketSet::new(rate, options.rated_topics_max, now_ms));
        Self {
            store,
            clock,
            options,
            mint,
            metrics,
            settings,
            letters,
            owners: Owners::default(),
            coordinators: Coordinators::default(),
            topic_rates,
            group_rows: std::array::from_fn(|_| AsyncMutex::new(())),
            births: broadcast::channel(BIRTHS_MAX).0,
            tasks: Tasks::default(),
            consumers: Tasks::default(),
            closed: AtomicBool::new(false),
            shutdown: watch::channel(false).0,
            members: AtomicU64::new(1),
        }
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic_ms: self.clock.monotonic_ms(), wall_ms: self.clock.wall_ms() }
    }

    /// Keeps others from changing the rows of a group.
    pub(crate) async fn hold_rows(&self, group: &GroupName) -> Option<MutexGuard<'_, ()>> {
        let hash = xxhash_rust::xxh3::xxh3_64(group.as_str().as_bytes());
        let lock = self.group_rows.get((hash % GROUP_ROW_LOCKS as u64) as usize);
        match lock {
            Some(lock) => Some(lock.lock().await),
            None => None,
        }
    }

    /// A number that no member has had.
    pub(crate) fn next_member(&self) -> MemberNo {
        MemberNo(self.members.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The tasks of the bus, all of which end before it does.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended take memory until they are joined.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Waits until every task has ended.
    pub(crate) async fn join(&self) {
        loop {
            let mut tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            if tasks.is_empty() {
                return;
            }
            while tasks.join_next().await.is_some() {}
        }
    }
}
