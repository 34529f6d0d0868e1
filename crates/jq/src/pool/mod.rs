//! The threads that programs run on, and the watchdog over them.
//!
//! Threads start when there is work and end when there is none for a while. A thread that a program does not
//! give back in time is lost: the caller is told, another thread takes its place, and at most [`LOST_MAX`]
//! threads are given up. A lost thread ends when its program returns after all.
//!
//! Jobs run in the order they came. Each [`Lane`] has a bound of its own, so that jobs of one lane never take
//! the places of another.

mod answer;
mod clock;
mod state;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use promethean_model::IgnorePoison;
use serde::Serialize;

pub use self::answer::JobAnswer;
use self::clock::ThreadClock;
use self::state::{PoolJob, PoolState, RefusedJob};
use super::watch::JobWatch;

/// Bytes of a thread's stack. Its pages are touched only as far as a program is nested.
pub(super) const STACK_BYTES: usize = 256 << 20;
/// Bytes of the watchdog's stack.
const WATCHDOG_STACK_BYTES: usize = 256 << 10;
/// Threads at work at a time.
const WORKERS_MAX: usize = 4;
/// Threads given up, at most; beyond, the threads that are left must do.
const LOST_MAX: usize = 8;
/// Jobs of publishers that wait; the next one is refused.
const PUBLISH_MAX: usize = 4_096;
/// Jobs of readers that wait or run; the next one waits until one of them is done.
const READ_MAX: usize = 256;
/// Jobs over whole topics that wait or run: they leave all threads but one to others.
const BULK_MAX: usize = 1;
/// How often the watchdog looks, while there is work.
const TICK: Duration = Duration::from_millis(50);
/// Ticks that a call may take to notice that its time is over.
const GRACE_TICKS: u32 = 20;
/// How many times its ticks a call may wait for a processor before they count: a busy machine is no fault of
/// the program.
const STARVED_MAX: u32 = 20;
/// Nanoseconds that a thread works in a tick, at least, if it has a processor.
const TICK_WORK_NANOS: u64 = TICK.as_nanos() as u64 / 5;
/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// The threads that programs run on. Cheap to clone. When the last clone is dropped, jobs that were given to
/// it are still done, and then its threads end.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    owner: Arc<PoolOwner>,
}

/// Tells the threads to end when the last [`Pool`] is dropped.
#[derive(Debug, Default)]
struct PoolOwner {
    shared: Arc<PoolShared>,
}

#[derive(Debug, Default)]
struct PoolShared {
    state: Mutex<PoolState>,
    /// Wakes threads without work.
    work: Condvar,
    /// Wakes the watchdog when a job begins.
    watch: Condvar,
}

/// The kind of caller that waits for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A publisher, which is refused at once when too many jobs wait.
    Publish,
    /// A reader of events, which waits for a place.
    Read,
    /// Work over a whole topic, which gets one thread at most, never the last one.
    Bulk,
}

/// Why a job was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolError {
    /// A call took too long and did not end.
    Time {
        /// The number of the call in its job, from 1. The calls before it had ended.
        call: u32,
    },
    /// Too many jobs wait now.
    Busy,
    /// No thread is left: programs did not give them back, or the system has none.
    NoThread,
}

/// How many threads and jobs there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PoolStatus {
    /// Threads that work or wait for work.
    pub workers: usize,
    /// Threads that a program did not give back.
    pub lost: usize,
    /// Jobs that wait for a thread.
    pub waiting: usize,
}

impl Pool {
    /// A pool without threads; they start with the first job.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many threads and jobs there are now.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        let state = self.owner.shared.lock();
        PoolStatus { workers: state.workers, lost: state.lost, waiting: state.queue.len() }
    }

    /// Gives a job to the pool. Each of its calls may take `time`.
    pub fn work<T: Send + 'static>(
        &self,
        lane: Lane,
        time: Duration,
        job: impl FnOnce(&JobWatch) -> T + Send + 'static,
    ) -> JobAnswer<T> {
        let (reply, answer) = answer::pair();
        self.owner.shared.add(PoolJob::new(lane, time, reply, job));
        answer
    }
}

