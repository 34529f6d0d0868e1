//! The answer to a job: awaited by a task, or waited for by a thread.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};

use promethean_model::IgnorePoison;

use super::PoolError;

/// The answer to a job that the pool was given.
#[derive(Debug)]
pub struct JobAnswer<T> {
    slot: Arc<Slot<T>>,
}

/// The pool's end of an [`JobAnswer`]. Only the first answer counts; dropped without one, it answers
/// [`PoolError::NoThread`].
#[derive(Debug)]
pub(super) struct JobReply<T> {
    slot: Arc<Slot<T>>,
}

#[derive(Debug)]
struct Slot<T> {
    state: Mutex<SlotState<T>>,
    answered: Condvar,
}

#[derive(Debug)]
struct SlotState<T> {
    answer: Option<Result<T, PoolError>>,
    is_answered: bool,
    waker: Option<Waker>,
}

/// Makes the two ends of an answer.
pub(super) fn pair<T>() -> (JobReply<T>, JobAnswer<T>) {
    let state = Mutex::new(SlotState { answer: None, is_answered: false, waker: None });
    let slot = Arc::new(Slot { state, answered: Condvar::new() });
    (JobReply { slot: Arc::clone(&slot) }, JobAnswer { slot })
}

impl<T> JobAnswer<T> {
    /// Waits for the answer on a thread that may block. Not to be called from an async one.
    pub fn wait(self) -> Result<T, PoolError> {
        let mut state = self.slot.state.lock().ignore_poison();
        loop {
            match state.answer.take() {
                Some(answer) => return answer,
                None => state = self.slot.answered.wait(state).ignore_poison(),
            }
        }
    }
}

impl<T> Future for JobAnswer<T> {
    type Output = Result<T, PoolError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.state.lock().ignore_poison();
        match state.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> JobReply<T> {
    pub(super) fn send(&self, answer: Result<T, PoolError>) {
        let mut state = self.slot.state.lock().ignore_poison();
        if state.is_answered {
            return;
        }
        state.is_answered = true;
        state.answer = Some(answer);
        let waker = state.waker.take();
        drop(state);
        self.slot.answered.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the [`JobAnswer`] still exists.
    pub(super) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.slot) > 1
    }
}

impl<T> Drop for JobReply<T> {
    fn drop(&mut self) {
        self.send(Err(PoolError::NoThread));
    }
}
