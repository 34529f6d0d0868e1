//! A rebuild beside a projector at work.

use promethean_model::Offset;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{LATER_MAX, RETRY_AFTER, Runner};
use crate::error::ProjectionError;
use crate::fold::Kept;
use crate::logic::Failed;
use crate::rebuild::{Beginning, Rebuild, Step};

/// What a step of a rebuild came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rebuilt {
    /// There is none.
    Nothing,
    /// There is more to do.
    Some,
    /// It waits for the projector.
    Waiting,
    /// It waits for a store that does not work.
    Resting,
    /// Something is in the way of a projector that begins with it.
    Stumbled(Failed),
    /// It is done.
    Done,
    /// It came to nothing.
    Failed,
}

impl Runner {
    /// `asked`: by a person, who knows what `accept_loss` means.
    pub(crate) async fn begin_rebuild(
        &mut self,
        accept_loss: bool,
        asked: bool,
    ) -> Result<(), ProjectionError> {
        let live = (!self.beginning).then_some(self.next);
        let may_pass = asked && accept_loss;
        let from = Beginning { follower: &self.follower, start: self.start, live, accept_loss, may_pass };
        let begun = Rebuild::begin(&self.parts, &self.projector, &self.target, from).await;
        let rebuild = begun.inspect_err(|_| self.hold())?;
        info!(projector = %self.projector.name, "rebuild begun");
        self.shown.change(|shown| shown.rebuild = Some(rebuild.status()));
        self.rebuild = Some(rebuild);
        self.hold();
        Ok(())
    }

    /// Goes on with a rebuild, if there is one and it does not rest, towards an offset.
    pub(super) async fn rebuild_step(&mut self, to: Offset) -> Rebuilt {
        let Some(mut rebuild) = self.rebuild.take() else { return Rebuilt::Nothing };
        if rebuild.rests_until().is_some_and(|until| Instant::now() < until) {
            self.rebuild = Some(rebuild);
            return Rebuilt::Resting;
        }
        let stepped = match rebuild.step(&self.parts, &self.projector, &self.target, to).await {
            Ok(Step::More) => Ok(Rebuilt::Some),
            Ok(Step::Waiting) => Ok(Rebuilt::Waiting),
            Ok(Step::Abreast) => self.take_place(&rebuild).await,
            Err(failed) => Err(failed),
        };
        let rebuilt = match stepped {
            Ok(Rebuilt::Done) => Rebuilt::Done,
            Ok(rebuilt) => {
                self.shown.change(|shown| shown.rebuild = Some(rebuild.status()));
                self.rebuild = Some(rebuild);
                rebuilt
            }
            Err(failed @ (Failed::Event(_) | Failed::Later(_) | Failed::Stuck(_))) if self.beginning => {
                self.rebuild = Some(rebuild);
                Rebuilt::Stumbled(failed)
            }
            Err(Failed::Later(reason)) => {
                // Said once, however long it waits.
                if rebuild.rest(reason.clone(), RETRY_AFTER, LATER_MAX) {
                    warn!(projector = %self.projector.name, %reason, "rebuild waits");
                }
                self.shown.change(|shown| shown.rebuild = Some(rebuild.status()));
                self.rebuild = Some(rebuild);
                Rebuilt::Resting
            }
            Err(Failed::Event(reason) | Failed::Halt(reason) | Failed::Stuck(reason)) => {
                warn!(projector = %self.projector.name, %reason, "rebuild failed");
                let status = rebuild.failed(&self.parts, reason).await;
                self.shown.change(|shown| shown.rebuild = Some(status));
                Rebuilt::Failed
            }
        };
        self.hold();
        rebuilt
    }

    async fn take_place(&mut self, rebuild: &Rebuild) -> Result<Rebuilt, Failed> {
        let (status, epoch) = rebuild.finish(&self.parts, &self.projector, &self.target, self.epoch).await?;
        info!(projector = %self.projector.name, ?status, "rebuild ended");
        (self.next, self.epoch) = (rebuild.position(), epoch);
        self.beginning = false;
        // They were of the collections that are gone.
        self.kept = Kept::default();
        self.shown.change(|shown| {
            shown.changed = false;
            shown.rebuild = Some(status);
        });
        Ok(Rebuilt::Done)
    }

    /// Until a rebuild is to be gone on with that rests.
    pub(super) fn rested(&self) -> impl Future<Output = ()> + use<> {
        let until = self.rebuild.as_ref().and_then(Rebuild::rests_until);
        async move {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        }
    }

    /// A projector that is halted does not come to where the snapshots were taken.
    pub(super) async fn give_up_rebuild(&mut self) {
        let Some(rebuild) = self.rebuild.take() else { return };
        let reason = format!(
            "the snapshots are of a later time than offset {}, where the projector is halted; resume it first, or rebuild with \
             `accept_loss`: what the events between would publish is then not published",
            self.next
        );
        let status = rebuild.failed(&self.parts, reason).await;
        self.shown.change(|shown| shown.rebuild = Some(status));
    }

    /// Retention is to leave alone what it has still to read, or would read in a rebuild if only that helps.
    pub(crate) fn hold(&self) {
        let end = self.parts.store.durable_end(&self.projector.topic);
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
            self.parts.store.hold(snapshots, &self.projector.name, reads.then_some(Offset::ZERO));
        }
    }
}
