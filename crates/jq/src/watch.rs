//! What a job's thread and the watchdog share, and how many threads a program keeps.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use promethean_model::IgnorePoison;

/// One job, as its thread and the watchdog see it. A job makes several calls, and each call has the whole
/// time.
#[derive(Debug, Default)]
pub struct JobWatch {
    /// The number of the call that runs, from 1.
    call: AtomicU32,
    /// The number of the call that must end.
    ended: AtomicU32,
    /// Whether the watchdog gave this job up, because a call did not end. No further call is made then.
    given_up: AtomicBool,
    /// The record of the program that this call runs.
    record: Mutex<Option<Arc<ThreadRecord>>>,
}

/// How many threads a program keeps: its calls took too long there, and have not ended. A program is stuck
/// while it keeps [`KEPT_MAX`] threads.
#[derive(Debug, Default)]
pub(super) struct ThreadRecord {
    kept: AtomicU32,
}

/// Threads that a program may keep before it is stuck. Fewer than the pool can lose, so that other programs
/// still run.
const KEPT_MAX: u32 = 4;

impl ThreadRecord {
    pub(super) fn is_stuck(&self) -> bool {
        self.kept.load(Ordering::Acquire) >= KEPT_MAX
    }
}

impl JobWatch {
    /// Begins the next call. Returns `false` if the job was given up, and no call may be made.
    pub(super) fn begin_call(&self, record: &Arc<ThreadRecord>) -> bool {
        let mut kept = self.record.lock().ignore_poison();
        if self.given_up.load(Ordering::Acquire) {
            return false;
        }
        *kept = Some(Arc::clone(record));
        self.call.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Whether the call that runs must end.
    pub(super) fn must_end(&self) -> bool {
        self.ended.load(Ordering::Acquire) == self.call.load(Ordering::Relaxed)
    }

    /// The number of the call that runs, from 1.
    pub(super) fn call(&self) -> u32 {
        self.call.load(Ordering::Acquire)
    }

    /// Ends a call that has taken too long, if it still runs.
    pub(super) fn end_call(&self, call: u32) {
        if self.call.load(Ordering::Acquire) == call {
            self.ended.store(call, Ordering::Release);
        }
    }

    /// Gives the job up: its call did not end. The program keeps the thread until [`JobWatch::give_back`].
    pub(super) fn give_up(&self) {
        let record = self.record.lock().ignore_poison();
        self.given_up.store(true, Ordering::Release);
        if let Some(record) = &*record {
            record.kept.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Notes that a job which was given up has ended after all.
    pub(super) fn give_back(&self) {
        if let Some(record) = &*self.record.lock().ignore_poison() {
            record.kept.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
