//! When an owner's task does something, and what it waits for.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use promethean_delivery::Input;
use tokio::task::coop;
use tokio::time::{Instant, Sleep};

use super::load::FailedRead;
use super::progress::CommitOutcome;
use super::task::{Boxed, OwnerTask};
use crate::error::BusError;

/// The task of an owner, until it has nothing to do or cannot go on. There may be thousands, so it is no `async fn`: at
/// rest it is a pointer.
pub(super) enum OwnerFuture {
    /// On the heap, as it is large and soon over.
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

/// What the task woke up for.
enum Woken {
    Read(Result<Input, FailedRead>),
    Committed(CommitOutcome),
    StoreClosed,
    /// Time has passed.
    Timer,
    /// A letter or a new end, which are looked at next.
    Other,
}

impl OwnerTask {
    /// Ready when there is nothing to do any more; an error when it cannot go on.
    fn poll_serve(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BusError>> {
        loop {
            if !self.waiting {
                if self.work()? {
                    return Poll::Ready(Ok(()));
                }
                let due = self.machine.next_deadline(self.now);
                self.timer.arm(due.map(|due| due.saturating_sub(self.now.monotonic_ms)));
                self.waiting = true;
            }
            let woken = ready!(self.poll_woken(context));
            self.waiting = false;
            self.now = self.groups.base.now();
            match woken {
                Woken::Read(answer) => self.answered(answer),
                Woken::Committed(outcome) => self.committed(outcome)?,
                Woken::StoreClosed => return Poll::Ready(Err(BusError::Closed)),
                Woken::Timer => self.step(Input::Tick),
                Woken::Other => {}
            }
        }
    }

    /// Does all there is to do now; whether that was all for ever.
    fn work(&mut self) -> Result<bool, BusError> {
        self.look_at_end()?;
        self.owner.mailbox.take(&mut self.messages);
        while let Some(message) = self.messages.pop_front() {
            self.obey(message)?;
        }
        // What the store has accepted comes before what is done once we have ended; the rest need not be written.
        if let Some(why) = self.ending.take_if(|_| self.commit.is_none()) {
            return Err(*why);
        }
        self.share_credit();
        self.show();
        if self.read.is_none() && self.commit.is_none() {
            // At rest, for all we know: what comes next is worth new memory.
            self.messages = VecDeque::new();
            self.effects = Vec::new();
        }
        Ok(self.is_done())
    }

    /// In this order: letters may never end, and what was asked for comes at most once.
    fn poll_woken(&mut self, context: &mut Context<'_>) -> Poll<Woken> {
        // However much there is to do, others have their turn.
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

/// Forgets the future when it is ready; never ready if there is none.
fn poll_and_forget<T>(future: &mut Option<Boxed<T>>, context: &mut Context<'_>) -> Poll<T> {
    let Some(waited) = future else { return Poll::Pending };
    let output = ready!(waited.as_mut().poll(context));
    *future = None;
    Poll::Ready(output)
}

/// One alarm, set again only when it must ring earlier: setting it takes a lock that all owners share. So it may ring
/// too early, never too late.
#[derive(Debug, Default)]
pub(super) struct Timer {
    /// Made when it is first needed: an owner at rest has none.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether it will ring.
    set: bool,
    wanted: bool,
}

impl Timer {
    /// Rings after so many milliseconds at the latest; `None`: need not ring.
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

    /// Ready when it rings.
    pub(super) fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(sleep) = self.sleep.as_mut().filter(|_| self.wanted) else { return Poll::Pending };
        ready!(sleep.as_mut().poll(context));
        self.set = false;
        Poll::Ready(())
    }
}
