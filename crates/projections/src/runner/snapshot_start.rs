//! The start of a projector with snapshots, before its first page of events.

use super::page::EventTries;
use super::rebuild::RebuildTurn;
use super::{Interruption, ProjectorRunner, start};
use crate::error::ProjectFailure;
use crate::status::Activity;

impl ProjectorRunner {
    /// Reads some more snapshots. A snapshot that fails is tried again and given up as an event is; a store
    /// that does not work is waited for.
    pub(super) async fn read_snapshots(&mut self) -> Result<(), Interruption> {
        let mut tries = EventTries::default();
        loop {
            let end = self.watch.end();
            self.show_position(end);
            let failure = match self.rebuild_step(self.next).await {
                RebuildTurn::None => match self.open_snapshots().await? {
                    Some(failure) => failure,
                    None => break,
                },
                RebuildTurn::Stumbled(failure) => failure,
                RebuildTurn::Failed => {
                    let status = self.status.get().rebuild.and_then(|rebuild| rebuild.error);
                    return Err(refused(&status.unwrap_or_else(|| "it came to nothing".to_owned())));
                }
                RebuildTurn::Worked | RebuildTurn::Waiting | RebuildTurn::Resting | RebuildTurn::Done => {
                    break;
                }
            };
            let at_fault = self.rebuild.as_ref().and_then(|rebuild| rebuild.at_fault()).cloned();
            match (failure, at_fault) {
                (failure @ (ProjectFailure::Event(_) | ProjectFailure::TooSlow(_)), Some(event)) => {
                    if self.failed(&event, failure, &mut tries).await?
                        && let Some(rebuild) = &mut self.rebuild
                    {
                        rebuild.leave_out();
                        tries = EventTries::default();
                    }
                }
                (ProjectFailure::Stuck(reason), _) => {
                    tries.waits += 1;
                    self.stuck(&reason, tries.waits).await?;
                }
                (
                    ProjectFailure::Later(reason)
                    | ProjectFailure::Event(reason)
                    | ProjectFailure::TooSlow(reason)
                    | ProjectFailure::Halt(reason),
                    _,
                ) => {
                    tries.waits += 1;
                    self.later(&reason, tries.waits).await?;
                }
            }
        }
        if tries.waits > 0 || tries.failed > 0 {
            self.show_activity(Activity::Running, None);
        }
        // Other tasks have their turn too.
        tokio::task::yield_now().await;
        Ok(())
    }

    /// Looks for the snapshots, which could not be done when the runner was made, and begins with the log if
    /// there are none.
    async fn open_snapshots(&mut self) -> Result<Option<ProjectFailure>, Interruption> {
        let (context, projector) = (&self.context, &self.projector);
        let opened = start::from_snapshots(context, projector, &self.collections, self.start).await;
        let error = match opened {
            Ok(Some(rebuild)) => {
                self.rebuild = Some(rebuild);
                self.hold();
                return Ok(None);
            }
            Ok(None) => match start::take_new(context, projector).await {
                Ok((next, epoch)) => {
                    (self.next, self.epoch, self.beginning) = (next, epoch, false);
                    self.hold();
                    if let Ok(shadow) = self.collections.shadow() {
                        // If that fails, the next start does it.
                        let _ = self.context.store.commit(shadow.drops()).await;
                    }
                    return Ok(None);
                }
                Err(error) => error,
            },
            Err(error) => error,
        };
        if error.may_heal() {
            Ok(Some(ProjectFailure::Later(error.to_string())))
        } else {
            Err(refused(&error.to_string()))
        }
    }
}

fn refused(reason: &str) -> Interruption {
    Interruption::Rebuild(format!("it could not begin with snapshots: {reason}; rebuild it"))
}
