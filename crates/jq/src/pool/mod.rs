//! The threads that programs run on, and the watchdog over them.
//!
//! Threads come with work and go when there is none for a while. One that a program does not give back in time is lost:
//! whoever waits is told, another takes its place, and at most [`LOST_MAX`] are given up so. One that comes back after
//! all ends.
//!
//! Jobs are done in the order they came, but how many of a kind may be there at a time differs, see [`Lane`]: none can
//! take the place of another kind.

use promethean_model::IgnorePoison;
mod clock;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use self::clock::ThreadClock;
use super::shift::Shift;

/// Of which pages are touched only as far as a program is nested.
pub(super) const STACK_BYTES: usize = 256 << 20;
/// Threads at work at a time.
const WORKERS_MAX: usize = 4;
/// Threads given up, at most; beyond, those that are left must do.
const LOST_MAX: usize = 8;
/// Jobs that are refused if there are more of them waiting.
const ASKED_MAX: usize = 4_096;
/// Jobs of readers that are there at a time; others wait until one is done.
const READING_MAX: usize = 256;
/// Jobs over whole topics that are there at a time: they leave all threads but one to others.
const BULK_MAX: usize = 1;
/// How often the watchdog looks, while there is work.
const TICK: Duration = Duration::from_millis(50);
/// How long after its time a program may take to notice.
const GRACE_TICKS: u32 = 20;
/// So many times its ticks may pass without that a program gets to work: on a machine that is too busy that is no fault of
/// its own.
const STARVED_MAX: u32 = 20;
/// What a thread works in a tick, at least, if there is a processor for it.
const TICK_WORK_NANOS: u64 = TICK.as_nanos() as u64 / 5;
/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

static POOL: Pool = Pool::new();

pub(super) struct Pool {
    state: Mutex<State>,
    work: Condvar,
    watch: Condvar,
    reading: Semaphore,
    bulk: Semaphore,
}

/// Who waits for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A publisher, who is told at once that there is too much to do.
    Asked,
    /// A reader of events, who is given them later.
    Reading,
    /// Somebody who looks at a whole topic, and gets one thread at most, never the last one.
    Bulk,
}

type Job = Box<dyn FnOnce(&Shift) + Send>;
type Loss = Box<dyn FnOnce(Lost) + Send>;

struct State {
    queue: VecDeque<Waiting>,
    /// How many in the queue are of the lane `Asked`.
    asked: usize,
    running: Vec<Running>,
    workers: usize,
    idle: usize,
    lost: usize,
    watched: bool,
    /// Whether the watchdog counts ticks now, and is not to be disturbed: a tick is a tick however many jobs begin.
    ticking: bool,
    next: u64,
}

struct Waiting {
    job: Job,
    lost: Loss,
    ticks_max: u32,
    /// The place that it takes in a lane which has few, until it is done or given up.
    permit: Option<SemaphorePermit<'static>>,
}

struct Running {
    number: u64,
    shift: Arc<Shift>,
    beat: u32,
    /// Ticks in which it worked.
    ticks: u32,
    /// Ticks in which it waited for a processor.
    starved: u32,
    ticks_max: u32,
    clock: Option<Arc<ThreadClock>>,
    /// What its thread had worked when last looked.
    nanos: Option<u64>,
    lost: Option<Loss>,
    /// Held, never looked at.
    _permit: Option<SemaphorePermit<'static>>,
}

/// The thread was not given back, or there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The program did not end.
    Stuck,
    /// Too much waits now.
    Busy,
    /// Programs gave none of the threads back, or the system has none.
    NoThread,
}

/// How the threads are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PoolStatus {
    /// Threads there are.
    pub workers: usize,
    /// Threads that a program did not give back.
    pub lost: usize,
    /// Jobs that wait.
    pub waiting: usize,
}

/// How the threads are now.
pub fn status() -> PoolStatus {
    let state = POOL.lock();
    PoolStatus { workers: state.workers, lost: state.lost, waiting: state.queue.len() }
}

