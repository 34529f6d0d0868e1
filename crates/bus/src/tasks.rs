//! The tasks of the bus, all of which end before it does.

use std::future::Future;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// A future of at most so many bytes takes no more memory inside its task than on the heap.
const SMALL_TASK: usize = 32;

/// Tasks that are counted while they run, so that a close can wait for them.
#[derive(Debug)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    running: watch::Sender<usize>,
}

impl Tasks {
    /// Starts a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let running = RunningTask::new(&self.running);
        if size_of_val(&task) <= SMALL_TASK {
            self.tracker.spawn(running.during(task));
        } else {
            // A future that waits for another has room for it twice; on the heap it is there once.
            self.tracker.spawn(running.during(Box::pin(task)));
        }
    }

    /// How many tasks run now.
    pub(crate) fn len(&self) -> usize {
        *self.running.borrow()
    }

    /// Waits until every task has ended. Cancel-safe, and for any number of callers: a caller that stops waiting aborts
    /// no task.
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
struct RunningTask(watch::Sender<usize>);

impl RunningTask {
    fn new(running: &watch::Sender<usize>) -> Self {
        running.send_modify(|count| *count += 1);
        Self(running.clone())
    }

    async fn during(self, task: impl Future<Output = ()>) {
        task.await;
        drop(self);
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
