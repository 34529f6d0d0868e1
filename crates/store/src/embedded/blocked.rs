//! A store that a test keeps from writing, for tests of waiting.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use promethean_log::{Completion, LogBatch, NewEvent, NewId, RealDisk};
use promethean_model::{Durability, EventId, SystemClock};
use tempfile::TempDir;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinHandle;

use super::open_store::OpenStore;
use super::{EmbeddedOptions, open};
use crate::port::{AppendEvent, Batch, CommitError, EventIdSource, RowOp, Table};

/// How long a step of a test may take in real time.
const PATIENCE: Duration = Duration::from_secs(60);

/// What keeps a batch from being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// As many bytes are on their way as there may be.
    Admission,
    /// Another batch has the sequencer.
    Sequencer,
    /// The log is busy.
    Log,
}

pub(super) const OBSTACLES: [Obstacle; 3] = [Obstacle::Admission, Obstacle::Sequencer, Obstacle::Log];

/// A kind of batch, by the way that it takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum BatchKind {
    Event,
    Events,
    State,
    /// So many changes that the batch goes to the blocking pool.
    Heavy,
}

pub(super) const KINDS: [BatchKind; 4] =
    [BatchKind::Event, BatchKind::Events, BatchKind::State, BatchKind::Heavy];

/// A store whose obstacles the test sets and removes.
pub(super) struct BlockedStore {
    admission: Option<OwnedSemaphorePermit>,
    /// A task has the sequencer until this is dropped.
    sequencer: Option<oneshot::Sender<()>>,
    /// The log's writer waits until the sender is dropped; then it writes what fills its queue.
    writer: Option<(SyncSender<()>, Receiver<()>)>,
    /// After the obstacles: a store is dropped when its writer has ended.
    pub(super) store: Arc<OpenStore>,
    _dir: TempDir,
}

impl BlockedStore {
    pub(super) fn new(bound: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = EmbeddedOptions::default();
        options.log.journal_file_bytes = 256 << 10;
        options.log.queue_bytes = 1024;
        options.log.room_wait_ms = bound.as_millis() as u64;
        let disk = Arc::new(RealDisk::new(dir.path()).unwrap());
        let (store, _) = open(disk, dir.path(), Arc::new(SystemClock::new()), options).unwrap();
        let store = store.opened().ok().unwrap();
        Self { store, admission: None, sequencer: None, writer: None, _dir: dir }
    }

    #[expect(clippy::disallowed_methods, reason = "the task ends when the obstacle is removed")]
    pub(super) async fn set(&mut self, obstacle: Obstacle) {
        match obstacle {
            Obstacle::Admission => {
                let all = self.store.inflight_bytes_max;
                let permit = Arc::clone(&self.store.admission).try_acquire_many_owned(all);
                self.admission = Some(permit.unwrap());
            }
            Obstacle::Sequencer => {
                let (release, released) = oneshot::channel::<()>();
                let store = Arc::clone(&self.store);
                tokio::spawn(async move {
                    let _held = store.sequencer.lock().await;
                    // An error is the signal: the sender is dropped.
                    let _ = released.await;
                });
                until("the sequencer is held", || self.store.sequencer.try_lock().is_err()).await;
                self.sequencer = Some(release);
            }
            Obstacle::Log => self.occupy_log(),
        }
    }

    pub(super) fn remove(&mut self, obstacle: Obstacle) {
        match obstacle {
            Obstacle::Admission => self.admission = None,
            Obstacle::Sequencer => self.sequencer = None,
            Obstacle::Log => {
                if let Some((release, written)) = self.writer.take() {
                    drop(release);
                    written.recv_timeout(PATIENCE).unwrap();
                }
            }
        }
    }

    /// Keeps the writer in the completion of a batch, and fills its queue.
    fn occupy_log(&mut self) {
        let (release, released) = sync_channel::<()>(1);
        let (reach, reached) = sync_channel(1);
        let stay = move |_| {
            reach.send(()).unwrap();
            // An error is the signal too: the sender is dropped.
            let _ = released.recv();
        };
        self.submit(0, Box::new(stay));
        reached.recv_timeout(PATIENCE).unwrap();
        let (write, written) = sync_channel(1);
        self.submit(1, Box::new(move |_| write.send(()).unwrap()));
        self.writer = Some((release, written));
    }

    fn submit(&self, number: u8, done: Completion) {
        let topic = self.store.log.topic_or_create(&"fill".parse().unwrap()).unwrap();
        let mut batch = LogBatch::new();
        let id = NewId::Minted(EventId::derive(b"fill", &[number]));
        let payload = [b'x'; 4096];
        let event = NewEvent { id, ts: None, key: None, meta: &[], payload: &payload, tombstone: false };
        batch.push(&topic, event).unwrap();
        self.store.log.try_submit(&batch, Durability::Fsync, done).unwrap();
    }

    #[expect(clippy::disallowed_methods, reason = "the test joins the task")]
    pub(super) fn commit(&self, kind: BatchKind) -> JoinHandle<Result<(), CommitError>> {
        let store = Arc::clone(&self.store);
        let rows = |count: usize| {
            let put = |n: usize| RowOp::Put {
                table: Table::Attempts,
                key: n.to_string().into(),
                value: Vec::new(),
                must_be_new: false,
            };
            (0..count).fold(Batch::new(), |batch, n| batch.with(put(n)))
        };
        tokio::spawn(async move {
            match kind {
                BatchKind::Event => {
                    store.commit_durable(Batch::new().event(event()), None, None).await.map(drop)
                }
                BatchKind::Events => store.append_each(vec![event()], None, None).await.remove(0).map(drop),
                BatchKind::State => store.commit_durable(rows(1), None, None).await.map(drop),
                BatchKind::Heavy => store.commit_durable(rows(100), None, None).await.map(drop),
            }
        })
    }
}

fn event() -> AppendEvent {
    AppendEvent {
        topic: "a".parse().unwrap(),
        id: EventIdSource::Minted(EventId::derive(b"room", b"event")),
        ts: None,
        key: None,
        meta: Vec::new(),
        payload: "1".to_owned(),
    }
}

#[expect(clippy::disallowed_methods, reason = "bounds a wait in real time")]
/// Lets other tasks and threads run until the condition holds, without moving the clock.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "stalled: {what}");
        tokio::task::yield_now().await;
    }
}
