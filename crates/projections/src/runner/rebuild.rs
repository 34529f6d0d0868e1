//! A rebuild beside a projector at work.

use promethean_model::Offset;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{LATER_MAX, ProjectorRunner, RETRY_AFTER};
use crate::error::{ProjectFailure, ProjectionError};
use crate::fold::DocCache;
use crate::rebuild::{Rebuild, RebuildStart, RebuildStep};

/// What the runner's turn with its rebuild came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RebuildTurn {
    /// There is no rebuild.
    None,
    /// It made a step, and there is more to do.
    Worked,
    /// It waits until the projector has come to where the snapshots were taken.
    Waiting,
    /// It waits for a store that does not work.
    Resting,
    /// It failed at a snapshot or an event. Only where the projector begins with the rebuild.
    Stumbled(ProjectFailure),
    /// It has replaced the projector's state.
    Done,
    /// It was given up.
    Failed,
}

impl ProjectorRunner {
    /// Begins a rebuild. `asked`: by a person, who knows what `accept_loss` means.
    pub(super) async fn begin_rebuild(
        &mut self,
        accept_loss: bool,
        asked: bool,
    ) -> Result<(), ProjectionError> {
        let live = (!self.beginning).then_some(self.next);
        let may_pass = asked && accept_loss;
        let from = RebuildStart { start: self.start, live, accept_loss, may_pass };
        let begun = Rebuild::begin(&self.context, &self.projector, &self.collections, from).await;
        let rebuild = begun.inspect_err(|_| self.hold())?;
        info!(projector = %self.projector.name, "rebuild begun");
        self.status.change(|status| status.rebuild = Some(rebuild.status()));
        self.rebuild = Some(rebuild);
        self.hold();
        Ok(())
    }

    /// Makes a step of the rebuild towards an offset, if there is a rebuild and it does not rest.
    pub(super) async fn rebuild_step(&mut self, to: Offset) -> RebuildTurn {
        let Some(mut rebuild) = self.rebuild.take() else { return RebuildTurn::None };
        if rebuild.rests_until().is_some_and(|until| Instant::now() < until) {
            self.rebuild = Some(rebuild);
            return RebuildTurn::Resting;
        }
        let (context, follower) = (&self.context, &self.follower);
        let step = rebuild.step(context, &self.projector, &self.collections, follower, to).await;
        let stepped = match step {
            Ok(RebuildStep::More) => Ok(RebuildTurn::Worked),
            Ok(RebuildStep::Waiting) => Ok(RebuildTurn::Waiting),
            Ok(RebuildStep::CaughtUp) => self.swap(&rebuild).await.map(|()| RebuildTurn::Done),
            Err(failure) => Err(failure),
        };
        let turn = match stepped {
            Ok(RebuildTurn::Done) => RebuildTurn::Done,
            Ok(turn) => {
                self.status.change(|status| status.rebuild = Some(rebuild.status()));
                self.rebuild = Some(rebuild);
                turn
            }
            Err(
                failure @ (ProjectFailure::Event(_)
                | ProjectFailure::TooSlow(_)
                | ProjectFailure::Later(_)
                | ProjectFailure::Stuck(_)),
            ) if self.beginning => {
                self.rebuild = Some(rebuild);
                RebuildTurn::Stumbled(failure)
            }
            Err(ProjectFailure::Later(reason) | ProjectFailure::Stuck(reason)) => {
                // Logged once, however long it waits.
                if rebuild.rest(reason.clone(), RETRY_AFTER, LATER_MAX) {
                    warn!(projector = %self.projector.name, %reason, "rebuild waits");
                }
                self.status.change(|status| status.rebuild = Some(rebuild.status()));
                self.rebuild = Some(rebuild);
                RebuildTurn::Resting
            }
            Err(
                ProjectFailure::Event(reason)
                | ProjectFailure::TooSlow(reason)
                | ProjectFailure::Halt(reason),
            ) => {
                warn!(projector = %self.projector.name, %reason, "rebuild failed");
                let status = rebuild.failed(&self.context, &self.projector, reason).await;
                self.status.change(|status_now| status_now.rebuild = Some(status));
                RebuildTurn::Failed
            }
        };
        self.hold();
        turn
    }

    /// Puts the rebuilt collections in the place of the served ones, and the cursor where the rebuild is.
    async fn swap(&mut self, rebuild: &Rebuild) -> Result<(), ProjectFailure> {
        let (context, follower) = (&self.context, &self.follower);
        let swapped = rebuild.swap(context, &self.projector, &self.collections, follower, self.epoch).await;
        let (status, epoch) = swapped?;
        info!(projector = %self.projector.name, ?status, "rebuild ended");
        if let Some(first) = &status.first_skipped {
            let (projector, events) = (&self.projector.name, status.skipped);
            warn!(%projector, events, %first, "events failed in the rebuild and became dead letters");
        }
        (self.next, self.epoch) = (rebuild.position(), epoch);
        (self.beginning, self.required) = (false, None);
        // Its documents were of the collections that are replaced.
        self.cache = DocCache::default();
        self.status.change(|status_now| {
            status_now.changed = false;
            status_now.dead_letters += status.skipped;
            status_now.last_error = status.first_skipped.clone().or_else(|| status_now.last_error.take());
            status_now.rebuild = Some(status);
        });
        Ok(())
    }

    /// Why the projector cannot go on after its rebuild failed; `None` if it can.
    pub(super) fn failed_rebuild(&self) -> Option<String> {
        let required = self.required.as_ref()?;
        let error = self.status.get().rebuild.and_then(|rebuild| rebuild.error);
        Some(format!("{required}; the rebuild failed: {}", error.unwrap_or_default()))
    }

    /// Waits until a rebuild that rests goes on; without one, for ever.
    pub(super) fn rested(&self) -> impl Future<Output = ()> + use<> {
        let until = self.rebuild.as_ref().and_then(Rebuild::rests_until);
        async move {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Gives up a rebuild that waits for a halted projector, which will not come to where the snapshots were
    /// taken.
    pub(super) async fn give_up_rebuild(&mut self) {
        let Some(rebuild) = self.rebuild.take() else { return };
        let reason = format!(
            "the snapshots are of a later time than offset {}, where the projector is halted; resume it first, or rebuild with \
             `accept_loss`: what the events between would publish is then not published",
            self.next
        );
        let status = rebuild.failed(&self.context, &self.projector, reason).await;
        self.status.change(|status_now| status_now.rebuild = Some(status));
    }

    /// Tells retention to keep the events that the projector has still to read, or would read in a rebuild if
    /// only that helps.
    pub(super) fn hold(&self) {
        let end = self.context.store.durable_end(&self.projector.topic);
        let live = match self.needs_rebuild {
            Some(_) if self.start > end => Offset::ZERO,
            Some(_) => self.start,
            None => self.next,
        };
        let from = match self.rebuild.as_ref().map(Rebuild::position) {
            Some(rebuild) if self.beginning => rebuild,
            Some(rebuild) => rebuild.min(live),
            None => live,
        };
        self.follower.hold_from(from);
        if let Some(snapshots) = &self.projector.snapshots {
            let reads = self.rebuild.as_ref().is_some_and(|rebuild| rebuild.snapshots().is_some());
            self.context.store.hold(snapshots, &self.projector.name, reads.then_some(Offset::ZERO));
        }
    }
}
