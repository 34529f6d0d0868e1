//! What a job's thread and the watchdog share, and how well a program has kept its time.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use promethean_model::IgnorePoison;

/// One job, as its thread and the watchdog see it. A job makes several calls, and each call has the whole time.
#[derive(Debug, Default)]
pub struct JobWatch {
    /// The number of the call that runs, from 1.
    call: AtomicU32,
    /// The number of the call that must end.
    ended: AtomicU32,
    /// The record of the program that this call runs.
    record: Mutex<Option<Arc<TimeRecord>>>,
}

/// How well a program has kept its time. A call that the watchdog ended may have had bad luck on a busy machine. A program
/// is stuck after a call that did not give its thread back, or after [`SLOW_MAX`] slow calls in a row.
#[derive(Debug, Default)]
pub(super) struct TimeRecord {
    slow: AtomicU32,
    stuck: AtomicBool,
}

/// Calls in a row that take too long, after which a program is stuck.
const SLOW_MAX: u32 = 3;

impl TimeRecord {
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }

    /// Notes a call that ended in its time.
    pub(super) fn call_in_time(&self) {
        self.slow.store(0, Ordering::Relaxed);
    }

    fn slow_call(&self) {
        if self.slow.fetch_add(1, Ordering::AcqRel) + 1 >= SLOW_MAX {
            self.set_stuck();
        }
    }

    fn set_stuck(&self) {
        self.stuck.store(true, Ordering::Release);
    }
}

impl JobWatch {
    /// Begins the next call.
    pub(super) fn begin_call(&self, record: &Arc<TimeRecord>) {
        *self.record.lock().ignore_poison() = Some(Arc::clone(record));
        self.call.fetch_add(1, Ordering::AcqRel);
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
        let record = self.record.lock().ignore_poison();
        if self.call.load(Ordering::Acquire) == call
            && self.ended.swap(call, Ordering::AcqRel) != call
            && let Some(record) = &*record
        {
            record.slow_call();
        }
    }

    /// Marks the program of this call as stuck: the call did not end.
    pub(super) fn set_stuck(&self) {
        if let Some(record) = &*self.record.lock().ignore_poison() {
            record.set_stuck();
        }
    }
}
