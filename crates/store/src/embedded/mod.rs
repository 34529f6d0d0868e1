//! The embedded store: events in the log, state in an ordered engine, one journal for both.
//!
//! | file | holds |
//! | --- | --- |
//! | `commit`, `each` | durable batches |
//! | `derived` | batches that skip the journal |
//! | `overlay` | what is accepted and not yet applied |
//! | `sink`, `redo` | how the log hands state to the engine |
//! | `engine` | the engine |
//! | `follow_up`, `policy` | settings and topics, after a commit and at open |
//! | `events`, `verify` | reads |
//!
//! Invariants:
//! - **E1** Whatever is in the engine from durable batches was synced in the journal before.
//! - **E2** A batch is checked against everything accepted before it, applied or not.
//! - **E3** The engine's content after a power cut is a prefix of what was written to it, and redo goes on from there.
//! - **E4** A commit with state returns after the engine applied it: whoever reads afterwards sees it.

mod commit;
mod derived;
mod each;
mod engine;
mod error;
mod events;
mod follow_up;
mod options;
mod overlay;
mod parts;
mod policy;
mod redo;
mod sink;
mod verify;

use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use async_trait::async_trait;
use promethean_log::disk::Disk;
use promethean_log::{Log, OpenArgs, RealDisk, RecoveryReport};
use promethean_model::{Clock, Durability, GroupName, IgnorePoison, Offset, TopicName};
use tokio::sync::{Mutex as AsyncMutex, Semaphore, oneshot};

pub use self::error::OpenError;
pub use self::options::Options;
use self::overlay::Overlay;
use self::parts::{HubObserver, Parts, Released, Sequencer};
use self::sink::Sink;
pub use self::verify::VerifyReport;
use crate::port::{
    AppendEvent, Appended, Batch, Class, CommitError, EndWatch, Health, ReadError, Receipt, Store, Turn,
    Watch,
};
use crate::state::plan::{self, Topics};
use crate::state::{StateFault, View, impl_state_reads};
use crate::watch::WatchHub;

/// The folder of the state engine inside the data directory.
const STATE_DIR: &str = "state";

/// A store in a directory of this machine.
pub struct EmbeddedStore {
    hub: Arc<WatchHub>,
    /// `None` once closed. Every call takes its own `Arc`, so that closing waits for all of them.
    parts: RwLock<Option<Arc<Parts>>>,
    /// Fires when log and engine are gone.
    released: Mutex<Option<oneshot::Receiver<()>>>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, or creates it there.
    pub async fn open(
        dir: impl AsRef<Path>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        let dir = dir.as_ref().to_owned();
        blocking(move || {
            let disk = RealDisk::new(&dir).map_err(|error| OpenError::Failed {
                reason: format!("cannot use the directory {}: {error}", dir.display()),
            })?;
            open(Arc::new(disk), &dir, clock, options.clamped())
        })
        .await?
    }

    /// As `open`, with the log on another disk than the directory's own; the state stays in the directory.
    pub async fn open_on(
        disk: Arc<dyn Disk>,
        dir: impl AsRef<Path>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        let dir = dir.as_ref().to_owned();
        blocking(move || open(disk, &dir, clock, options.clamped())).await?
    }

    /// Applies retention and compaction and merges indexes until nothing is left to do; the log otherwise does so by
    /// itself, in the background.
    pub async fn maintain(&self) -> Result<(), CommitError> {
        let parts = self.parts()?;
        blocking(move || parts.log.maintain().map_err(error::maintenance_error)).await?
    }

    /// Makes everything durable outside the journal too, and frees the journal.
    pub async fn checkpoint(&self) -> Result<(), CommitError> {
        let parts = self.parts()?;
        blocking(move || parts.log.checkpoint().map_err(error::maintenance_error)).await?
    }

    /// Reads and checks everything. `progress` is told bytes done and bytes in all, of events.
    pub async fn verify(
        &self,
        mut progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<VerifyReport, ReadError> {
        let parts = self.parts()?;
        Ok(blocking(move || {
            let log = parts.log.verify(&mut progress);
            VerifyReport::of(log, &parts.engine)
        })
        .await?)
    }

    /// Figures of the log, for metrics; `None` once closed.
    pub fn log_health(&self) -> Option<promethean_log::LogHealth> {
        self.parts().ok().map(|parts| parts.log.health())
    }

    fn parts(&self) -> Result<Arc<Parts>, Closed> {
        self.parts.read().ignore_poison().clone().ok_or(Closed)
    }

    /// Reads of a few keys are done where they are asked for: the engine has its indexes, filters and most blocks in
    /// memory.
    fn point<T>(&self, read: impl FnOnce(&dyn View) -> Result<T, StateFault>) -> Result<T, ReadError> {
        let parts = self.parts()?;
        Ok(read(&parts.engine.image())?)
    }

    async fn long<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn View) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let parts = self.parts()?;
        blocking(move || read(&parts.engine.image())).await?
    }
}

fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    clock: Arc<dyn Clock>,
    options: Options,
) -> Result<(EmbeddedStore, RecoveryReport), OpenError> {
    let hub = Arc::new(WatchHub::default());
    let overlay = Arc::new(Overlay::default());
    let sink = Arc::new(Sink::new(dir.join(STATE_DIR), options.clone(), Arc::clone(&overlay)));
    let args = OpenArgs {
        disk,
        clock,
        state: Arc::clone(&sink) as _,
        observer: Arc::new(HubObserver(Arc::clone(&hub))),
        options: options.log,
    };
    let (log, report) =
        Log::open(args).map_err(|error| sink.take_refusal().unwrap_or(OpenError::Log(error)))?;
    let engine = sink
        .engine()
        .cloned()
        .ok_or_else(|| OpenError::Failed { reason: "the log never asked for its state".to_owned() })?;
    let (sender, released) = oneshot::channel();
    let parts = Parts {
        log,
        engine,
        sequencer: AsyncMutex::new(Sequencer::after(overlay.last_applied())),
        overlay,
        hub: Arc::clone(&hub),
        admission: Arc::new(Semaphore::new(options.inflight_bytes_max as usize)),
        inflight_bytes_max: options.inflight_bytes_max,
        durability: options.durability,
        policies: Mutex::default(),
        _released: Released(Some(sender)),
    };
    parts.finish_open()?;
    let parts = RwLock::new(Some(Arc::new(parts)));
    Ok((EmbeddedStore { hub, parts, released: Mutex::new(Some(released)) }, report))
}

impl_state_reads!(EmbeddedStore);

impl Watch for EmbeddedStore {
    fn watch(&self, topic: &TopicName) -> EndWatch {
        self.hub.follow(topic, || self.durable_end(topic))
    }

    fn durable_end(&self, topic: &TopicName) -> Offset {
        self.parts().map_or(Offset::ZERO, |parts| parts.end(topic))
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn check_derived(&self, batch: &Batch) -> Result<(), CommitError> {
        plan::check(batch)?;
        let (parts, ops) = (self.parts()?, batch.state.clone());
        blocking(move || parts.check_derived(&ops)).await?
    }

    async fn commit(&self, batch: Batch) -> Result<Receipt, CommitError> {
        self.commit_in_turn(batch, None).await
    }

    async fn commit_in_turn(&self, batch: Batch, turn: Option<Turn>) -> Result<Receipt, CommitError> {
        plan::check(&batch)?;
        let parts = self.parts()?;
        match batch.class {
            Class::Durable(asked) => parts.commit_durable(batch, asked, turn).await,
            Class::Derived => {
                blocking(move || parts.commit_derived(&batch.state)).await??;
                Ok(Receipt { events: Vec::new(), durability: None })
            }
        }
    }

    async fn append_each(
        &self,
        events: Vec<AppendEvent>,
        durability: Option<Durability>,
        turn: Option<Turn>,
    ) -> Vec<Result<Appended, CommitError>> {
        match self.parts() {
            Ok(parts) => parts.append_each(events, durability, turn).await,
            Err(Closed) => vec![Err(CommitError::Closed); events.len()],
        }
    }

    async fn sweep(&self, now_ms: i64) -> Result<bool, CommitError> {
        let parts = self.parts()?;
        blocking(move || parts.sweep(now_ms)).await?
    }

    fn hold(&self, topic: &TopicName, holder: &GroupName, from: Option<Offset>) {
        // A closed store takes nothing away any more.
        let Ok(parts) = self.parts() else { return };
        parts.log.holds().set(topic, holder.as_str(), from.map(Offset::get));
    }

    fn holds_are_set(&self) {
        if let Ok(parts) = self.parts() {
            parts.log.holds().settle();
        }
    }

    fn health(&self) -> Health {
        let Ok(parts) = self.parts() else {
            return Health { refusing: Some("closed".to_owned()), damage: Vec::new() };
        };
        let health = parts.log.health();
        let full = || health.full.then(|| "storage is full".to_owned());
        Health {
            refusing: health.poisoned.clone().or_else(|| parts.overlay.failure()).or_else(full),
            damage: health.damage.iter().filter_map(error::damage).collect(),
        }
    }

    async fn close(&self) {
        let parts = self.parts.write().ignore_poison().take();
        if let Some(parts) = parts {
            // A failed checkpoint loses nothing: what it would have saved is still in the journal.
            let _ = blocking(move || parts.close()).await;
            self.hub.close();
        }
        let released = self.released.lock().ignore_poison().take();
        if let Some(released) = released {
            // Calls that began before are still under way; an error means that they are done.
            let _ = released.await;
        }
    }
}

/// The store was closed.
struct Closed;

impl From<Closed> for ReadError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Closed> for CommitError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

/// A piece of blocking work panicked or its runtime shut down.
struct Interrupted(tokio::task::JoinError);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "interrupted: {}", self.0)
    }
}

impl From<Interrupted> for ReadError {
    fn from(interrupted: Interrupted) -> Self {
        Self::Storage { reason: interrupted.to_string() }
    }
}

impl From<Interrupted> for CommitError {
    fn from(interrupted: Interrupted) -> Self {
        Self::UnknownOutcome { reason: interrupted.to_string() }
    }
}

/// Runs something that may wait for a disk where that holds up nobody else. It runs to its end even if the caller goes
/// away.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Interrupted> {
    tokio::task::spawn_blocking(work).await.map_err(Interrupted)
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").finish_non_exhaustive()
    }
}
