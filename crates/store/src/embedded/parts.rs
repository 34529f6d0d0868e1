//! What an open store consists of. Everyone who works with it holds it; it is closed when the last one is done.

use std::sync::{Arc, Mutex};

use promethean_log::{Log, Observer, Topic};
use promethean_model::{Durability, Offset, TopicName};
use tokio::sync::{Mutex as AsyncMutex, OwnedSemaphorePermit, Semaphore, oneshot};

use super::engine::Engine;
use super::overlay::Overlay;
use crate::port::CommitError;
use crate::state::plan::Topics;
use crate::watch::WatchHub;

pub(super) struct Parts {
    pub(super) log: Log,
    pub(super) engine: Engine,
    pub(super) overlay: Arc<Overlay>,
    pub(super) hub: Arc<WatchHub>,
    /// Decides the order of batches that change state. Held while a batch is checked and handed to the log, and while
    /// a derived one is written, which can stall; waiting for it therefore must not block a thread.
    pub(super) sequencer: AsyncMutex<Sequencer>,
    /// Bytes that may still be handed to the log.
    pub(super) admission: Arc<Semaphore>,
    pub(super) inflight_bytes_max: u32,
    pub(super) durability: Durability,
    /// See `push_policy_to`.
    pub(super) policies: Mutex<()>,
    /// Last, so that it tells of the end after log and engine are gone.
    pub(super) _released: Released,
}

#[derive(Debug)]
pub(super) struct Sequencer {
    next_ticket: u64,
}

impl Sequencer {
    pub(super) fn after(ticket: u64) -> Self {
        Self { next_ticket: ticket + 1 }
    }

    /// A number above all before. One that is not used after all leaves a gap, which is harmless.
    pub(super) fn ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }
}

impl Parts {
    /// Waits until there is room for so many bytes. A batch larger than all room waits for all of it.
    pub(super) async fn admit(&self, bytes: usize) -> Result<OwnedSemaphorePermit, CommitError> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.inflight_bytes_max);
        let admission = Arc::clone(&self.admission);
        admission.acquire_many_owned(bytes).await.map_err(|_| CommitError::Closed)
    }
}

impl Parts {
    /// Takes no more batches and makes everything durable.
    pub(super) fn close(&self) -> Result<(), promethean_log::MaintenanceError> {
        self.log.close()
    }
}

impl Topics for Parts {
    fn end(&self, topic: &TopicName) -> Offset {
        Offset(self.log.topic(topic).map_or(0, |topic| topic.end()))
    }

    fn change_in_two_steps(&self) -> bool {
        true
    }

    fn number(&self, topic: &TopicName) -> Option<u32> {
        self.log.topic(topic).map(|topic| topic.id())
    }
}

/// Tells `close` that everything is gone.
pub(super) struct Released(pub(super) Option<oneshot::Sender<()>>);

impl Drop for Released {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            // Nobody listens where the store was dropped without being closed.
            let _ = sender.send(());
        }
    }
}

/// Wakes followers of topics.
pub(super) struct HubObserver(pub(super) Arc<WatchHub>);

impl Observer for HubObserver {
    fn durable_end_moved(&self, topic: &Topic, end: u64) {
        self.0.moved(topic.name(), Offset(end));
    }
}
