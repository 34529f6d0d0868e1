//! A log without room: a batch is refused at once where its caller must not wait, and for a bounded time where
//! it may. Row 12 of the fault model: a slow disk.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promethean_log::state::{Redo, StateError, StateSink};
use promethean_log::{AppendError, Log, LogBatch, LogOptions, NewEvent, NewId, Observer, OpenArgs, Topic};
use promethean_model::Durability;
use promethean_testkit::fault_state::encode_puts;
use promethean_testkit::{FaultState, GateDisk};

use super::world::*;

/// Far longer than any step here takes, unless it waits for the gate.
const PATIENCE: Duration = Duration::from_secs(60);

/// Passes the signal that there may be room to a test.
struct RoomObserver(SyncSender<()>);

impl Observer for RoomObserver {
    fn durable_end_moved(&self, _topic: &Topic, _end: u64) {}

    fn room_returned(&self) {
        // One signal that waits is enough.
        let _ = self.0.try_send(());
    }
}

fn open(world: &World, gate: impl Fn(Arc<dyn promethean_log::disk::Disk>) -> GateDisk) -> Gated {
    let disk = gate(Arc::new(world.disk.clone()));
    let (sender, room) = sync_channel(1);
    let observer = Arc::new(RoomObserver(sender));
    let args = OpenArgs { disk: Arc::new(disk.clone()), observer, ..world.args() };
    Gated { disk, log: Log::open(args).unwrap().0, room }
}

struct Gated {
    disk: GateDisk,
    log: Log,
    room: Receiver<()>,
}

fn threads() -> LogOptions {
    LogOptions { threads: true, room_wait_ms: 200, ..small() }
}

fn minted(log: &Log, number: u64) -> LogBatch {
    let mut batch = LogBatch::new();
    let payload = "x".repeat(1000);
    let new = NewEvent { id: NewId::Minted(id(number)), ..event(number, None, &payload) };
    batch.push(&log.topic_or_create(&name("t")).unwrap(), new).unwrap();
    batch
}

/// Submits until there is no room. Returns how many batches were taken, and the refusal.
fn submit_until_refused(log: &Log, done: &SyncSender<bool>) -> (u64, AppendError) {
    for n in 0..1000 {
        let done = done.clone();
        let tell = Box::new(move |result: Result<_, _>| done.send(result.is_ok()).unwrap());
        if let Err(error) = log.try_submit(&minted(log, n), Durability::Fsync, tell) {
            return (n, error);
        }
    }
    panic!("1000 batches were taken");
}

/// Fails the test, instead of hanging it, if `work` waits for the gate.
fn must_not_wait<T: Send + 'static>(
    disk: &GateDisk,
    log: &Log,
    work: impl FnOnce(&Log) -> T + Send + 'static,
) -> T {
    let (done, finished) = sync_channel(1);
    let copy = log.clone();
    let worker = std::thread::spawn(move || done.send(work(&copy)).unwrap());
    let answer = finished.recv_timeout(PATIENCE);
    if answer.is_err() {
        disk.open_gate();
    }
    worker.join().unwrap();
    answer.expect("the caller waited for the disk")
}

#[test]
fn row_12_a_stuck_sync_refuses_further_batches_in_time_and_loses_none_that_it_took() {
    let world = World::with(LogOptions { queue_bytes: 8 * 1024, journal_file_bytes: 64 * 1024, ..threads() });
    let Gated { disk, log, room } = open(&world, |disk| GateDisk::new(disk, "journal"));
    append(&log, "t", event(9999, None, "first")).unwrap();
    disk.close();
    let (done, answers) = sync_channel(1000);
    let (taken, refused) = must_not_wait(&disk, &log, move |log| submit_until_refused(log, &done));
    assert!(matches!(refused, AppendError::Busy { .. }), "{refused}");
    let patient = must_not_wait(&disk, &log, |log| log.append(minted(log, 5000), Durability::Fsync));
    assert!(
        matches!(patient, Err(AppendError::Busy { .. })),
        "a blocking caller is answered too: {patient:?}"
    );
    while room.try_recv().is_ok() {}
    disk.open_gate();
    room.recv_timeout(PATIENCE).expect("the refused are told that there is room");
    for _ in 0..taken {
        assert!(answers.recv_timeout(PATIENCE).unwrap(), "each batch that was taken is written");
    }
    log.append(minted(&log, 6000), Durability::Fsync).unwrap();
    assert_eq!(log.topic(&name("t")).unwrap().end(), taken + 2);
}

#[test]
fn row_12_health_names_the_step_that_hangs() {
    let world = World::with(threads());
    let Gated { disk, log, .. } = open(&world, |disk| GateDisk::new(disk, "journal"));
    append(&log, "t", event(1, None, "1")).unwrap();
    disk.close();
    let publisher = {
        let log = log.clone();
        std::thread::spawn(move || append(&log, "t", event(2, None, "2")))
    };
    disk.wait_until_stuck();
    assert_eq!(log.health().hanging, None, "a slow sync is not a hanging one");
    let (what, ms) = until_it_hangs(&world, &log);
    assert_eq!(what, "writing the journal");
    assert!(ms >= 5000, "{ms}");
    disk.open_gate();
    publisher.join().unwrap().unwrap();
    assert_eq!(log.health().hanging, None);
}

