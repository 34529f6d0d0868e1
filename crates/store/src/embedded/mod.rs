//! The embedded store: events in the log, state in an ordered engine, one journal for both.
//!
//! | file | holds |
//! | --- | --- |
//! | `open_store` | the parts of an open store |
//! | `commit`, `append` | durable batches; events appended one by one |
//! | `room` | how batches wait for the log |
//! | `derived_batch` | batches that skip the journal |
//! | `overlay` | writes that the log has accepted and the engine has not applied yet |
//! | `sink`, `redo` | how the log hands state to the engine |
//! | `engine` | the engine |
//! | `state_folder`, `state_journal`, `sync_mark` | the engine's files: who may read them, a torn end, what is synced |
//! | `state_versions` | the check of the engine's lists of tables, which the engine trusts |
//! | `topic_changes` | settings and topics, after a commit and at open |
//! | `events`, `verify` | reads |
//! | `backup` | a point of log and engine that is read while the store works; the state of a new directory from one |
//! | `repair`, `state_repair`, `readable` | sets damage aside and keeps the rest |
//!
//! Invariants:
//! - **E1** All that the engine holds of durable batches was synced in the journal before.
//! - **E2** A batch is checked against all batches accepted before it, applied or not.
//! - **E3** The engine's content after a power cut is a prefix of what was written to it, and redo goes on from there.
//! - **E4** A commit with state returns after the engine applied it: every later read sees it.

mod append;
mod backup;
#[cfg(test)]
mod blocked;
mod commit;
mod derived_batch;
mod engine;
mod error;
mod events;
mod open_store;
mod options;
mod overlay;
mod readable;
mod redo;
mod repair;
mod room;
mod sink;
mod state_folder;
mod state_journal;
mod state_repair;
mod state_versions;
mod sync_mark;
mod topic_changes;
mod verify;

use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use async_trait::async_trait;
use promethean_log::disk::Disk;
use promethean_log::{Log, OpenArgs, RealDisk, RecoveryReport, StepWatch};
use promethean_model::{Clock, Durability, GroupName, IgnorePoison, Offset, TopicName, TopicSettings};
use tokio::sync::{Mutex as AsyncMutex, Semaphore, oneshot, watch};

pub use self::error::OpenError;
use self::open_store::{LogObserver, OpenStore, ReleaseSignal, Sequencer};
pub use self::options::EmbeddedOptions;
use self::overlay::Overlay;
pub use self::repair::StoreRepairReport;
use self::sink::Sink;
pub use self::state_repair::StateRepairReport;
pub use self::verify::VerifyReport;
use crate::port::{
    AppendEvent, Appended, Batch, Class, CommitError, EndWatch, Health, LogFigures, ReadError, Receipt,
    SettingsOp, StateOp, Store, TopicRoom, Turn, Watch,
};
use crate::state::plan::{self, TopicLookup};
use crate::state::{StateFault, View, impl_state_reads};
use crate::watch::WatchHub;

/// The folder of the state engine inside the data directory.
const STATE_DIR: &str = "state";

/// A store in a directory of this machine.
pub struct EmbeddedStore {
    hub: Arc<WatchHub>,
    /// `None` once closed. Every call takes its own `Arc`, so that closing waits for all calls.
    opened: RwLock<Option<Arc<OpenStore>>>,
    /// Fires when log and engine are dropped.
    released: Mutex<Option<oneshot::Receiver<()>>>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, or creates it there.
    pub async fn open(
        dir: impl AsRef<Path>,
        clock: Arc<dyn Clock>,
        options: EmbeddedOptions,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        let dir = dir.as_ref().to_owned();
        blocking(move || {
            let disk = RealDisk::new(&dir).map_err(|error| OpenError::Failed {
                reason: format!("cannot use the directory {}: {error}", dir.display()),
            })?;
            warn_if_open_to_all(&dir);
            open(Arc::new(disk), &dir, clock, options.clamped())
        })
        .await?
    }

