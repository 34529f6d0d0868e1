//! What follows from a change of a client's state, once its lock is free.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use tracing::error;

type Call = Box<dyn FnOnce() + Send>;

/// Tasks to wake and functions of the user to call, after the lock is released.
#[derive(Default)]
pub(crate) struct LockEffects {
    wakers: Vec<Waker>,
    calls: Vec<Call>,
}

impl LockEffects {
    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        self.wakers.extend(waker);
    }

    pub(crate) fn wake_all(&mut self, wakers: &mut Vec<Waker>) {
        self.wakers.append(wakers);
    }

    pub(crate) fn call(&mut self, call: impl FnOnce() + Send + 'static) {
        self.calls.push(Box::new(call));
    }

    /// Wakes and calls. A function that panics stops no work of the client.
    pub(crate) fn run(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
        for call in self.calls.drain(..) {
            if catch_unwind(AssertUnwindSafe(call)).is_err() {
                error!("a function that was given to the client panicked");
            }
        }
    }
}

/// Remembers a task to wake, once.
pub(crate) fn remember(wakers: &mut Vec<Waker>, waker: &Waker) {
    if !wakers.iter().any(|known| known.will_wake(waker)) {
        wakers.push(waker.clone());
    }
}
