//! A projector at work: one task, which reads, projects and commits, one page after the other.
//!
//! - `page`: the next events, whatever becomes of each
//! - `rebuild`: a rebuild beside them
//! - `start`: from a declaration to a runner
//! - `snapshot_start`: snapshots before them
//! - `timer`, `timing`: its timer

pub(crate) mod page;
mod rebuild;
mod snapshot_start;
pub(crate) mod start;
pub(crate) mod timer;
pub(crate) mod timing;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use promethean_bus::Bus;
use promethean_bus::groups::Follower;
use promethean_model::{Clock, Offset};
use promethean_store::port::{EndWatch, Store};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::error;

use self::rebuild::Rebuilt;
use crate::definition::Projector;
use crate::error::ProjectionError;
use crate::fold::Kept;
use crate::rebuild::Rebuild;
use crate::status::{Activity, Shown};
use crate::target::Target;

/// How long to wait before an event is tried again, times the number of tries.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// The longest wait for a store that does not work.
const LATER_MAX: Duration = Duration::from_secs(5);

/// What all projectors share.
pub(crate) struct Parts {
    pub(crate) bus: Bus,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What a projector can be told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Begins a rebuild. `accept_loss`: also if the beginning of the topic is gone.
    Rebuild { accept_loss: bool, begun: oneshot::Sender<Result<(), ProjectionError>> },
    /// Goes on after it was halted.
    Resume { done: oneshot::Sender<Result<(), ProjectionError>> },
}

/// A projector at work.
pub(crate) struct Runner {
    pub(crate) parts: Arc<Parts>,
    pub(crate) projector: Projector,
    pub(crate) target: Target,
    pub(crate) follower: Follower,
    pub(crate) shown: Shown,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) watch: EndWatch,
    /// The offset of the next event.
    pub(crate) next: Offset,
    pub(crate) epoch: u64,
    /// Events from there on that were given up before the cursor was rolled back.
    pub(crate) buried: BTreeSet<Offset>,
    pub(crate) rebuild: Option<Rebuild>,
    /// Documents at hand.
    pub(crate) kept: Kept,
    /// Why only a rebuild helps, if so.
    pub(crate) needs_rebuild: Option<String>,
    /// Where its state begins.
    pub(crate) start: Offset,
    /// Whether it has yet to read the snapshots that it begins with.
    pub(crate) beginning: bool,
    /// What comes next.
    pub(crate) ahead: Option<page::Ahead>,
    /// A run of its timer that is not over.
    pub(crate) timing: Option<timing::Timing>,
}

/// Why the work is interrupted.
enum Interrupted {
    /// It is to end.
    Stop,
    /// It cannot go on by itself.
    Halt(Activity, String),
    /// It cannot go on at all with the state it has.
    Rebuild(String),
}

impl Runner {
    /// Works until it is told to stop. `halted`: why it cannot begin.
    pub(crate) async fn run(mut self, mut halted: Option<String>) {
        let mut due = self.projector.timer.as_ref().map(|timer| Instant::now() + timer.every);
        loop {
            let worked = match halted.take() {
                Some(reason) => Err(Interrupted::Rebuild(reason)),
                None => self.work(&mut due).await,
            };
            match worked {
                Ok(()) => {}
                Err(interrupted) => {
                    let (activity, reason, needs_rebuild) = match interrupted {
                        Interrupted::Halt(activity, reason) => (activity, reason, false),
                        Interrupted::Rebuild(reason) => (Activity::Halted, reason, true),
                        Interrupted::Stop => break,
                    };
                    self.needs_rebuild = needs_rebuild.then(|| reason.clone());
                    // What comes next may be something else by then.
                    self.ahead = None;
                    error!(projector = %self.projector.name, %reason, "projector halted");
                    let end = self.watch.end();
                    self.show_place(end);
                    self.say(activity, Some(reason));
                    if self.wait_for_a_person().await.is_err() {
                        break;
                    }
                    self.needs_rebuild = None;
                    self.say(Activity::Running, None);
                }
            }
        }
        self.say(Activity::Stopped, None);
    }

