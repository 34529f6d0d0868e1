//! A job while it runs, and how its programs have done.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use promethean_model::IgnorePoison;

/// One job, as its thread and the watchdog see it. A job is several calls, each with the whole time.
#[derive(Debug, Default)]
pub struct Shift {
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
        *self.pace.lock().ignore_poison() = Some(Arc::clone(pace));
        self.beat.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the call is to end.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) == self.beat.load(Ordering::Relaxed)
    }

    /// The call that runs, counted from 1.
    pub(super) fn beat(&self) -> u32 {
        self.beat.load(Ordering::Acquire)
    }

    /// Ends the call that has taken too long.
    pub(super) fn end(&self, beat: u32) {
        let pace = self.pace.lock().ignore_poison();
        if self.beat.load(Ordering::Acquire) == beat
            && self.over.swap(beat, Ordering::AcqRel) != beat
            && let Some(pace) = &*pace
        {
            pace.missed();
        }
    }

    /// The call did not end.
    pub(super) fn lost(&self) {
        if let Some(pace) = &*self.pace.lock().ignore_poison() {
            pace.lost();
        }
    }
}
