//! Waiting for room in the log: asynchronous, and for a bounded time. No step waits on a thread of the runtime.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{MutexGuard, OwnedSemaphorePermit, TryAcquireError, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::commit_error;
use super::open_store::{OpenStore, Sequencer};
use crate::port::CommitError;

/// The work that a batch waits for while too many bytes are on their way to the disk.
const EARLIER_EVENTS: &str = "writing earlier events";

/// The wait of one batch that the log refuses as busy. It costs nothing until the first refusal.
pub(super) struct RoomWait<'a> {
    store: &'a OpenStore,
    waiting: Option<(watch::Receiver<()>, Instant)>,
}

impl<'a> RoomWait<'a> {
    pub(super) fn new(store: &'a OpenStore) -> Self {
        Self { store, waiting: None }
    }

    /// Waits until the batch may be tried again. Fails when it has waited long enough.
    pub(super) async fn wait(&mut self, what: &'static str) -> Result<(), CommitError> {
        let Some((room, deadline)) = &mut self.waiting else {
            // Room that came before this line is not announced again, so the batch is tried once more.
            self.waiting = Some((self.store.room.subscribe(), Instant::now() + self.store.room_wait()));
            return Ok(());
        };
        match timeout_at(*deadline, room.changed()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(CommitError::Closed),
            Err(_) => Err(commit_error(self.store.log.no_room(what))),
        }
    }
}

impl OpenStore {
    pub(super) fn room_wait(&self) -> Duration {
        Duration::from_millis(self.log.room_wait_ms())
    }

    /// Waits until a batch of this many bytes may be handed to the log. A batch larger than the bound waits until no
    /// other batch is on its way.
    pub(super) async fn admit(&self, bytes: usize) -> Result<OwnedSemaphorePermit, CommitError> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.inflight_bytes_max);
        match Arc::clone(&self.admission).try_acquire_many_owned(bytes) {
            Ok(permit) => return Ok(permit),
            Err(TryAcquireError::Closed) => return Err(CommitError::Closed),
            Err(TryAcquireError::NoPermits) => {}
        }
        let permit = Arc::clone(&self.admission).acquire_many_owned(bytes);
        match timeout(self.room_wait(), permit).await {
            Ok(permit) => permit.map_err(|_| CommitError::Closed),
            Err(_) => Err(commit_error(self.log.no_room(EARLIER_EVENTS))),
        }
    }

    /// Waits for the turn to change state.
    pub(super) async fn lock_sequencer(&self) -> Result<MutexGuard<'_, Sequencer>, CommitError> {
        if let Ok(sequencer) = self.sequencer.try_lock() {
            return Ok(sequencer);
        }
        let locked = timeout(self.room_wait(), self.sequencer.lock()).await;
        locked.map_err(|_| CommitError::Busy { what: "changes of state" })
    }
}