    /// As `open`, with the log on another disk than the directory's own; the state stays in the directory.
    pub async fn open_on(
        disk: Arc<dyn Disk>,
        dir: impl AsRef<Path>,
        clock: Arc<dyn Clock>,
        options: EmbeddedOptions,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        let dir = dir.as_ref().to_owned();
        blocking(move || open(disk, &dir, clock, options.clamped())).await?
    }

    /// Applies retention and compaction and merges indexes until nothing is left to do. The log also does so by itself,
    /// in the background.
    pub async fn maintain(&self) -> Result<(), CommitError> {
        let store = self.opened()?;
        blocking(move || store.log.maintain().map_err(error::maintenance_error)).await?
    }

    /// Takes a checkpoint: makes segments, indexes and state durable, and frees the journal.
    pub async fn checkpoint(&self) -> Result<(), CommitError> {
        let store = self.opened()?;
        blocking(move || store.log.checkpoint().map_err(error::maintenance_error)).await?
    }

    /// Reads and checks everything. `progress` gets the bytes of events done, and the bytes of all events.
    pub async fn verify(
        &self,
        mut progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<VerifyReport, ReadError> {
        let store = self.opened()?;
        Ok(blocking(move || {
            let log = store.log.verify(&mut progress);
            VerifyReport::of(log, &store.engine)
        })
        .await?)
    }

    /// Figures of the log, for metrics; `None` once closed.
    pub fn log_health(&self) -> Option<promethean_log::LogHealth> {
        self.opened().ok().map(|store| store.log.health())
    }

    fn opened(&self) -> Result<Arc<OpenStore>, StoreClosed> {
        self.opened.read().ignore_poison().clone().ok_or(StoreClosed)
    }

    /// Reads a few keys on the caller's thread: the engine has its indexes, filters and most blocks in memory.
    fn point<T>(&self, read: impl FnOnce(&dyn View) -> Result<T, StateFault>) -> Result<T, ReadError> {
        let store = self.opened()?;
        Ok(read(&store.engine.image())?)
    }

    /// Reads many keys on the blocking pool.
    async fn long<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn View) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let store = self.opened()?;
        blocking(move || read(&store.engine.image())).await?
    }
}

/// Says so if other users of the machine can read the data directory.
fn warn_if_open_to_all(dir: &Path) {
    if state_folder::is_open_to_all(dir).is_ok_and(|open| open) {
        let dir = dir.display();
        tracing::warn!(%dir, "every user of this machine can read the data directory; run `chmod go-rwx {dir}`");
    }
}

fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    clock: Arc<dyn Clock>,
    options: EmbeddedOptions,
) -> Result<(EmbeddedStore, RecoveryReport), OpenError> {
    let hub = Arc::new(WatchHub::default());
    let overlay = Arc::new(Overlay::default());
    let room = Arc::new(watch::Sender::new(()));
    let sink = Arc::new(Sink::new(dir.join(STATE_DIR), options.clone(), Arc::clone(&overlay)));
    let args = OpenArgs {
        disk,
        clock: Arc::clone(&clock),
        state: Arc::clone(&sink) as _,
        observer: Arc::new(LogObserver {
            hub: Arc::clone(&hub),
            room: Arc::clone(&room),
            overlay: Arc::clone(&overlay),
        }),
        options: options.log,
    };
    let (log, report) =
        Log::open(args).map_err(|error| sink.take_refusal().unwrap_or(OpenError::Log(error)))?;
    let engine = sink
        .engine()
        .cloned()
        .ok_or_else(|| OpenError::Failed { reason: "the log never asked for its state".to_owned() })?;
    let (sender, released) = oneshot::channel();
    let store = OpenStore {
        log,
        engine,
        sequencer: AsyncMutex::new(Sequencer::after(overlay.last_applied())),
        overlay,
        hub: Arc::clone(&hub),
        admission: Arc::new(Semaphore::new(options.inflight_bytes_max as usize)),
        inflight_bytes_max: options.inflight_bytes_max,
        durability: options.durability,
        room,
        clock,
        derived_steps: StepWatch::default(),
        policies: Mutex::default(),
        topic_changes: Mutex::default(),
        backup: Mutex::default(),
        _released: ReleaseSignal(Some(sender)),
    };
    store.finish_open()?;
    let opened = RwLock::new(Some(Arc::new(store)));
    Ok((EmbeddedStore { hub, opened, released: Mutex::new(Some(released)) }, report))
}

