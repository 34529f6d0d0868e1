//! The alarm of an owner.

use std::future::pending;
use std::pin::Pin;
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

    /// Waits until it rings.
    pub(super) async fn fired(&mut self) {
        match &mut self.sleep {
            Some(sleep) if self.wanted => sleep.as_mut().await,
            _ => pending().await,
        }
        self.set = false;
    }
}
