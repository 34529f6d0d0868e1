//! A projector at work: one task that reads, projects and commits one page after the other.
//!
//! - `start`: from a declaration to a runner, which goes on where the projector was
//! - `page`: the next page of events, until each is committed or given up
//! - `rebuild`: a rebuild beside the pages
//! - `feed_start`: publishing the documents that were there before their feed
//! - `snapshot_start`: reading snapshots before the first page
//! - `timer`: the projector's timer

mod feed_start;
mod page;
mod rebuild;
mod snapshot_start;
pub(crate) mod start;
mod timer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use promethean_bus::groups::{Follower, FollowerFailure};
use promethean_delivery::Reason;
use promethean_model::Offset;
use promethean_store::port::EndWatch;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::error;

use self::rebuild::RebuildTurn;
use crate::collections::WrittenCollections;
use crate::definition::Projector;
use crate::error::ProjectionError;
use crate::fold::DocCache;
use crate::projections::ProjectionContext;
use crate::rebuild::Rebuild;
use crate::status::{Activity, StatusCell};

/// The wait before an event is tried again, times the number of tries.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// The longest wait for a store that does not work.
const LATER_MAX: Duration = Duration::from_secs(5);

/// A command to a runner.
#[derive(Debug)]
pub(crate) enum RunnerCommand {
    /// Begins a rebuild. `accept_loss`: also if the beginning of the topic is gone.
    Rebuild { accept_loss: bool, begun: oneshot::Sender<Result<(), ProjectionError>> },
    /// Goes on after a halt.
    Resume { done: oneshot::Sender<Result<(), ProjectionError>> },
}

/// A projector at work.
pub(crate) struct ProjectorRunner {
    context: Arc<ProjectionContext>,
    pub(crate) projector: Projector,
    collections: WrittenCollections,
    follower: Follower,
    status: StatusCell,
    commands: mpsc::Receiver<RunnerCommand>,
    stopping: watch::Receiver<bool>,
    watch: EndWatch,
    /// The offset of the next event.
    next: Offset,
    /// The epoch of the cursor.
    epoch: u64,
    /// Events at or after `next` that were given up before a power cut rolled the cursor back.
    buried: BTreeSet<Offset>,
    rebuild: Option<Rebuild>,
    cache: DocCache,
    /// Why only a rebuild helps; `None` if the projector can be resumed.
    needs_rebuild: Option<String>,
    /// Why the projector has to be rebuilt before it goes on as it is declared; `None` if it need not.
    required: Option<String>,
    /// The offset where the projector's state begins.
    start: Offset,
    /// Whether the projector has yet to read the snapshots that it starts with.
    beginning: bool,
    feed_starts: feed_start::FeedStarts,
    read_ahead: Option<page::ReadAhead>,
    /// The run of the timer that is not over.
    timer_run: Option<timer::TimerRun>,
}

/// Why a runner interrupts its work.
enum Interruption {
    /// The server stops.
    Stop,
    /// The projector halts until a person resumes or rebuilds it.
    Halt(Activity, String),
    /// The projector halts, and only a rebuild helps: it cannot go on with the state it has.
    Rebuild(String),
}

impl ProjectorRunner {
    /// Works until the server stops. `halted`: why the projector cannot begin.
    pub(crate) async fn run(mut self, mut halted: Option<String>) {
        let mut due = self.projector.timer.as_ref().map(|timer| Instant::now() + timer.every);
        loop {
            let worked = match halted.take() {
                Some(reason) => Err(Interruption::Rebuild(reason)),
                None => self.work(&mut due).await,
            };
            let (activity, reason, needs_rebuild) = match worked {
                Ok(()) => continue,
                Err(Interruption::Halt(activity, reason)) => (activity, reason, false),
                Err(Interruption::Rebuild(reason)) => (Activity::Halted, reason, true),
                Err(Interruption::Stop) => break,
            };
            self.needs_rebuild = needs_rebuild.then(|| reason.clone());
            // After the halt the next page may be another one.
            self.read_ahead = None;
            error!(projector = %self.projector.name, %reason, "projector halted");
            let end = self.watch.end();
            self.show_position(end);
            self.show_activity(activity, Some(reason));
            if self.wait_for_a_person().await.is_err() {
                break;
            }
            self.needs_rebuild = None;
            self.show_activity(Activity::Running, None);
        }
        self.show_activity(Activity::Stopped, None);
    }