impl_state_reads!(EmbeddedStore);

impl Watch for EmbeddedStore {
    fn watch(&self, topic: &TopicName) -> EndWatch {
        self.hub.follow(topic, || self.durable_end(topic))
    }

    fn durable_end(&self, topic: &TopicName) -> Offset {
        self.opened().map_or(Offset::ZERO, |store| store.end(topic))
    }

    fn has_topic(&self, topic: &TopicName) -> bool {
        self.opened().is_ok_and(|store| store.log.topic(topic).is_some())
    }

    fn topic_room(&self) -> TopicRoom {
        let (topics, max) = self.opened().map_or((0, 0), |store| store.log.topic_room());
        TopicRoom { topics, max }
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn check_derived(&self, batch: &Batch) -> Result<(), CommitError> {
        plan::check(batch)?;
        let (store, ops) = (self.opened()?, batch.state.clone());
        blocking(move || store.check_derived(&ops)).await?
    }

    async fn commit(&self, batch: Batch) -> Result<Receipt, CommitError> {
        self.commit_in_turn(batch, None).await
    }

    async fn commit_in_turn(&self, batch: Batch, turn: Option<Turn>) -> Result<Receipt, CommitError> {
        plan::check(&batch)?;
        for op in &batch.state {
            if let StateOp::Settings(SettingsOp::Put(_, TopicSettings { durability: Some(asked), .. })) = op {
                commit::check_offered(*asked)?;
            }
        }
        let store = self.opened()?;
        match batch.class {
            Class::Durable(asked) => store.commit_durable(batch, asked, turn).await,
            Class::Derived => {
                blocking(move || store.commit_derived(&batch.state)).await??;
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
        match self.opened() {
            Ok(store) => store.append_each(events, durability, turn).await,
            Err(StoreClosed) => vec![Err(CommitError::Closed); events.len()],
        }
    }

    async fn sweep(&self, now_ms: i64) -> Result<bool, CommitError> {
        let store = self.opened()?;
        blocking(move || store.sweep(now_ms)).await?
    }

    fn hold(&self, topic: &TopicName, holder: &GroupName, from: Option<Offset>) {
        // A closed store drops no events.
        let Ok(store) = self.opened() else { return };
        store.log.holds().set(topic, holder.as_str(), from.map(Offset::get));
    }

    fn holds_are_set(&self) {
        if let Ok(store) = self.opened() {
            store.log.holds().settle();
        }
    }

    fn health(&self) -> Health {
        let Ok(store) = self.opened() else {
            return Health { refusing: Some("closed".to_owned()), ..Health::default() };
        };
        store.health()
    }

    fn figures(&self) -> Option<LogFigures> {
        Some(self.opened().ok()?.log.figures())
    }

    async fn close(&self) {
        let store = self.opened.write().ignore_poison().take();
        if let Some(store) = store {
            // A failed checkpoint loses nothing: what it would have saved is still in the journal.
            let _ = blocking(move || store.close()).await;
            self.hub.close();
        }
        let released = self.released.lock().ignore_poison().take();
        if let Some(released) = released {
            // Waits for calls that began before. An error means that they are done.
            let _ = released.await;
        }
    }
}

/// The refusal of a store that was closed.
struct StoreClosed;

impl From<StoreClosed> for ReadError {
    fn from(_: StoreClosed) -> Self {
        Self::Closed
    }
}

impl From<StoreClosed> for CommitError {
    fn from(_: StoreClosed) -> Self {
        Self::Closed
    }
}

/// The failure of blocking work that panicked, or whose runtime shut down.
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

/// Runs work that may wait for a disk on the blocking pool. The work runs to its end even if the caller drops the future.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Interrupted> {
    tokio::task::spawn_blocking(work).await.map_err(Interrupted)
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").finish_non_exhaustive()
    }
}
