//! The timer of a projector, a page of documents at a time: events and commands come in between.

use tokio::time::Instant;
use tracing::warn;

use super::{Interrupted, Runner, stopped};
use crate::runner::timer::{Looked, Run};
use crate::status::Activity;

/// A run that is not over.
pub(crate) struct Timing {
    /// When it began: for all documents the same.
    now_ms: i64,
    /// The last document it looked at.
    after: Option<String>,
    /// The first failure.
    failed: Result<(), String>,
}

impl Runner {
    /// Some more of the timer's run, if it is due; whether there is more to do.
    pub(super) async fn time(&mut self, due: &mut Option<Instant>) -> Result<bool, Interrupted> {
        let Some(timer) = &self.projector.timer else { return Ok(false) };
        let mut timing = match self.timing.take() {
            Some(timing) => timing,
            None if due.is_some_and(|due| due <= Instant::now()) => {
                Timing { now_ms: self.parts.clock.wall_ms(), after: None, failed: Ok(()) }
            }
            None => return Ok(false),
        };
        let run = Run {
            timer,
            projector: &self.projector.name,
            follower: &self.follower,
            store: &*self.parts.store,
            now_ms: timing.now_ms,
        };
        let Looked { last, failed } = tokio::select! {
            looked = run.after(timing.after.as_deref()) => looked,
            // What it would have published it publishes at its next run.
            () = stopped(&mut self.stopping) => return Err(Interrupted::Stop),
        };
        if timing.failed.is_ok() {
            timing.failed = failed;
        }
        if last.is_some() {
            timing.after = last;
            self.timing = Some(timing);
            return Ok(true);
        }
        *due = Some(Instant::now() + timer.every);
        self.shown.change(|shown| shown.timer_runs += 1);
        if let Err(reason) = timing.failed {
            let reason = format!("the timer failed {reason}");
            warn!(projector = %self.projector.name, %reason, "timer failed");
            self.shown.change(|shown| shown.failures += 1);
            self.say(Activity::Running, Some(reason));
        }
        Ok(false)
    }
}
