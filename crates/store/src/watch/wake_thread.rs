//! Wakes the followers of topics that have many, in waves.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use super::FollowedTopic;
use promethean_model::IgnorePoison;

/// About how long one follower works on an event. While the followers of a wave still work, the next wave waits: it then
/// covers all events that came meanwhile, which is less work for every follower.
const PACE: Duration = Duration::from_micros(10);
/// The longest time between two waves.
const PACE_MAX: Duration = Duration::from_millis(10);

/// The thread that wakes followers. It starts with its first work.
#[derive(Debug, Default)]
pub(super) struct WakeThread {
    shared: Arc<WakeShared>,
    thread: OnceLock<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct WakeShared {
    state: Mutex<WakeQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WakeQueue {
    /// Topics whose followers are to be woken, each once.
    due: Vec<Arc<FollowedTopic>>,
    stopped: bool,
}

impl WakeThread {
    /// Lets the thread wake the followers of this topic. `false`: there is no thread, and the caller must wake them.
    pub(super) fn wake_soon(&self, followed: Arc<FollowedTopic>) -> bool {
        let start = || {
            let shared = Arc::clone(&self.shared);
            // Without a thread the caller wakes all followers at once.
            std::thread::Builder::new().name("wake".to_owned()).spawn(move || shared.run()).ok()
        };
        if self.thread.get_or_init(start).is_none() {
            return false;
        }
        let mut state = self.shared.lock();
        if state.stopped {
            return false;
        }
        state.due.push(followed);
        drop(state);
        self.shared.changed.notify_one();
        true
    }
}

impl Drop for WakeThread {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
        // A task that the thread wakes may drop the last handle of the store: then this runs on the thread itself.
        if let Some(Some(thread)) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // An error is a panic of the thread, which was reported.
            let _ = thread.join();
        }
    }
}

/// Wakes the remaining followers when the thread ends, also after a panic.
struct WakeRest<'a>(&'a WakeShared);

impl Drop for WakeRest<'_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        for followed in std::mem::take(&mut self.0.lock().due) {
            followed.wake_all();
        }
    }
}

impl WakeShared {
    fn run(&self) {
        let _rest = WakeRest(self);
        while let Some(due) = self.wait() {
            let woken: u32 = due.iter().map(|followed| followed.wake_all()).sum();
            let pace = PACE.saturating_mul(woken).min(PACE_MAX);
            let state = self.lock();
            let waited = self.changed.wait_timeout_while(state, pace, |state| !state.stopped);
            drop(waited.ignore_poison());
        }
    }

    /// Waits for topics whose followers are to be woken; `None` when the thread must stop.
    fn wait(&self) -> Option<Vec<Arc<FollowedTopic>>> {
        let state = self.lock();
        let idle = |state: &mut WakeQueue| state.due.is_empty() && !state.stopped;
        let mut state = self.changed.wait_while(state, idle).ignore_poison();
        if state.stopped { None } else { Some(std::mem::take(&mut state.due)) }
    }

    fn lock(&self) -> MutexGuard<'_, WakeQueue> {
        // Each change is one operation, so a panic elsewhere leaves the queue whole.
        self.state.lock().ignore_poison()
    }
}
