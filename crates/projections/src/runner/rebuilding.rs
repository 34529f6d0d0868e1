//! A rebuild beside a projector at work.

use promethean_model::Offset;
use tracing::{info, warn};

use super::Runner;
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
    /// It is done.
    Done,
    /// It came to nothing.
    Failed,
}

impl Runner {
    pub(crate) async fn begin_rebuild(&mut self, accept_loss: bool) -> Result<(), ProjectionError> {
        let from = Beginning { follower: &self.follower, start: self.start, accept_loss };
        let rebuild = Rebuild::begin(&self.parts, &self.projector, &self.target, from).await?;
        info!(projector = %self.projector.name, "rebuild begun");
        self.shown.change(|shown| shown.rebuild = Some(rebuild.status()));
        self.rebuild = Some(rebuild);
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
            Ok(Step::Abreast) => {
                let status = rebuild.finish(&self.parts, &self.projector, &self.target, self.epoch).await;
                info!(projector = %self.projector.name, ?status, "rebuild ended");
                let is_done = status.error.is_none();
                if is_done {
                    self.next = rebuild.position();
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
        rebuilt
    }
}