/// Does a job on a thread of the pool. Each of its calls may take `time`.
pub async fn work<T: Send + 'static>(
    lane: Lane,
    time: Duration,
    job: impl FnOnce(&Shift) -> T + Send + 'static,
) -> Result<T, Lost> {
    POOL.work(lane, time, job).await
}

/// As [`work`] for one who asks, on a thread that may wait. Not to be called from an async one.
pub(super) fn work_blocking<T: Send + 'static>(
    time: Duration,
    job: impl FnOnce(&Shift) -> T + Send + 'static,
) -> Result<T, Lost> {
    answered(POOL.ask(None, time, job).blocking_recv())
}

/// A job that panics answers nobody.
fn answered<T>(answer: Result<Result<T, Lost>, oneshot::error::RecvError>) -> Result<T, Lost> {
    answer.unwrap_or(Err(Lost::NoThread))
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self {
            state: Mutex::new(State::new()),
            work: Condvar::new(),
            watch: Condvar::new(),
            reading: Semaphore::const_new(READING_MAX),
            bulk: Semaphore::const_new(BULK_MAX),
        }
    }

    pub(super) async fn work<T: Send + 'static>(
        &'static self,
        lane: Lane,
        time: Duration,
        job: impl FnOnce(&Shift) -> T + Send + 'static,
    ) -> Result<T, Lost> {
        // They are never closed.
        let permit = match lane {
            Lane::Asked => None,
            Lane::Reading => self.reading.acquire().await.ok(),
            Lane::Bulk => self.bulk.acquire().await.ok(),
        };
        if lane == Lane::Bulk && !self.has_two() {
            return Err(Lost::NoThread);
        }
        answered(self.ask(permit, time, job).await)
    }

    fn ask<T: Send + 'static>(
        &'static self,
        permit: Option<SemaphorePermit<'static>>,
        time: Duration,
        job: impl FnOnce(&Shift) -> T + Send + 'static,
    ) -> oneshot::Receiver<Result<T, Lost>> {
        let (reply, answer) = oneshot::channel();
        let reply = Arc::new(Mutex::new(Some(reply)));
        let answered = Arc::clone(&reply);
        let send = move |answer: Result<T, Lost>, to: &Mutex<Option<oneshot::Sender<Result<T, Lost>>>>| {
            if let Some(reply) = to.lock().ignore_poison().take() {
                // Whoever asked may have gone away.
                let _ = reply.send(answer);
            }
        };
        let ticks_max =
            u32::try_from(time.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX - GRACE_TICKS);
        self.add(Waiting {
            job: Box::new(move |shift| send(Ok(job(shift)), &answered)),
            lost: Box::new(move |why| send(Err(why), &reply)),
            ticks_max: ticks_max.min(u32::MAX - GRACE_TICKS - 1),
            permit,
        });
        answer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it is left half done by a panic.
        self.state.lock().ignore_poison()
    }

    fn add(&'static self, waiting: Waiting) {
        let mut state = self.lock();
        if waiting.permit.is_none() && state.asked >= ASKED_MAX {
            drop(state);
            return (waiting.lost)(Lost::Busy);
        }
        if state.idle == 0 && state.may_start() {
            self.start(&mut state);
        }
        if state.workers == 0 {
            drop(state);
            return (waiting.lost)(Lost::NoThread);
        }
        state.asked += usize::from(waiting.permit.is_none());
        state.queue.push_back(waiting);
        drop(state);
        self.work.notify_one();
    }

    /// Sees to it that there are two threads: one for bulk, and one for everybody else.
    fn has_two(&'static self) -> bool {
        let mut state = self.lock();
        while state.workers < 2 && state.may_start() && self.start(&mut state) {}
        state.workers >= 2
    }

    /// Starts a thread, unless the system has none.
    fn start(&'static self, state: &mut State) -> bool {
        let spawn = |name: &str, stack: usize, run: fn(&'static Self)| {
            let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(stack);
            builder.spawn(move || run(self)).is_ok()
        };
        if !state.watched {
            state.watched = spawn("jq-watchdog", 256 << 10, Self::watch);
        }
        let started = state.watched && spawn("jq", STACK_BYTES, Self::serve);
        state.workers += usize::from(started);
        started
    }

    fn serve(&'static self) {
        let clock = ThreadClock::of_this_thread().map(Arc::new);
        let mut state = self.lock();
        loop {
            let Some(Waiting { job, lost, ticks_max, permit }) = state.take() else {
                state.idle += 1;
                let (again, waited) = self.work.wait_timeout(state, IDLE).ignore_poison();
                state = again;
                state.idle -= 1;
                if waited.timed_out() && state.queue.is_empty() {
                    state.workers -= 1;
                    return;
                }
                continue;
            };
            let (number, shift) = (state.next, Arc::new(Shift::default()));
            state.next += 1;
            state.running.push(Running {
                number,
                shift: Arc::clone(&shift),
                beat: 0,
                ticks: 0,
                starved: 0,
                ticks_max,
                clock: clock.clone(),
                nanos: None,
                lost: Some(lost),
                _permit: permit,
            });
            let ticking = state.ticking;
            drop(state);
            if !ticking {
                self.watch.notify_one();
            }
            // A job that panics answers nobody; whoever waits hears that.
            let _ = catch_unwind(AssertUnwindSafe(|| job(&shift)));
            state = self.lock();
            let before = state.running.len();
            state.running.retain(|running| running.number != number);
            if state.running.len() == before {
                // It was given up.
                state.lost -= 1;
                return;
            }
        }
    }

    fn watch(&'static self) {
        let mut state = self.lock();
        loop {
            if state.running.is_empty() {
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
            for _ in &given_up {
                state.workers -= 1;
                state.lost += 1;
                if state.may_start() && !state.queue.is_empty() {
                    self.start(&mut state);
                }
            }
            // With nobody left, those who wait wait in vain.
            let mut orphans = Vec::new();
            while state.workers == 0
                && let Some(waiting) = state.take()
            {
                orphans.push(waiting);
            }
            drop(state);
            for mut running in given_up {
                running.shift.lost();
                if let Some(lost) = running.lost.take() {
                    lost(Lost::Stuck);
                }
            }
            for waiting in orphans {
                (waiting.lost)(Lost::NoThread);
            }
            state = self.lock();
        }
    }
}

