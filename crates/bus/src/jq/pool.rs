//! The threads that programs run on, and the watchdog over them.
//!
//! Threads come with work and go when there is none for a while. One that a program does not give back in time is lost:
//! whoever waits is told, another takes its place, and at most [`LOST_MAX`] are given up so. One that comes back after
//! all ends.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::oneshot;

/// Of which pages are touched only as far as a program is nested.
pub(super) const STACK_BYTES: usize = 256 << 20;
/// Threads at work at a time.
const WORKERS_MAX: usize = 4;
/// Threads given up, at most; beyond, those that are left must do.
const LOST_MAX: usize = 8;
/// Jobs that wait, at most.
const QUEUE_MAX: usize = 4_096;
/// How often the watchdog looks, while there is work.
const TICK: Duration = Duration::from_millis(50);
/// How long after its time a program may take to notice.
const GRACE_TICKS: u32 = 20;
/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

static POOL: Pool = Pool { state: Mutex::new(State::new()), work: Condvar::new(), watch: Condvar::new() };

struct Pool {
    state: Mutex<State>,
    work: Condvar,
    watch: Condvar,
}

type Job = Box<dyn FnOnce(&Shift) + Send>;

struct State {
    queue: VecDeque<Waiting>,
    running: Vec<Running>,
    workers: usize,
    idle: usize,
    lost: usize,
    watched: bool,
    next: u64,
}

struct Waiting {
    job: Job,
    lost: Job,
    ticks_max: u32,
}

struct Running {
    number: u64,
    shift: Arc<Shift>,
    beat: u32,
    ticks: u32,
    ticks_max: u32,
    lost: Option<Job>,
}

/// The thread was not given back, or there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The program did not end.
    Stuck,
    /// Too much waits.
    Busy,
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

/// One job, as its thread and the watchdog see it. A job is several calls, each with the whole time.
#[derive(Debug, Default)]
pub(crate) struct Shift {
    /// The call that runs, counted from 1.
    beat: AtomicU32,
    /// The call that is to end.
    over: AtomicU32,
    /// Where to note that the program of this call took too long.
    pace: Mutex<Option<Arc<Pace>>>,
}

/// How a program has done. A call that was ended may have had bad luck, on a machine that is too busy; one that did not
/// give its thread back, or the third in a row, had not.
#[derive(Debug, Default)]
pub(super) struct Pace {
    slow: AtomicU32,
    stuck: AtomicBool,
}

/// Calls in a row that take too long, after which a program is stuck.
const SLOW_MAX: u32 = 3;

impl Pace {
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }

    /// A call ended in its time.
    pub(super) fn kept(&self) {
        self.slow.store(0, Ordering::Relaxed);
    }

    fn missed(&self) {
        if self.slow.fetch_add(1, Ordering::AcqRel) + 1 >= SLOW_MAX {
            self.lost();
        }
    }

    fn lost(&self) {
        self.stuck.store(true, Ordering::Release);
    }
}

impl Shift {
    /// The next call begins.
    pub(super) fn begin(&self, pace: &Arc<Pace>) {
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(pace));
        self.beat.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the call is to end.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) == self.beat.load(Ordering::Relaxed)
    }

    /// Ends the call that has taken too long.
    fn end(&self, beat: u32) {
        let pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        if self.beat.load(Ordering::Acquire) == beat
            && self.over.swap(beat, Ordering::AcqRel) != beat
            && let Some(pace) = &*pace
        {
            pace.missed();
        }
    }

    /// The call did not end.
    fn lost(&self) {
        if let Some(pace) = &*self.pace.lock().unwrap_or_else(PoisonError::into_inner) {
            pace.lost();
        }
    }
}

/// How the threads are now.
pub fn status() -> PoolStatus {
    let state = POOL.lock();
    PoolStatus { workers: state.workers, lost: state.lost, waiting: state.queue.len() }
}

/// Does a job on a thread of the pool. Each of its calls may take `time`.
pub(crate) fn work<T: Send + 'static>(
    time: Duration,
    job: impl FnOnce(&Shift) -> T + Send + 'static,
) -> oneshot::Receiver<Result<T, Lost>> {
    let (reply, answer) = oneshot::channel();
    let reply = Arc::new(Mutex::new(Some(reply)));
    let answered = Arc::clone(&reply);
    let send = move |answer: Result<T, Lost>, to: &Mutex<Option<oneshot::Sender<Result<T, Lost>>>>| {
        if let Some(reply) = to.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Whoever asked may have gone away.
            let _ = reply.send(answer);
        }
    };
    let ticks_max =
        u32::try_from(time.as_millis().div_ceil(TICK.as_millis())).unwrap_or(u32::MAX - GRACE_TICKS);
    POOL.add(Waiting {
        job: Box::new(move |shift| send(Ok(job(shift)), &answered)),
        lost: Box::new(move |shift| {
            let why = if shift.is_over() { Lost::Stuck } else { Lost::Busy };
            send(Err(why), &reply);
        }),
        ticks_max: ticks_max.min(u32::MAX - GRACE_TICKS - 1),
    });
    answer
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it is left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&'static self, waiting: Waiting) {
        let mut state = self.lock();
        let starts = state.idle == 0 && state.workers < WORKERS_MAX && state.lost < LOST_MAX;
        if state.queue.len() >= QUEUE_MAX || (starts && !self.start(&mut state) && state.workers == 0) {
            drop(state);
            return (waiting.lost)(&Shift { beat: AtomicU32::new(1), ..Shift::default() });
        }
        if state.workers == 0 {
            drop(state);
            return (waiting.lost)(&Shift { beat: AtomicU32::new(1), ..Shift::default() });
        }
        state.queue.push_back(waiting);
        drop(state);
        self.work.notify_one();
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
        let mut state = self.lock();
        loop {
            let Some(Waiting { job, lost, ticks_max }) = state.queue.pop_front() else {
                state.idle += 1;
                let (again, waited) =
                    self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
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
            let running =
                Running { number, shift: Arc::clone(&shift), beat: 0, ticks: 0, ticks_max, lost: Some(lost) };
            state.running.push(running);
            drop(state);
            self.watch.notify_one();
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
            state = if state.running.is_empty() {
                self.watch.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.watch.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0
            };
            let given_up = state.tick();
            if given_up.is_empty() {
                continue;
            }
            for _ in &given_up {
                state.workers -= 1;
                state.lost += 1;
                if state.lost < LOST_MAX && !state.queue.is_empty() {
                    self.start(&mut state);
                }
            }
            // With nobody left, those who wait wait in vain.
            let orphans = if state.workers == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() };
            drop(state);
            for mut running in given_up {
                running.shift.lost();
                if let Some(lost) = running.lost.take() {
                    lost(&running.shift);
                }
            }
            for waiting in orphans {
                (waiting.lost)(&Shift { beat: AtomicU32::new(1), ..Shift::default() });
            }
            state = self.lock();
        }
    }
}

impl State {
    const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            running: Vec::new(),
            workers: 0,
            idle: 0,
            lost: 0,
            watched: false,
            next: 0,
        }
    }

    /// Ends calls whose time is over, and takes out those that did not end.
    fn tick(&mut self) -> Vec<Running> {
        for running in &mut self.running {
            let beat = running.shift.beat.load(Ordering::Acquire);
            if beat != running.beat {
                (running.beat, running.ticks) = (beat, 0);
            }
            running.ticks += 1;
            if running.ticks > running.ticks_max {
                running.shift.end(beat);
            }
        }
        let is_lost = |running: &mut Running| running.ticks > running.ticks_max + GRACE_TICKS;
        self.running.extract_if(.., is_lost).collect()
    }
}
