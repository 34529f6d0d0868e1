//! The parts of an open store. Every call holds them; log and engine close when the last call is done.

use std::sync::{Arc, Mutex};

use promethean_log::{Log, LogNotice, Observer, StepWatch, Topic};
use promethean_model::{Clock, Durability, Offset, TopicName};
use tokio::sync::{Mutex as AsyncMutex, Semaphore, oneshot, watch};

use super::backup::StagedBackup;
use super::engine::Engine;
use super::error::damage;
use super::overlay::Overlay;
use crate::port::Health;
use crate::state::plan::TopicLookup;
use crate::watch::WatchHub;

/// An open store: log, engine, and what orders and bounds the batches.
pub(super) struct OpenStore {
    pub(super) log: Log,
    pub(super) engine: Engine,
    pub(super) overlay: Arc<Overlay>,
    pub(super) hub: Arc<WatchHub>,
    /// Decides the order of batches that change state. Held while a batch is checked and handed to the log, and while a
    /// derived batch is written, which can stall; so waiting for this lock must not block a thread.
    pub(super) sequencer: AsyncMutex<Sequencer>,
    /// Bytes that may still be handed to the log.
    pub(super) admission: Arc<Semaphore>,
    pub(super) inflight_bytes_max: u32,
    pub(super) durability: Durability,
    /// Changes when the log may take batches that it refused as busy.
    pub(super) room: Arc<watch::Sender<()>>,
    pub(super) clock: Arc<dyn Clock>,
    /// Derived batches that are being written.
    pub(super) derived_steps: StepWatch,
    /// Held while the settings of a topic are read and given to the log, see `push_policy_to`.
    pub(super) policies: Mutex<()>,
    /// Held while a noted change of a topic is made in the log, see `carry_out`.
    pub(super) topic_changes: Mutex<()>,
    /// The backup that is under way.
    pub(super) backup: Mutex<Option<Arc<StagedBackup>>>,
    /// The last field, so that the signal is sent after log and engine are dropped.
    pub(super) _released: ReleaseSignal,
}

/// Numbers batches that change state.
#[derive(Debug)]
pub(super) struct Sequencer {
    next_ticket: u64,
}

impl Sequencer {
    pub(super) fn after(ticket: u64) -> Self {
        Self { next_ticket: ticket + 1 }
    }

    /// A number above all earlier numbers. A number that is not used leaves a gap, which is harmless.
    pub(super) fn ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }
}

impl OpenStore {
    /// The condition of the log and of the engine.
    pub(super) fn health(&self) -> Health {
        let log = self.log.health();
        let full = || log.full.then(|| "storage is full".to_owned());
        let derived =
            || self.derived_steps.hangs_for_ms(&*self.clock).map(|ms| ("writing derived state", ms));
        let hangs = log.hanging.or_else(derived);
        let hangs = hangs.map(|(what, ms)| format!("{what} has taken {} s so far", ms / 1000));
        let descriptors = || log.lacks_descriptors.then(|| "no file descriptor is left".to_owned());
        Health {
            refusing: log.poisoned.or_else(|| self.overlay.failure()).map(needs_restart).or_else(full),
            degraded: hangs.or_else(descriptors),
            damage: log.damage.iter().filter_map(damage).collect(),
        }
    }

    /// Refuses further batches and makes all accepted batches durable.
    pub(super) fn close(&self) -> Result<(), promethean_log::MaintenanceError> {
        // What cannot be removed now is removed at the next open.
        let _ = self.end_backup();
        self.log.close()
    }
}

fn needs_restart(failure: String) -> String {
    format!("writing stopped after a failure ({failure}); restart the server once its cause is removed")
}

impl TopicLookup for OpenStore {
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

/// Tells `EmbeddedStore::close` that log and engine are dropped.
pub(super) struct ReleaseSignal(pub(super) Option<oneshot::Sender<()>>);

impl Drop for ReleaseSignal {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            // A store that was dropped without being closed has no receiver.
            let _ = sender.send(());
        }
    }
}

/// Passes moves of durable ends from the log to the watch hub, and room to the batches that wait for it.
pub(super) struct LogObserver {
    pub(super) hub: Arc<WatchHub>,
    pub(super) room: Arc<watch::Sender<()>>,
    pub(super) overlay: Arc<Overlay>,
}

impl Observer for LogObserver {
    fn durable_end_moved(&self, topic: &Topic, end: u64) {
        self.hub.moved(topic.name(), Offset(end));
    }

    fn room_returned(&self) {
        self.room.send_replace(());
    }

    fn notice(&self, notice: LogNotice) {
        tracing::warn!("{notice}");
    }

    fn stopped(&self, reason: &str) {
        // Derived batches skip the log, and must not be written either.
        self.overlay.fail(reason);
    }
}