impl Running {
    /// A tick has passed.
    fn pass(&mut self) {
        let now = self.clock.as_ref().and_then(|clock| clock.nanos());
        let worked = now.zip(self.nanos).map(|(now, before)| now.saturating_sub(before));
        self.nanos = now;
        let starved = worked.is_some_and(|worked| worked < TICK_WORK_NANOS);
        if starved && self.starved < self.ticks_max.saturating_mul(STARVED_MAX) {
            self.starved += 1;
        } else {
            self.ticks += 1;
        }
    }
}

impl State {
    const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            asked: 0,
            running: Vec::new(),
            workers: 0,
            idle: 0,
            lost: 0,
            watched: false,
            ticking: false,
            next: 0,
        }
    }

    const fn may_start(&self) -> bool {
        self.workers < WORKERS_MAX && self.lost < LOST_MAX
    }

    fn take(&mut self) -> Option<Waiting> {
        let waiting = self.queue.pop_front()?;
        self.asked -= usize::from(waiting.permit.is_none());
        Some(waiting)
    }

    /// Ends calls whose time is over, and takes out those that did not end.
    fn tick(&mut self) -> Vec<Running> {
        for running in &mut self.running {
            let beat = running.shift.beat();
            if beat != running.beat {
                (running.beat, running.ticks, running.starved) = (beat, 0, 0);
            }
            running.pass();
            if running.ticks > running.ticks_max {
                running.shift.end(beat);
            }
        }
        let is_lost = |running: &mut Running| running.ticks > running.ticks_max + GRACE_TICKS;
        self.running.extract_if(.., is_lost).collect()
    }
}
