//! Wakes the followers of topics that have many, in waves.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Followed;
use promethean_model::IgnorePoison;

/// What one follower has to do with an event takes about this long. While a wave is at work nobody is helped by the
/// next one: what comes meanwhile is taken along by it, which is less work for all.
const PACE: Duration = Duration::from_micros(10);
/// The longest time between two waves.
const PACE_MAX: Duration = Duration::from_millis(10);

/// A thread that is there from the first time it has something to do.
#[derive(Debug, Default)]
pub(super) struct Herald {
    shared: Arc<Shared>,
    thread: OnceLock<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Topics with news, each once.
    due: Vec<Arc<Followed>>,
    stopped: bool,
}

impl Herald {
    /// Followers of this topic are to be woken. `false`: that must be done by the caller.
    pub(super) fn tell(&self, followed: Arc<Followed>) -> bool {
        let start = || {
            let shared = Arc::clone(&self.shared);
            // Without a thread everyone is woken at once, which is as right.
            std::thread::Builder::new().name("herald".to_owned()).spawn(move || shared.run()).ok()
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

impl Drop for Herald {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
        // A task that it wakes may be the last to hold the store.
        if let Some(Some(thread)) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // It has nothing to tell but a panic, which was reported.
            let _ = thread.join();
        }
    }
}

/// However the thread ends, nobody is left waiting for it.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.lock().stopped = true;
        for followed in std::mem::take(&mut self.0.lock().due) {
            followed.wake_all();
        }
    }
}

impl Shared {
    fn run(&self) {
        let _over = Over(self);
        while let Some(due) = self.wait() {
            let woken: u32 = due.iter().map(|followed| followed.wake_all()).sum();
            let pace = PACE.saturating_mul(woken).min(PACE_MAX);
            let state = self.lock();
            let waited = self.changed.wait_timeout_while(state, pace, |state| !state.stopped);
            drop(waited.ignore_poison());
        }
    }

    /// The topics with news; `None` when it is over.
    fn wait(&self) -> Option<Vec<Arc<Followed>>> {
        let state = self.lock();
        let idle = |state: &mut State| state.due.is_empty() && !state.stopped;
        let mut state = self.changed.wait_while(state, idle).ignore_poison();
        if state.stopped { None } else { Some(std::mem::take(&mut state.due)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one operation, so a panic elsewhere leaves it whole.
        self.state.lock().ignore_poison()
    }
}