/// Lets time pass until health names a step. The step may begin after the first second.
fn until_it_hangs(world: &World, log: &Log) -> (&'static str, u64) {
    for _ in 0..1_000_000 {
        if let Some(hanging) = log.health().hanging {
            return hanging;
        }
        world.clock.advance(100);
        std::thread::yield_now();
    }
    panic!("health names no step");
}

/// A state engine whose calls wait until a test lets them go.
struct StuckState {
    inner: Arc<FaultState>,
    entered: SyncSender<()>,
    release: Mutex<Receiver<()>>,
}

impl StateSink for StuckState {
    fn applied_lsn(&self) -> Result<u64, StateError> {
        self.inner.applied_lsn()
    }

    fn apply(&self, frames: &[Redo<'_>]) -> Result<(), StateError> {
        self.entered.send(()).unwrap();
        self.release.lock().unwrap().recv().unwrap();
        self.inner.apply(frames)
    }

    fn sync(&self) -> Result<(), StateError> {
        self.inner.sync()
    }
}

#[test]
fn a_state_engine_that_hangs_is_seen_in_health() {
    let world = World::with(threads());
    let (entered, applying) = sync_channel(1);
    let (let_go, release) = sync_channel(1);
    let state = StuckState { inner: Arc::clone(&world.state), entered, release: Mutex::new(release) };
    let log = Log::open(OpenArgs { state: Arc::new(state), ..world.args() }).unwrap().0;
    let acker = {
        let log = log.clone();
        std::thread::spawn(move || {
            let mut batch = LogBatch::new();
            batch.redo(&encode_puts(&[(b"k", b"v")]));
            log.append(batch, Durability::Fsync).map(drop)
        })
    };
    applying.recv_timeout(PATIENCE).unwrap();
    assert_eq!(log.health().hanging, None);
    world.clock.advance(7000);
    assert_eq!(log.health().hanging, Some(("applying state", 7000)));
    let_go.send(()).unwrap();
    acker.join().unwrap().unwrap();
    assert_eq!(log.health().hanging, None);
}

/// The rebuild reads every segment. A publisher whose lookup finds the damage does not wait for it, and its
/// event is decided by a whole index.
#[test]
fn a_damaged_index_run_is_rebuilt_beside_the_publisher() {
    let world = World::with(threads());
    let Gated { disk, log, room } = open(&world, |disk| GateDisk::of_reads(disk, ".seg"));
    for n in 0..100 {
        append(&log, "t", event(n, Some("k"), "x")).unwrap();
    }
    log.checkpoint().unwrap();
    for run in world.disk.files().into_iter().filter(|file| file.ends_with(".run")) {
        world.disk.flip_bit(&run, 5, 1).unwrap();
    }
    disk.close();
    let again = |log: &Log| {
        let mut batch = LogBatch::each();
        batch.push(&log.topic(&name("t")).unwrap(), event(3, Some("k"), "x")).unwrap();
        log.try_submit(&batch, Durability::Fsync, Box::new(|_| {}))
    };
    let refused = must_not_wait(&disk, &log, again);
    assert_eq!(refused, Err(AppendError::Busy { what: "rebuilding an index" }));
    disk.wait_until_stuck();
    assert_eq!(must_not_wait(&disk, &log, again), refused, "also while the rebuild is under way");
    let by_key = must_not_wait(&disk, &log, |log| {
        let topic = log.topic(&name("t")).unwrap();
        let mut batch = LogBatch::new();
        batch.push(&topic, NewEvent { id: NewId::Minted(id(500)), ..event(500, Some("k"), "y") }).unwrap();
        batch.expect_key(&topic, b"k", Some(99));
        log.try_submit(&batch, Durability::Fsync, Box::new(|_| {}))
    });
    assert_eq!(by_key, refused, "an expectation is not decided either");
    while room.try_recv().is_ok() {}
    disk.open_gate();
    room.recv_timeout(PATIENCE).expect("the publisher is told to try again");
    assert_eq!(append(&log, "t", event(3, Some("k"), "x")).unwrap(), 3, "a duplicate");
    assert_eq!(log.topic(&name("t")).unwrap().end(), 100);
}

#[test]
fn a_full_disk_under_threads_answers_every_publish_and_resumes_by_itself() {
    let world = World::with(LogOptions { maintenance_interval_ms: 10, ..threads() });
    let log = world.open();
    append(&log, "t", event(0, None, "0")).unwrap();
    world.disk.set_files_max(Some(world.disk.files().len() as u64));
    let mut accepted = 1;
    let refused = loop {
        match log.append(minted(&log, accepted), Durability::Fsync) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 10_000, "never full");
    };
    assert!(matches!(refused, AppendError::StorageFull { .. }), "{refused}");
    assert!(log.health().full && log.health().poisoned.is_none());
    for n in 0..50 {
        let again = log.append(minted(&log, 20_000 + n), Durability::Fsync);
        assert!(matches!(again, Err(AppendError::StorageFull { .. })), "{again:?}");
    }
    world.disk.set_files_max(None);
    let resumed = (0..).find_map(|n| {
        std::thread::yield_now();
        log.append(minted(&log, 30_000 + n), Durability::Fsync).ok()
    });
    assert_eq!(resumed.unwrap().events[0].offset, accepted);
    assert!(!log.health().full);
    log.close().unwrap();
}