    /// Does the next thing that is to be done, or waits for one.
    async fn work(&mut self, due: &mut Option<Instant>) -> Result<(), Interrupted> {
        if *self.stopping.borrow() {
            return Err(Interrupted::Stop);
        }
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command).await;
        }
        if self.beginning {
            return self.begin().await;
        }
        let timing = self.time(due).await?;
        // While what is served is compared with what takes its place, it stays as it is. Not for as long as the store is
        // in the way of that.
        let compares = |rebuild: &Rebuild| rebuild.is_comparing() && rebuild.rests_until().is_none();
        let compares = self.rebuild.as_ref().is_some_and(compares);
        let worked = !compares && self.page().await?;
        let rebuilt = self.rebuild_step(self.next).await;
        if worked || timing || !matches!(rebuilt, Rebuilt::Nothing | Rebuilt::Waiting | Rebuilt::Resting) {
            // Others have their turn too.
            tokio::task::yield_now().await;
            return Ok(());
        }
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(*due).await,
                None => std::future::pending().await,
            }
        };
        let rested = self.rested();
        let command = tokio::select! {
            () = rested => return Ok(()),
            end = self.watch.changed() => return end.map(drop).ok_or(Interrupted::Stop),
            () = timer => return Ok(()),
            () = stopped(&mut self.stopping) => return Err(Interrupted::Stop),
            command = self.commands.recv() => command.ok_or(Interrupted::Stop)?,
        };
        self.obey(command).await;
        Ok(())
    }

    /// Does what it is told; whether it is to go on at once.
    async fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Resume { done } => {
                let name = self.projector.name.clone();
                let refused =
                    self.needs_rebuild.clone().map(|reason| ProjectionError::RebuildNeeded { name, reason });
                let goes_on = refused.is_none();
                // Whoever asked may have gone away.
                let _ = done.send(refused.map_or(Ok(()), Err));
                goes_on
            }
            Command::Rebuild { accept_loss, begun } => {
                if self.is_halted_at_the_beginning() {
                    self.rebuild = None;
                }
                let result = match self.rebuild {
                    Some(_) => Err(ProjectionError::Rebuilding { name: self.projector.name.clone() }),
                    None => self.begin_rebuild(accept_loss, true).await,
                };
                // One that has yet to begin does so with it.
                let goes_on = result.is_ok() && self.beginning;
                // As above.
                let _ = begun.send(result);
                goes_on
            }
        }
    }

    fn is_halted_at_the_beginning(&self) -> bool {
        self.beginning && matches!(self.shown.get().activity, Activity::Halted | Activity::Stuck)
    }

    /// While it is halted: until someone tells it to go on, or a rebuild has taken its place.
    async fn wait_for_a_person(&mut self) -> Result<(), Interrupted> {
        loop {
            if *self.stopping.borrow() {
                return Err(Interrupted::Stop);
            }
            while let Ok(command) = self.commands.try_recv() {
                if self.obey(command).await {
                    return Ok(());
                }
            }
            // What comes after the place it halted at is for the live one: a rebuild publishes nothing.
            let to = self.next.min(self.watch.end());
            // One that has yet to begin goes on with that when it is told so.
            let rebuilt = if self.beginning { Rebuilt::Nothing } else { self.rebuild_step(to).await };
            match rebuilt {
                Rebuilt::Nothing | Rebuilt::Resting | Rebuilt::Stumbled(_) => {}
                Rebuilt::Waiting => self.give_up_rebuild().await,
                Rebuilt::Done => return Ok(()),
                Rebuilt::Some | Rebuilt::Failed => continue,
            }
            let rested = self.rested();
            let command = tokio::select! {
                () = rested => continue,
                () = stopped(&mut self.stopping) => return Err(Interrupted::Stop),
                command = self.commands.recv() => command.ok_or(Interrupted::Stop)?,
            };
            if self.obey(command).await {
                return Ok(());
            }
        }
    }

    /// Waits because something else does not work.
    async fn later(&mut self, reason: &str, waits: u32) -> Result<(), Interrupted> {
        self.say(Activity::Retrying, Some(reason.to_owned()));
        self.wait((RETRY_AFTER * waits).min(LATER_MAX)).await
    }

    async fn wait(&mut self, time: Duration) -> Result<(), Interrupted> {
        let until = Instant::now() + time;
        loop {
            let command = tokio::select! {
                () = stopped(&mut self.stopping) => return Err(Interrupted::Stop),
                () = tokio::time::sleep_until(until) => return Ok(()),
                command = self.commands.recv() => command.ok_or(Interrupted::Stop)?,
            };
            if self.obey(command).await {
                return Ok(());
            }
        }
    }

    fn show_place(&self, end: Offset) {
        self.hold();
        let lag = end.since(self.next);
        self.shown.change(|shown| {
            self.follower.count(self.next.get().saturating_sub(shown.position), lag);
            (shown.position, shown.end, shown.lag) = (self.next.get(), end.get(), lag);
        });
    }

    fn say(&self, activity: Activity, error: Option<String>) {
        let failure = (activity != Activity::Running).then(|| error.clone()).flatten();
        self.follower.set_failure(failure);
        self.shown.change(|shown| {
            shown.activity = activity;
            shown.last_error = error.or_else(|| shown.last_error.take());
        });
    }
}

/// Ends when all is to end.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // Whoever could say so is gone: that is as good.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
