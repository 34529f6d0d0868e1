//! Waiting for room: asynchronous, and for a bounded time in all. No step waits on a thread of the runtime.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{MutexGuard, OwnedSemaphorePermit, TryAcquireError, watch};
use tokio::time::{Instant, timeout_at};

use super::error::commit_error;
use super::open_store::{OpenStore, Sequencer};
use crate::port::CommitError;

/// The work that a batch waits for while too many bytes are on their way to the disk.
const EARLIER_EVENTS: &str = "writing earlier events";
/// The work that a batch waits for while another batch has the sequencer.
const STATE_CHANGES: &str = "changes of state";

/// The wait of one batch for all that it needs: bytes on their way, the sequencer, a place in the log. All of it
/// together has one deadline. The wait costs nothing until the first obstacle.
#[derive(Debug, Default)]
pub(super) struct RoomWait {
    deadline: Option<Instant>,
    signal: Option<watch::Receiver<()>>,
    endless: bool,
}

impl RoomWait {
    /// A wait that goes on past its deadline: for changes that are noted and must be made.
    pub(super) fn endless() -> Self {
        Self { endless: true, ..Self::default() }
    }

    /// Sets the deadline now, for a batch that goes on in another thread.
    pub(super) fn begin(mut self, store: &OpenStore) -> Self {
        self.deadline(store);
        self
    }

    fn deadline(&mut self, store: &OpenStore) -> Instant {
        *self.deadline.get_or_insert_with(|| Instant::now() + store.room_wait())
    }

    /// Waits until a batch of this many bytes may be handed to the log. A batch larger than the bound waits until no
    /// other batch is on its way.
    pub(super) async fn admit(
        &mut self,
        store: &OpenStore,
        bytes: usize,
    ) -> Result<OwnedSemaphorePermit, CommitError> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(store.inflight_bytes_max);
        match Arc::clone(&store.admission).try_acquire_many_owned(bytes) {
            Ok(permit) => return Ok(permit),
            Err(TryAcquireError::Closed) => return Err(CommitError::Closed),
            Err(TryAcquireError::NoPermits) => {}
        }
        let permit = Arc::clone(&store.admission).acquire_many_owned(bytes);
        match timeout_at(self.deadline(store), permit).await {
            Ok(permit) => permit.map_err(|_| CommitError::Closed),
            Err(_) => Err(store.no_room(EARLIER_EVENTS)),
        }
    }

    /// Waits for the turn to change state.
    pub(super) async fn lock_sequencer<'a>(
        &mut self,
        store: &'a OpenStore,
    ) -> Result<MutexGuard<'a, Sequencer>, CommitError> {
        if let Ok(sequencer) = store.sequencer.try_lock() {
            return Ok(sequencer);
        }
        if self.endless {
            return Ok(store.sequencer.lock().await);
        }
        let locked = timeout_at(self.deadline(store), store.sequencer.lock()).await;
        locked.map_err(|_| store.no_room(STATE_CHANGES))
    }

    /// Takes the outcome of handing a batch to the log. `None`: there was no room, and the batch may be tried again now.
    pub(super) async fn again<T>(
        &mut self,
        store: &OpenStore,
        outcome: Result<T, CommitError>,
    ) -> Result<Option<T>, CommitError> {
        match outcome {
            Err(CommitError::Busy { what }) => self.wait(store, what).await?,
            Err(CommitError::StorageFull { .. }) if self.endless => self.wait(store, EARLIER_EVENTS).await?,
            outcome => return outcome.map(Some),
        }
        Ok(None)
    }

    /// Waits until a batch that found no room may be tried again. Fails when it has waited long enough.
    pub(super) async fn wait(&mut self, store: &OpenStore, what: &'static str) -> Result<(), CommitError> {
        let deadline = self.deadline(store);
        let Some(signal) = &mut self.signal else {
            // Room that came before this line is not announced again, so the batch is tried once more.
            self.signal = Some(store.room.subscribe());
            return Ok(());
        };
        // Signals may come faster than room does, so the deadline counts whether or not there is a signal.
        let waited = match Instant::now() < deadline {
            true => timeout_at(deadline, signal.changed()).await.ok(),
            false => None,
        };
        match waited {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(CommitError::Closed),
            None if self.endless => {
                self.deadline = None;
                Ok(())
            }
            None => Err(store.no_room(what)),
        }
    }
}

