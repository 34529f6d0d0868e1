//! Many events when all is well: while one commit is on its way, the next is made ready.

use std::sync::Arc;

use promethean_bus::StoredEvent;
use promethean_model::Offset;
use promethean_store::port::{Batch, CommitError};
use tokio::task::JoinSet;

use crate::change::Change;
use crate::commit::{Attempt, Ready, commit_failed};
use crate::fold::Kept;
use crate::logic::Failed;

/// A commit on its way.
struct Underway {
    /// How many events are done with it.
    through: usize,
    outcome: JoinSet<Result<(), CommitError>>,
}

/// How far the stream came.
pub(crate) struct Streamed {
    /// Events that are done, and committed.
    pub(crate) done: usize,
    /// Why the store did not take more. What else is in the way the next attempt finds.
    pub(crate) failed: Option<Failed>,
}

impl Attempt<'_> {
    /// Commits the changes of events, in pieces of at most a batch, up to the first difficulty.
    pub(crate) async fn stream(
        &mut self,
        events: &[StoredEvent],
        changes: Vec<Vec<Change>>,
        next: Offset,
    ) -> Streamed {
        let (mut at, mut done) = (0, 0);
        let mut underway: Option<Underway> = None;
        let mut changes = changes.into_iter();
        while changes.len() > 0 {
            // A check of what must be unique sees only what is committed.
            if self.target.has_unique_index()
                && let Err(failed) = settle(&mut underway, &mut done).await
            {
                return self.stopped(done, failed);
            }
            let rest = events.get(at..).unwrap_or_default();
            let ready = self.prepare(rest, &mut changes.by_ref().take(self.projector.batch), next).await;
            if let Err(failed) = settle(&mut underway, &mut done).await {
                return self.stopped(done, failed);
            }
            let Ok(Ready { count, batch, kept }) = ready else {
                self.kept = Kept::default();
                return Streamed { done, failed: None };
            };
            at += count;
            underway = Some(self.start(batch, at));
            self.kept = kept;
            // Documents that are not kept are read again, and must be there then.
            if self.kept.is_empty()
                && let Err(failed) = settle(&mut underway, &mut done).await
            {
                return self.stopped(done, failed);
            }
        }
        match settle(&mut underway, &mut done).await {
            Ok(()) => Streamed { done, failed: None },
            Err(failed) => self.stopped(done, failed),
        }
    }

    fn start(&self, batch: Batch, through: usize) -> Underway {
        let store = Arc::clone(self.store);
        let mut outcome = JoinSet::new();
        outcome.spawn(async move { store.commit(batch).await.map(drop) });
        Underway { through, outcome }
    }

    /// What was folded on top of what was not committed is not kept.
    fn stopped(&mut self, done: usize, failed: Failed) -> Streamed {
        self.kept = Kept::default();
        Streamed { done, failed: Some(failed) }
    }
}

/// Waits for the commit that is on its way.
async fn settle(underway: &mut Option<Underway>, done: &mut usize) -> Result<(), Failed> {
    let Some(Underway { through, mut outcome }) = underway.take() else { return Ok(()) };
    match outcome.join_next().await {
        Some(Ok(Ok(()))) => {
            *done = through;
            Ok(())
        }
        Some(Ok(Err(error))) => Err(commit_failed(&error)),
        Some(Err(error)) => Err(Failed::Later(error.to_string())),
        None => Err(Failed::Later("the commit was lost".to_owned())),
    }
}
