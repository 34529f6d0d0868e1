//! What the parts of the bus share.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use promethean_delivery::{MemberNo, Now};
use promethean_model::{Clock, IdMint, TopicName};
use promethean_store::port::Store;
use tokio::sync::{broadcast, watch};
use tokio_util::task::TaskTracker;

use crate::admin::Unfinished;
use crate::changing::Changing;
use crate::coordinators::Coordinators;
use crate::follower::Followers;
use crate::group::{Committer, Owners};
use crate::letter_book::LetterBook;
use crate::limits::BucketSet;
use crate::members::Members;
use crate::metrics::BusMetrics;
use crate::options::BusOptions;
use crate::schema::Book;
use crate::settings::SettingsMirror;

/// Everything of one bus.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: BusOptions,
    pub(crate) mint: IdMint,
    pub(crate) metrics: BusMetrics,
    pub(crate) settings: SettingsMirror,
    pub(crate) schemas: Book,
    pub(crate) letters: LetterBook,
    pub(crate) owners: Owners,
    pub(crate) committer: Committer,
    pub(crate) coordinators: Coordinators,
    pub(crate) topic_rates: Option<BucketSet<TopicName>>,
    pub(crate) births: broadcast::Sender<TopicName>,
    pub(crate) tasks: Tasks,
    /// Those that run handlers, which end before the owners that their acks go to.
    pub(crate) consumers: Tasks,
    pub(crate) closed: AtomicBool,
    /// Becomes true when the bus closes, for tasks that wait for something else.
    pub(crate) shutdown: watch::Sender<bool>,
    pub(crate) members: Members,
    pub(crate) followers: Followers,
    pub(crate) unfinished: Unfinished,
    pub(crate) changing: Changing,
    next_member: AtomicU64,
}

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
    pub(crate) schemas: Book,
    pub(crate) letters: LetterBook,
}

impl Core {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { store, clock, options, mint, metrics, settings, schemas, letters } = parts;
        let now_ms = clock.monotonic_ms();
        let topic_rates =
            options.topic_rate.map(|rate| BucketSet::new(rate, options.rated_topics_max, now_ms));
        Self {
            committer: Committer::new(Arc::clone(&store)),
            store,
            clock,
            options,
            mint,
            metrics,
            settings,
            schemas,
            letters,
            owners: Owners::default(),
            coordinators: Coordinators::default(),
            topic_rates,
            births: broadcast::channel(BIRTHS_MAX).0,
            tasks: Tasks::default(),
            consumers: Tasks::default(),
            closed: AtomicBool::new(false),
            shutdown: watch::channel(false).0,
            members: Members::default(),
            followers: Followers::default(),
            unfinished: Unfinished::default(),
            changing: Changing::default(),
            next_member: AtomicU64::new(1),
        }
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic_ms: self.clock.monotonic_ms(), wall_ms: self.clock.wall_ms() }
    }

    /// A number that no member has had.
    pub(crate) fn next_member(&self) -> MemberNo {
        MemberNo(self.next_member.fetch_add(1, Ordering::Relaxed))
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

/// Bytes of a task that take no more memory where it is run than where it is made.
const SMALL_TASK: usize = 32;

/// The tasks of the bus, all of which end before it does.
#[derive(Debug)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    running: watch::Sender<usize>,
}

impl Tasks {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let running = Running::new(&self.running);
        if size_of_val(&task) <= SMALL_TASK {
            self.tracker.spawn(running.during(task));
        } else {
            // A future that waits for another has room for it twice; on the heap it is there once.
            self.tracker.spawn(running.during(Box::pin(task)));
        }
    }

    /// How many there are now.
    pub(crate) fn len(&self) -> usize {
        *self.running.borrow()
    }

    /// Waits until every task has ended. Cancel-safe, and for any number of callers: tasks are not aborted when one
    /// of them stops waiting.
    pub(crate) async fn join(&self) {
        // The sender lives as long as `self`.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self { tracker: TaskTracker::new(), running: watch::channel(0).0 }
    }
}

/// Counts a task for as long as it runs, also if it panics.
struct Running(watch::Sender<usize>);

impl Running {
    fn new(running: &watch::Sender<usize>) -> Self {
        running.send_modify(|count| *count += 1);
        Self(running.clone())
    }

    async fn during(self, task: impl Future<Output = ()>) {
        task.await;
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
