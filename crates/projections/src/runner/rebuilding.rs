//! A rebuild beside a projector at work.

use promethean_model::Offset;
use tracing::{info, warn};

use super::{Interrupted, Runner};
use crate::drafts::Kept;
use crate::error::ProjectionError;
use crate::rebuild::{Beginning, Rebuild, Step};

/// What a step of a rebuild came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rebuilt {
    /// There is none.
    Nothing,
    /// There is more to do.
    Some,
    /// It waits for the projector.
    Waiting,
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

    /// Goes on with a rebuild, if there is one, towards an offset.
    pub(super) async fn rebuild_step(&mut self, to: Offset) -> Rebuilt {
        let Some(mut rebuild) = self.rebuild.take() else { return Rebuilt::Nothing };
        let stepped = rebuild.step(&self.parts, &self.projector, to).await;
        let (status, rebuilt) = match stepped {
            Ok(Step::More) => {
                let status = rebuild.status();
                self.rebuild = Some(rebuild);
                (status, Rebuilt::Some)
            }
            Ok(Step::Waiting) => {
                let status = rebuild.status();
                self.rebuild = Some(rebuild);
                (status, Rebuilt::Waiting)
            }
            Ok(Step::Abreast) => {
                let status = rebuild.finish(&self.parts, &self.projector, &self.target, self.epoch).await;
                info!(projector = %self.projector.name, ?status, "rebuild ended");
                let is_done = status.error.is_none();
                if is_done {
                    self.next = rebuild.position();
                    self.beginning = false;
                    let stored = self.parts.store.cursor(&self.projector.name, &self.projector.topic).await;
                    self.epoch = stored.ok().flatten().map_or(self.epoch, |cursor| cursor.epoch);
                    // They were of the collections that are gone.
                    self.kept = Kept::default();
                    self.shown.change(|shown| shown.changed = false);
                }
                (status, if is_done { Rebuilt::Done } else { Rebuilt::Failed })
            }
            Err(reason) => {
                warn!(projector = %self.projector.name, %reason, "rebuild failed");
                (rebuild.failed(&self.parts, reason).await, Rebuilt::Failed)
            }
        };
        self.shown.change(|shown| shown.rebuild = Some(status));
        self.hold();
        rebuilt
    }

    /// Begins with snapshots, before anything else.
    pub(super) async fn begin(&mut self) -> Result<(), Interrupted> {
        let end = self.watch.end();
        self.show_place(end);
        match self.rebuild_step(self.next).await {
            Rebuilt::Some | Rebuilt::Waiting | Rebuilt::Done => {
                // Others have their turn too.
                tokio::task::yield_now().await;
                Ok(())
            }
            Rebuilt::Failed | Rebuilt::Nothing => {
                let status = self.shown.get().rebuild.and_then(|rebuild| rebuild.error);
                let reason = status.unwrap_or_else(|| "it came to nothing".to_owned());
                Err(Interrupted::Rebuild(format!("it could not begin with snapshots: {reason}; rebuild it")))
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
