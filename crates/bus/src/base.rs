//! What every part of the bus needs: store, clock, options, metrics and tasks.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use promethean_delivery::{MemberNo, Now};
use promethean_model::{Clock, IdMint};
use promethean_store::port::{LogBackup, Store};
use tokio::sync::{oneshot, watch};

use crate::error::BusError;
use crate::metrics::BusMetrics;
use crate::options::BusOptions;
use crate::pulse::Pulse;
use crate::tasks::Tasks;

/// A backup that is being read.
#[derive(Debug)]
pub(crate) struct BackupSession {
    /// Its name, which the reader gives with every request.
    pub(crate) id: String,
    /// When its point was taken.
    pub(crate) taken_ms: i64,
    pub(crate) point: Arc<LogBackup>,
    /// When it was last read, on the monotonic clock.
    pub(crate) used_ms: u64,
}

/// The lowest layer of one bus. Topics, schemas, dead letters and groups each add their own state above it.
pub(crate) struct Base {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: BusOptions,
    pub(crate) mint: IdMint,
    pub(crate) metrics: BusMetrics,
    pub(crate) pulse: Arc<Pulse>,
    /// Tasks that deliver and change things.
    pub(crate) tasks: Tasks,
    /// Tasks that run handlers. They end before the owners that their acks go to.
    pub(crate) consumers: Tasks,
    /// Tasks that work in the background for as long as the bus is open.
    pub(crate) housekeeping: Tasks,
    /// The backup that is being read.
    pub(crate) backup: tokio::sync::Mutex<Option<BackupSession>>,
    /// Set once, by `Bus::close`, when no new work is taken any more.
    closed: AtomicBool,
    /// Becomes true when the bus begins to close, for tasks that wait for something else.
    pub(crate) shutdown: watch::Sender<bool>,
    next_member: AtomicU64,
}

impl Base {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        options: BusOptions,
        mint: IdMint,
        metrics: BusMetrics,
    ) -> Self {
        Self {
            store,
            clock,
            options,
            mint,
            metrics,
            pulse: Arc::new(Pulse::new()),
            tasks: Tasks::default(),
            consumers: Tasks::default(),
            housekeeping: Tasks::default(),
            backup: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
            shutdown: watch::channel(false).0,
            next_member: AtomicU64::new(1),
        }
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic_ms: self.clock.monotonic_ms(), wall_ms: self.clock.wall_ms() }
    }

    /// A member number that no member of this process has had.
    pub(crate) fn next_member(&self) -> MemberNo {
        MemberNo(self.next_member.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Takes no new work from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Runs a change on a task of the bus, so that a commit and what follows from it stay together: a caller that stops
    /// waiting stops neither.
    pub(crate) async fn run_to_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, BusError>> + Send + 'static,
    ) -> Result<T, BusError> {
        if self.is_closed() {
            return Err(BusError::Closed);
        }
        let (answer, answered) = oneshot::channel();
        self.tasks.spawn(async move {
            // The caller may have stopped waiting.
            let _ = answer.send(change.await);
        });
        answered.await.unwrap_or(Err(BusError::Closed))
    }
}

impl std::fmt::Debug for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Base").field("options", &self.options).finish_non_exhaustive()
    }
}