    /// Does the next piece of work, or waits until there is one.
    async fn work(&mut self, due: &mut Option<Instant>) -> Result<(), Interruption> {
        if *self.stopping.borrow() {
            return Err(Interruption::Stop);
        }
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command).await;
        }
        if self.beginning {
            return self.read_snapshots().await;
        }
        if !self.feed_starts.is_empty() {
            return self.start_feeds().await;
        }
        let timer_goes_on = self.timer_step(due).await?;
        // While the served collections are compared with the rebuilt ones they must not change. While the
        // store does not work nothing is compared, so that pages go on.
        let compares = |rebuild: &Rebuild| rebuild.is_comparing() && rebuild.rests_until().is_none();
        let compares = self.rebuild.as_ref().is_some_and(compares);
        let worked = !compares && self.page().await?;
        let turn = self.rebuild_step(self.next).await;
        if turn == RebuildTurn::Failed
            && let Some(reason) = self.failed_rebuild()
        {
            return Err(Interruption::Rebuild(reason));
        }
        let idles = matches!(turn, RebuildTurn::None | RebuildTurn::Waiting | RebuildTurn::Resting);
        if worked || timer_goes_on || !idles {
            // Other tasks have their turn too.
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
            end = self.watch.changed() => return end.map(drop).ok_or(Interruption::Stop),
            () = timer => return Ok(()),
            () = stopped(&mut self.stopping) => return Err(Interruption::Stop),
            command = self.commands.recv() => command.ok_or(Interruption::Stop)?,
        };
        self.obey(command).await;
        Ok(())
    }

    /// Carries out a command. Returns whether a runner that is halted goes on at once.
    async fn obey(&mut self, command: RunnerCommand) -> bool {
        match command {
            RunnerCommand::Resume { done } => {
                let name = self.projector.name.clone();
                let refused =
                    self.needs_rebuild.clone().map(|reason| ProjectionError::RebuildNeeded { name, reason });
                let goes_on = refused.is_none();
                // The caller may have dropped its receiver.
                let _ = done.send(refused.map_or(Ok(()), Err));
                goes_on
            }
            RunnerCommand::Rebuild { accept_loss, begun } => {
                if self.is_halted_at_the_beginning() {
                    self.rebuild = None;
                }
                let result = match self.rebuild {
                    Some(_) => Err(ProjectionError::Rebuilding { name: self.projector.name.clone() }),
                    None => self.begin_rebuild(accept_loss, true).await,
                };
                // A projector that has yet to begin begins with the rebuild.
                let goes_on = result.is_ok() && self.beginning;
                // As above.
                let _ = begun.send(result);
                goes_on
            }
        }
    }

    fn is_halted_at_the_beginning(&self) -> bool {
        self.beginning && self.status.get().activity == Activity::Halted
    }

    /// Waits while the projector is halted: until a command lets it go on, or a rebuild has replaced its
    /// state.
    async fn wait_for_a_person(&mut self) -> Result<(), Interruption> {
        loop {
            if *self.stopping.borrow() {
                return Err(Interruption::Stop);
            }
            while let Ok(command) = self.commands.try_recv() {
                if self.obey(command).await {
                    return Ok(());
                }
            }
            // Events after the halt are left to the projector: a rebuild publishes nothing.
            let to = self.next.min(self.watch.end());
            // A projector that has yet to begin reads its snapshots when it is resumed.
            let turn = if self.beginning { RebuildTurn::None } else { self.rebuild_step(to).await };
            match turn {
                RebuildTurn::None | RebuildTurn::Resting | RebuildTurn::Stumbled(_) => {}
                RebuildTurn::Waiting => self.give_up_rebuild().await,
                RebuildTurn::Done => return Ok(()),
                RebuildTurn::Worked | RebuildTurn::Failed => continue,
            }
            let rested = self.rested();
            let command = tokio::select! {
                () = rested => continue,
                () = stopped(&mut self.stopping) => return Err(Interruption::Stop),
                command = self.commands.recv() => command.ok_or(Interruption::Stop)?,
            };
            if self.obey(command).await {
                return Ok(());
            }
        }
    }

    /// Waits because the store or the bus does not work, longer with each wait.
    async fn later(&mut self, reason: &str, waits: u32) -> Result<(), Interruption> {
        self.show_activity(Activity::Retrying, Some(reason.to_owned()));
        self.wait((RETRY_AFTER * waits).min(LATER_MAX)).await
    }

    /// Waits because the program keeps too many threads, longer with each wait.
    async fn stuck(&mut self, reason: &str, waits: u32) -> Result<(), Interruption> {
        self.show_activity(Activity::Stuck, Some(reason.to_owned()));
        self.wait((RETRY_AFTER * waits).min(LATER_MAX)).await
    }

    async fn wait(&mut self, time: Duration) -> Result<(), Interruption> {
        let until = Instant::now() + time;
        loop {
            let command = tokio::select! {
                () = stopped(&mut self.stopping) => return Err(Interruption::Stop),
                () = tokio::time::sleep_until(until) => return Ok(()),
                command = self.commands.recv() => command.ok_or(Interruption::Stop)?,
            };
            if self.obey(command).await {
                return Ok(());
            }
        }
    }

    fn show_position(&self, end: Offset) {
        self.hold();
        self.status.change(|status| {
            self.follower.count(self.next.get().saturating_sub(status.position), self.next);
            status.position = self.next.get();
            status.measure(end);
        });
    }

    fn show_activity(&self, activity: Activity, error: Option<String>) {
        // The position may have moved within a page.
        self.show_position(self.context.store.durable_end(&self.projector.topic));
        let reason = match activity {
            Activity::Running | Activity::Stopped => None,
            Activity::Retrying => Some(Reason::Retrying),
            Activity::Halted => Some(Reason::Halted),
            Activity::Stuck => Some(Reason::Stuck),
        };
        let failure = reason.map(|reason| {
            let message = error.clone().or_else(|| self.status.get().last_error).unwrap_or_default();
            FollowerFailure { reason, message }
        });
        self.follower.set_failure(failure);
        self.status.change(|status| {
            status.activity = activity;
            status.last_error = error.or_else(|| status.last_error.take());
        });
    }
}

/// Ends when the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error: the sender is dropped, which also means that the server stops.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
