//! A power cut at every operation of the disk, which also tears what the state engine has not synced. The store then
//! holds what the memory store holds after the acknowledged batches, or after one batch more.

use std::fmt::Write;
use std::sync::Arc;

use promethean_model::{Offset, TopicSettings};
use promethean_store::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean_store::memory::MemoryStore;
use promethean_store::port::{
    Batch, DedupeMark, Keeping, OutboxOp, OutboxStatus, PageLimit, SettingsOp, Store, Table, TopicOp,
};
use promethean_testkit::{FaultDisk, SyncedFolder};

use crate::suite::support::{
    clock, commit, copy_dir, cursor, declare, doc, event, replace_state, row, small, topic,
};

/// A value that is longer than a few sectors of the disk.
fn long(name: &str) -> String {
    name.repeat(3000)
}

fn script() -> Vec<Batch> {
    let mark = DedupeMark { scope: "s".to_owned(), id: "x".to_owned(), expires_at: 9, unless_seen_at: None };
    let settings = TopicSettings { max_attempts: 7, ..TopicSettings::default() };
    let outbox = OutboxOp::Add {
        id: promethean_model::EventId::derive(b"test", b"row"),
        ts: 1,
        topic: topic("a"),
        key: None,
        meta: Vec::new(),
        payload: "1".to_owned(),
    };
    vec![
        Batch::new().event(event("a", "0")).event(event("b", "0")),
        Batch::new()
            .with(declare("c", Keeping::Durable))
            .with(doc("c", "k", 1))
            .with(cursor("g", "a", 1))
            .with(row(Table::Attempts, "r", &long("0"))),
        Batch::new().event(event("a", "1")).with(doc("c", "k", 2)).with(mark).with(outbox),
        Batch::new().with(SettingsOp::Put(topic("a"), settings)).with(row(Table::Attempts, "r", &long("1"))),
        Batch::new().with(TopicOp::Create(topic("d"))).with(row(Table::Attempts, "r", &long("2"))),
        Batch::new().with(TopicOp::Delete(topic("a"))).with(row(Table::Attempts, "r", &long("3"))),
        Batch::new().event(event("a", "2")).with(doc("c", "l", 3)),
        Batch::new()
            .event(event("b", "1"))
            .with(TopicOp::Delete(topic("b")))
            .with(TopicOp::Create(topic("b")))
            .with(row(Table::Attempts, "r", &long("4"))),
    ]
}

/// All durable content of the store, as text.
async fn dump(store: &dyn Store) -> String {
    let mut out = String::new();
    for info in store.topics(None, 100).await.unwrap().topics {
        let page = store.read(&info.name, Offset::ZERO, PageLimit::default()).await.unwrap();
        let events: Vec<_> =
            page.events.iter().map(|event| (event.offset, event.id, event.payload())).collect();
        writeln!(out, "{} {} {events:?}", info.name, info.end).unwrap();
    }
    for name in ["a", "b", "d"] {
        let cursors = store.cursors_of_topic(&topic(name)).await.unwrap();
        writeln!(out, "{cursors:?} {:?}", store.settings(&topic(name)).await.unwrap()).unwrap();
    }
    writeln!(out, "{:?}", store.collections(None, 10).await.unwrap()).unwrap();
    for key in ["k", "l"] {
        writeln!(out, "{:?}", store.doc(&"c".parse().unwrap(), key).await.unwrap()).unwrap();
    }
    writeln!(out, "{:?}", store.outbox(OutboxStatus::Pending, None, 10).await.unwrap()).unwrap();
    writeln!(out, "{:?}", store.seen("s", "x", 0).await.unwrap()).unwrap();
    writeln!(out, "{:?}", store.rows(Table::Attempts, b"", None, 10).await.unwrap()).unwrap();
    out
}

/// The content after each number of batches.
async fn expected() -> Vec<String> {
    let store = MemoryStore::new(clock(), promethean_store::memory::MemoryOptions::default());
    let mut dumps = vec![dump(&store).await];
    for batch in script() {
        commit(&store, batch).await;
        dumps.push(dump(&store).await);
    }
    dumps
}

/// All work is done on the caller's thread, so that an operation's number means the same in every run.
fn options() -> EmbeddedOptions {
    let mut options = small();
    options.log.threads = false;
    options.log.journal_file_bytes = 64 << 10;
    options
}

async fn open(disk: &FaultDisk, dir: &std::path::Path) -> Option<EmbeddedStore> {
    let opened = EmbeddedStore::open_on(Arc::new(disk.clone()), dir, clock(), options()).await;
    opened.ok().map(|(store, _)| store)
}

/// Runs the script and returns how many batches were acknowledged. Calls `synced` when the state is synced.
async fn run(store: &EmbeddedStore, mut synced: impl FnMut()) -> usize {
    let mut acked = 0;
    for (n, batch) in script().into_iter().enumerate() {
        if store.commit(batch).await.is_err() {
            break;
        }
        acked += 1;
        if n == 2 {
            if store.checkpoint().await.is_err() {
                break;
            }
            synced();
        }
    }
    acked
}

#[tokio::test(flavor = "multi_thread")]
async fn every_point_recovers_to_a_whole_number_of_batches() {
    let expected = expected().await;
    let first_op = {
        let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
        let store = open(&disk, dir.path()).await.unwrap();
        let opened_at = disk.ops();
        assert_eq!(run(&store, || {}).await, script().len());
        assert_eq!(dump(&store).await, *expected.last().unwrap());
        opened_at..disk.ops()
    };
    let mut torn = 0;
    for op in first_op.start + 1..=first_op.end {
        for seed in [op, op + 1000] {
            torn += u64::from(power_cut(&expected, op, seed).await);
        }
    }
    assert!(torn > 20, "{torn} torn states");
}

/// Returns whether the state was torn.
async fn power_cut(expected: &[String], op: u64, seed: u64) -> bool {
    let (disk, dir, cut) = (FaultDisk::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = dir.path().join("state");
    let store = open(&disk, dir.path()).await.unwrap();
    let mut synced = SyncedFolder::of(&state);
    disk.stop_at(op, seed);
    let acked = run(&store, || synced = SyncedFolder::of(&state)).await;
    copy_dir(dir.path(), cut.path());
    store.close().await;
    replace_state(dir.path(), cut.path());
    let torn = synced.tear(&state, seed);
    let disk = disk.crash(seed);
    let opened = EmbeddedStore::open_on(Arc::new(disk), dir.path(), clock(), options()).await;
    let (store, _) = opened.unwrap_or_else(|error| panic!("op {op} seed {seed}: {error}"));
    let found = dump(&store).await;
    let fits = expected.iter().skip(acked).take(2).any(|dump| *dump == found);
    assert!(fits, "op {op} seed {seed}, {acked} acknowledged, found\n{found}\nexpected\n{}", expected[acked]);
    let report = store.verify(|_, _| {}).await.unwrap();
    assert!(report.is_clean(), "op {op} seed {seed}: {report:?}");
    torn
}