impl Drop for PoolOwner {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        self.shared.watch.notify_all();
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // No change of the state is left half done by a panic.
        self.state.lock().ignore_poison()
    }

    fn add(self: &Arc<Self>, job: PoolJob) {
        let mut state = self.lock();
        let refused = state.add(job, |state| self.start(state));
        drop(state);
        self.work.notify_one();
        refuse(refused);
    }

    /// Frees the place of a job in its lane; the next job of the lane takes it.
    fn release(self: &Arc<Self>, state: &mut PoolState, lane: Lane) -> Vec<RefusedJob> {
        let refused = state.release(lane, |state| self.start(state));
        if !state.queue.is_empty() {
            self.work.notify_one();
        }
        refused
    }

    /// Starts a thread, and the watchdog before the first one; `false` if the system has none.
    fn start(self: &Arc<Self>, state: &mut PoolState) -> bool {
        let spawn = |name: &str, stack: usize, run: fn(&Arc<Self>)| {
            let shared = Arc::clone(self);
            let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(stack);
            builder.spawn(move || run(&shared)).is_ok()
        };
        if !state.watched {
            state.watched = spawn("jq-watchdog", WATCHDOG_STACK_BYTES, Self::watch);
        }
        let started = state.watched && spawn("jq", STACK_BYTES, Self::serve);
        state.workers += usize::from(started);
        started
    }

    /// The loop of a thread: does one job after the other.
    fn serve(self: &Arc<Self>) {
        let clock = ThreadClock::of_this_thread().map(Arc::new);
        let mut state = self.lock();
        loop {
            let Some(job) = state.take() else {
                if state.closed {
                    return self.end_thread(state);
                }
                state.idle += 1;
                let (again, waited) = self.work.wait_timeout(state, IDLE).ignore_poison();
                state = again;
                state.idle -= 1;
                if waited.timed_out() && state.queue.is_empty() {
                    return self.end_thread(state);
                }
                continue;
            };
            let lane = job.lane;
            let (number, watch, work) = state.begin(job, clock.clone());
            let ticking = state.ticking;
            drop(state);
            if !ticking {
                self.watch.notify_one();
            }
            // A job that panics drops its reply, which answers its caller.
            let _ = catch_unwind(AssertUnwindSafe(|| work(&watch)));
            state = self.lock();
            if !state.end(number) {
                // The watchdog gave this thread up, and has marked the job before it let go of the lock.
                watch.give_back();
                state.lost -= 1;
                return;
            }
            let refused = self.release(&mut state, lane);
            drop(state);
            refuse(refused);
            state = self.lock();
        }
    }

    fn end_thread(&self, mut state: MutexGuard<'_, PoolState>) {
        state.workers -= 1;
        if state.closed {
            self.watch.notify_one();
        }
    }

    /// The loop of the watchdog: ends calls whose time is over, and gives up threads that do not come back.
    fn watch(self: &Arc<Self>) {
        let mut state = self.lock();
        loop {
            if state.running.is_empty() {
                if state.closed && state.workers == 0 {
                    return;
                }
                state = self.watch.wait(state).ignore_poison();
                continue;
            }
            state.ticking = true;
            state = self.watch.wait_timeout(state, TICK).ignore_poison().0;
            state.ticking = false;
            let given_up = state.tick();
            if given_up.is_empty() {
                continue;
            }
            for running in &given_up {
                running.watch.give_up();
                state.workers -= 1;
                state.lost += 1;
                if state.may_start() && !state.queue.is_empty() {
                    self.start(&mut state);
                }
            }
            let mut refused = Vec::new();
            for running in &given_up {
                refused.extend(self.release(&mut state, running.lane));
            }
            // Without a thread, jobs would wait in vain.
            while state.workers == 0
                && let Some(job) = state.take()
            {
                refused.extend(self.release(&mut state, job.lane));
                refused.push(RefusedJob { job, why: PoolError::NoThread });
            }
            drop(state);
            for running in given_up {
                let call = running.call();
                (running.fail)(PoolError::Time { call });
            }
            refuse(refused);
            state = self.lock();
        }
    }
}

/// Tells the callers, without the lock: what they do then is theirs.
fn refuse(refused: Vec<RefusedJob>) {
    for RefusedJob { job, why } in refused {
        (job.fail)(why);
    }
}
