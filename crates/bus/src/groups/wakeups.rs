//! The loop of an owner's task: what it waits for, and what wakes it.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use promethean_delivery::Input;
use tokio::task::coop;
use tokio::time::{Instant, Sleep};

use super::load::{FailedRead, PageRead};
use super::progress::CommitOutcome;
use super::task::{Boxed, OwnerTask};
use crate::error::BusError;

/// The future of an owner's task. It ends when the owner has no more work or fails. There may be thousands of
/// them, so it is not an `async fn`: at rest it has the size of a pointer.
pub(super) enum OwnerFuture {
    /// Boxed, because it is large and only lives for a short time.
    Starting(Boxed<Option<Box<OwnerTask>>>),
    Serving(Box<OwnerTask>),
}

impl Future for OwnerFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match &mut *self {
                Self::Starting(start) => match ready!(start.as_mut().poll(context)) {
                    Some(task) => *self = Self::Serving(task),
                    None => return Poll::Ready(()),
                },
                Self::Serving(task) => {
                    if let Err(why) = ready!(task.poll_serve(context)) {
                        task.stop(&why);
                    }
                    return Poll::Ready(());
                }
            }
        }
    }
}

/// What woke the task.
enum Woken {
    Read(Result<PageRead, FailedRead>),
    Committed(CommitOutcome),
    StoreClosed,
    /// A deadline of the machine has come.
    Timer,
    /// A message or a new end of the topic; `work` looks at both.
    Other,
}

impl OwnerTask {
    /// Serves the claim. Ready when the owner has no more work; an error when it cannot continue.
    fn poll_serve(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BusError>> {
        loop {
            if !self.waiting {
                if self.work()? {
                    return Poll::Ready(Ok(()));
                }
                self.timer.arm(self.sleep_ms());
                self.waiting = true;
            }
            let woken = ready!(self.poll_woken(context));
            self.waiting = false;
            self.now = self.groups.base.now();
            self.begin_grace();
            match woken {
                Woken::Read(answer) => self.answered(answer),
                Woken::Committed(outcome) => self.committed(outcome)?,
                Woken::StoreClosed => return Poll::Ready(Err(BusError::Closed)),
                Woken::Timer => self.step(Input::Tick),
                Woken::Other => {}
            }
        }
    }

    /// Does all work that there is now. Returns whether the owner has ended.
    fn work(&mut self) -> Result<bool, BusError> {
        self.look_at_end()?;
        self.owner.mailbox.take(&mut self.messages);
        while let Some(message) = self.messages.pop_front() {
            self.obey(message)?;
        }
        self.end_grace();
        // A commit that the store has begun must be done before the owner ends, because other work follows
        // the end. Further progress need not be written.
        if let Some(why) = self.ending.take_if(|_| self.commit.is_none()) {
            return Err(*why);
        }
        self.share_credit();
        self.show();
        if self.read.is_none() && self.commit.is_none() {
            // The owner may rest for long: it gives the memory back.
            self.messages = VecDeque::new();
            self.effects = Vec::new();
        }
        Ok(self.is_done())
    }

    /// Lets no lease expire if the process has just missed time: acks may have arrived that no task has read yet.
    fn begin_grace(&mut self) {
        if !self.in_grace && self.groups.base.pulse.grace_ms().is_some() {
            self.in_grace = true;
            self.step(Input::Grace(true));
        }
    }

    /// Lets leases expire again when the grace is over. Called when all messages are read.
    fn end_grace(&mut self) {
        if self.in_grace && self.groups.base.pulse.grace_ms().is_none() {
            self.in_grace = false;
            self.step(Input::Grace(false));
        }
    }

    /// How long the task may sleep, if anything is due.
    fn sleep_ms(&self) -> Option<u64> {
        let due = self.machine.next_deadline(self.now);
        let due = due.map(|due| due.saturating_sub(self.now.monotonic_ms));
        let grace = self.in_grace.then(|| self.groups.base.pulse.grace_ms().unwrap_or(0));
        [due, grace].into_iter().flatten().min()
    }

    /// Polls all that can wake the task. Commit and read come first, since each is ready only once, while
    /// messages may come without end.
    fn poll_woken(&mut self, context: &mut Context<'_>) -> Poll<Woken> {
        // A busy owner must let other tasks run.
        if !coop::has_budget_remaining() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(outcome) = poll_and_forget(&mut self.commit, context) {
            return Poll::Ready(Woken::Committed(outcome));
        }
        if let Poll::Ready(answer) = poll_and_forget(&mut self.read, context) {
            return Poll::Ready(Woken::Read(answer));
        }
        if self.owner.mailbox.poll_arrived(context).is_ready() {
            return Poll::Ready(Woken::Other);
        }
        if let Poll::Ready(end) = self.watch.poll_changed(context) {
            return Poll::Ready(end.map_or(Woken::StoreClosed, |_| Woken::Other));
        }
        self.timer.poll_fired(context).map(|()| Woken::Timer)
    }
}

/// Polls the future, and removes it when it is ready. Without a future it is never ready.
fn poll_and_forget<T>(future: &mut Option<Boxed<T>>, context: &mut Context<'_>) -> Poll<T> {
    let Some(waited) = future else { return Poll::Pending };
    let output = ready!(waited.as_mut().poll(context));
    *future = None;
    Poll::Ready(output)
}

/// A timer that is reset only when it must fire earlier, because a reset takes a lock that all owners share.
/// So it may fire too early, but never too late.
#[derive(Debug, Default)]
pub(super) struct WakeTimer {
    /// Created when it is first needed, so that an owner at rest has none.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether `sleep` is set and has not fired yet.
    set: bool,
    wanted: bool,
}

impl WakeTimer {
    /// Makes the timer fire after `after_ms` milliseconds at the latest; with `None` it need not fire.
    pub(super) fn arm(&mut self, after_ms: Option<u64>) {
        self.wanted = after_ms.is_some();
        let Some(after_ms) = after_ms else { return };
        let at = Instant::now() + Duration::from_millis(after_ms);
        match &mut self.sleep {
            Some(sleep) if self.set && sleep.deadline() <= at => {}
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
        self.set = true;
    }

    /// Ready when the timer fires.
    pub(super) fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(sleep) = self.sleep.as_mut().filter(|_| self.wanted) else { return Poll::Pending };
        ready!(sleep.as_mut().poll(context));
        self.set = false;
        Poll::Ready(())
    }
}
