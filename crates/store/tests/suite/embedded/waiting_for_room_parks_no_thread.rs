//! A store without room: waiting is asynchronous and bounded, and everything else goes on.
//!
//! Each test runs on a runtime with one thread. If a waiting publisher parked it, nothing would go on; the test then
//! fails instead of hanging.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use promethean_model::{EventId, Offset};
use promethean_store::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean_store::port::{
    AppendEvent, Batch, CommitError, EventIdSource, EventReads, PageLimit, Store, Table, Watch,
};
use promethean_testkit::{FaultDisk, GateDisk, ManualClock, soon, starts_waiting};

use crate::suite::support::{clock, event, row, row_text, small, topic};

/// Far longer than a test takes, unless its only thread is parked.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a batch waits for room.
const ROOM_WAIT_MS: u64 = 300;

struct Gated {
    disk: GateDisk,
    store: EmbeddedStore,
    clock: Arc<ManualClock>,
    _dir: tempfile::TempDir,
}

/// A store whose log waits at a gate before syncs of files in `folder`.
async fn open(folder: &str, change: impl FnOnce(&mut EmbeddedOptions)) -> Gated {
    let dir = tempfile::tempdir().unwrap();
    let disk = GateDisk::new(Arc::new(FaultDisk::new()), folder);
    let mut options = small();
    options.log.journal_file_bytes = 256 << 10;
    options.log.checkpoint_bytes = 64 << 10;
    // One segment, so that a checkpoint syncs that file and not the whole disk.
    options.log.segment_bytes = 64 << 20;
    options.log.room_wait_ms = ROOM_WAIT_MS;
    change(&mut options);
    let clock = clock();
    let opened = EmbeddedStore::open_on(Arc::new(disk.clone()), dir.path(), clock.clone(), options).await;
    Gated { disk, store: opened.unwrap().0, clock, _dir: dir }
}

/// Runs a test on one thread, and fails if that thread is parked.
fn on_one_thread<F: Future<Output = ()> + 'static>(test: fn() -> F) {
    let (done, finished) = sync_channel(1);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
        // The receiver is gone only if the test has failed already.
        let _ = done.send(());
    });
    match finished.recv_timeout(PATIENCE) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the only thread of the runtime is parked"),
        _ => thread.join().unwrap(),
    }
}

fn large(number: u64) -> AppendEvent {
    let id = EventIdSource::Minted(EventId::derive(b"large", &number.to_le_bytes()));
    AppendEvent { id, payload: format!("\"{}\"", "x".repeat(8000)), ..event("a", "large") }
}

/// Publishes until a publish is refused. Returns how many were accepted.
async fn fill(store: &EmbeddedStore) -> (u64, CommitError) {
    for n in 0..1000 {
        if let Err(error) = soon("a publish", store.commit(Batch::new().event(large(n)))).await {
            return (n, error);
        }
    }
    panic!("1000 publishes were accepted");
}

async fn everything_else_works(store: &EmbeddedStore, end: u64) {
    assert_eq!(store.health().refusing, None);
    assert_eq!(store.durable_end(&topic("a")), Offset(end));
    let page = soon("a read", store.read(&topic("a"), Offset(0), PageLimit::default())).await.unwrap();
    assert!(!page.events.is_empty());
    assert_eq!(soon("a row", row_text(store, Table::Attempts, "none")).await, None);
}

#[test]
fn publishers_that_wait_for_a_checkpoint_park_no_thread() {
    on_one_thread(|| async {
        let Gated { disk, store, _dir, .. } = open("segments", |_| {}).await;
        disk.close();
        let (accepted, refused) = fill(&store).await;
        assert_eq!((refused.code(), refused.is_retryable()), ("busy", true), "{refused}");
        {
            let mut first = pin!(store.commit(Batch::new().event(large(2001))));
            let mut second = pin!(store.append_each(vec![large(2002)], None, None));
            let state = Batch::new().event(large(2003)).with(row(Table::Attempts, "r", "1"));
            let mut third = pin!(store.commit(state));
            assert!(starts_waiting(first.as_mut()).await);
            assert!(starts_waiting(second.as_mut()).await);
            assert!(starts_waiting(third.as_mut()).await);
            everything_else_works(&store, accepted).await;
            disk.open_gate();
            soon("the first", first).await.unwrap();
            assert!(soon("the second", second).await.iter().all(Result::is_ok));
            soon("the third", third).await.unwrap();
        }
        assert_eq!(row_text(&store, Table::Attempts, "r").await.as_deref(), Some("1"));
        assert_eq!(store.durable_end(&topic("a")), Offset(accepted + 3));
        soon("the close", store.close()).await;
    });
}

#[test]
fn row_12_a_slow_disk_is_answered_in_time_and_seen_in_health() {
    on_one_thread(|| async {
        let Gated { disk, store, clock, _dir } = open("journal", |options| {
            options.inflight_bytes_max = 64 << 10;
        })
        .await;
        soon("a publish", store.commit(Batch::new().event(large(0)))).await.unwrap();
        disk.close();
        let mut publishes: Vec<_> =
            (1..12).map(|n| Box::pin(store.commit(Batch::new().event(large(n))))).collect();
        let mut refused = 0;
        for publish in &mut publishes {
            assert!(starts_waiting(publish.as_mut()).await);
        }
        let late = soon("a publish beyond the bound", store.commit(Batch::new().event(large(100)))).await;
        assert_eq!(late.unwrap_err().code(), "busy");
        everything_else_works(&store, 1).await;
        clock.advance(6000);
        promethean_testkit::until("health names the step", async || {
            clock.advance(100);
            store.health().degraded.is_some_and(|why| why.contains("writing the journal"))
        })
        .await;
        disk.open_gate();
        for publish in publishes {
            match soon("an answer", publish).await {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.code(), "busy");
                    refused += 1;
                }
            }
        }
        assert_eq!(store.durable_end(&topic("a")), Offset(12 - refused));
        assert_eq!(store.health().degraded, None);
    });
}

/// The state engine writes without the journal; a batch that waits for its turn is answered too.
#[test]
fn a_change_of_state_that_cannot_have_its_turn_is_answered_in_time() {
    on_one_thread(|| async {
        let Gated { disk, store, _dir, .. } = open("segments", |_| {}).await;
        disk.close();
        let (_, refused) = fill(&store).await;
        assert_eq!(refused.code(), "busy");
        let batch = Batch::new().with(row(Table::Attempts, "r", "1"));
        let refused = soon("an ack", store.commit(batch)).await.unwrap_err();
        assert_eq!(refused.code(), "busy", "{refused}");
        disk.open_gate();
        let batch = || Batch::new().with(row(Table::Attempts, "r", "2"));
        promethean_testkit::until("acks go on", async || store.commit(batch()).await.is_ok()).await;
    });
}
