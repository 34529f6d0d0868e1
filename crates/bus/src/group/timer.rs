//! The alarm of an owner.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

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