impl OpenStore {
    fn room_wait(&self) -> Duration {
        Duration::from_millis(self.log.room_wait_ms())
    }

    /// The refusal of a batch that has waited long enough.
    fn no_room(&self, what: &'static str) -> CommitError {
        commit_error(self.log.no_room(what))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::super::blocked::{BatchKind, BlockedStore, KINDS, OBSTACLES, Obstacle, until};

    const BOUND: Duration = Duration::from_secs(5);
    const STEP: Duration = Duration::from_millis(500);

    /// Sets obstacles in turn, each as the one before is removed; the last one stays. Expects the refusal at the bound, and
    /// not before.
    async fn refused_at_the_bound(blocked: &mut BlockedStore, kind: BatchKind, order: &[Obstacle]) {
        for obstacle in order {
            blocked.set(*obstacle).await;
        }
        let began = Instant::now();
        let answer = blocked.commit(kind);
        for (step, obstacle) in order.iter().enumerate() {
            // The batch may reach the obstacle in a thread of its own, before or after the clock moves on.
            tokio::task::yield_now().await;
            tokio::time::advance(STEP).await;
            if step + 1 < order.len() {
                blocked.remove(*obstacle);
            }
        }
        while began.elapsed() < BOUND {
            assert!(!answer.is_finished(), "{kind:?} {order:?}: answered after {:?}", began.elapsed());
            // Signals without room must not make the wait any longer.
            blocked.store.room.send_replace(());
            tokio::task::yield_now().await;
            tokio::time::advance(STEP).await;
        }
        until(&format!("{kind:?} {order:?} at the bound"), || {
            blocked.store.room.send_replace(());
            answer.is_finished()
        })
        .await;
        let refused = answer.await.unwrap().unwrap_err();
        assert_eq!(refused.code(), "busy", "{kind:?} {order:?}: {refused}");
        OBSTACLES.iter().for_each(|obstacle| blocked.remove(*obstacle));
        until("the sequencer is free", || blocked.store.sequencer.try_lock().is_ok()).await;
    }

    /// The obstacles that a batch of this kind meets.
    fn met_by(kind: BatchKind) -> impl Fn(&Obstacle) -> bool {
        move |obstacle| {
            *obstacle != Obstacle::Sequencer || matches!(kind, BatchKind::State | BatchKind::Heavy)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_order_of_obstacles_is_answered_at_one_bound() {
        let mut blocked = BlockedStore::new(BOUND);
        for kind in KINDS {
            let met: Vec<Obstacle> = OBSTACLES.into_iter().filter(met_by(kind)).collect();
            for first in &met {
                refused_at_the_bound(&mut blocked, kind, &[*first]).await;
                for second in met.iter().filter(|second| *second != first) {
                    refused_at_the_bound(&mut blocked, kind, &[*first, *second]).await;
                    for third in met.iter().filter(|third| *third != first && *third != second) {
                        refused_at_the_bound(&mut blocked, kind, &[*first, *second, *third]).await;
                    }
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_finds_room_in_time_is_written() {
        let mut blocked = BlockedStore::new(BOUND);
        for kind in KINDS {
            let met: Vec<Obstacle> = OBSTACLES.into_iter().filter(met_by(kind)).collect();
            for obstacle in &met {
                blocked.set(*obstacle).await;
            }
            let answer = blocked.commit(kind);
            for obstacle in met {
                tokio::task::yield_now().await;
                tokio::time::advance(STEP).await;
                assert!(!answer.is_finished(), "{kind:?} is not blocked by {obstacle:?}");
                blocked.remove(obstacle);
            }
            until("the batch", || answer.is_finished()).await;
            answer.await.unwrap().unwrap();
        }
    }
}
