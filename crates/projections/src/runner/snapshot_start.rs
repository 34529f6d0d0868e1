//! Beginning with snapshots, before anything else.

use promethean_store::port::{Batch, StateOp};

use super::page::Tries;
use super::rebuild::Rebuilt;
use super::{Interrupted, Runner};
use crate::logic::Failed;
use crate::runner::start;
use crate::status::Activity;

impl Runner {
    /// Some more of the snapshots. One that fails is dealt with as an event is; a store that does not work is waited for.
    pub(super) async fn begin(&mut self) -> Result<(), Interrupted> {
        let mut tries = Tries::default();
        loop {
            let end = self.watch.end();
            self.show_place(end);
            let failed = match self.rebuild_step(self.next).await {
                Rebuilt::Nothing => match self.open_snapshots().await? {
                    Some(failed) => failed,
                    None => break,
                },
                Rebuilt::Stumbled(failed) => failed,
                Rebuilt::Failed => {
                    let status = self.shown.get().rebuild.and_then(|rebuild| rebuild.error);
                    return Err(refused(&status.unwrap_or_else(|| "it came to nothing".to_owned())));
                }
                Rebuilt::Some | Rebuilt::Waiting | Rebuilt::Resting | Rebuilt::Done => break,
            };
            let at_fault = self.rebuild.as_ref().and_then(|rebuild| rebuild.at_fault()).cloned();
            match (failed, at_fault) {
                (failed @ Failed::Event(_), Some(event)) => {
                    if self.failed(&event, failed, &mut tries).await?
                        && let Some(rebuild) = &mut self.rebuild
                    {
                        rebuild.leave_out();
                        tries = Tries::default();
                    }
                }
                (Failed::Stuck(reason), _) => return Err(Interrupted::Halt(Activity::Stuck, reason)),
                (Failed::Later(reason) | Failed::Event(reason) | Failed::Halt(reason), _) => {
                    tries.waits += 1;
                    self.later(&reason, tries.waits).await?;
                }
            }
        }
        if tries.waits > 0 || tries.failed > 0 {
            self.say(Activity::Running, None);
        }
        // Others have their turn too.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// What could not be done when it was started: looks for the snapshots, and begins with the log if there are none.
    async fn open_snapshots(&mut self) -> Result<Option<Failed>, Interrupted> {
        let (parts, projector) = (&self.parts, &self.projector);
        let opened = start::seeded(parts, projector, &self.target, &self.follower, self.start).await;
        let error = match opened {
            Ok(Some(rebuild)) => {
                self.rebuild = Some(rebuild);
                self.hold();
                return Ok(None);
            }
            Ok(None) => match start::take_new(parts, projector).await {
                Ok((next, epoch)) => {
                    (self.next, self.epoch, self.beginning) = (next, epoch, false);
                    self.hold();
                    let mut batch = Batch::derived();
                    if let Ok(shadow) = self.target.shadow() {
                        batch.state.extend(shadow.drops().map(StateOp::from));
                    }
                    // If not now, then at the next start.
                    let _ = self.parts.store.commit(batch).await;
                    return Ok(None);
                }
                Err(error) => error,
            },
            Err(error) => error,
        };
        if error.may_heal() {
            Ok(Some(Failed::Later(error.to_string())))
        } else {
            Err(refused(&error.to_string()))
        }
    }
}

fn refused(reason: &str) -> Interrupted {
    Interrupted::Rebuild(format!("it could not begin with snapshots: {reason}; rebuild it"))
}
