//! A power cut at every operation of the disk. The store then holds what the memory store holds after the acknowledged
//! batches, or after one batch more.

use std::fmt::Write;
use std::sync::Arc;

use promethean_model::{Offset, TopicSettings};
use promethean_store::embedded::{EmbeddedStore, Options};
use promethean_store::memory::MemoryStore;
use promethean_store::port::{
    Batch, DedupeMark, Keeping, OutboxOp, OutboxStatus, PageLimit, SettingsOp, Store, Table, TopicOp,
};
use promethean_testkit::FaultDisk;

use crate::suite::support::{
    clock, commit, copy_dir, cursor, declare, doc, event, replace_state, row, small, topic,
};

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
        Batch::new().with(declare("c", Keeping::Durable)).with(doc("c", "k", 1)).with(cursor("g", "a", 1)),
        Batch::new().event(event("a", "1")).with(doc("c", "k", 2)).with(mark).with(outbox),
        Batch::new().with(SettingsOp::Put(topic("a"), settings)).with(row(Table::Attempts, "r", "1")),
        Batch::new().with(TopicOp::Create(topic("d"))).with(row(Table::Attempts, "r", "2")),
        Batch::new().with(TopicOp::Delete(topic("a"))).with(row(Table::Attempts, "r", "3")),
        Batch::new().event(event("a", "2")).with(doc("c", "l", 3)),
        Batch::new()
            .event(event("b", "1"))
            .with(TopicOp::Delete(topic("b")))
            .with(TopicOp::Create(topic("b")))
            .with(row(Table::Attempts, "r", "4")),
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
    let store = MemoryStore::new(clock(), promethean_store::memory::Options::default());
    let mut dumps = vec![dump(&store).await];
    for batch in script() {
        commit(&store, batch).await;
        dumps.push(dump(&store).await);
    }
    dumps
}

/// All work is done on the caller's thread, so that an operation's number means the same in every run.
fn options() -> Options {
    let mut options = small();
    options.log.threads = false;
    options.log.journal_file_bytes = 64 << 10;
    options
}

async fn open(disk: &FaultDisk, dir: &std::path::Path) -> Option<EmbeddedStore> {
    let opened = EmbeddedStore::open_on(Arc::new(disk.clone()), dir, clock(), options()).await;
    opened.ok().map(|(store, _)| store)
}

/// Runs the script and returns how many batches were acknowledged.
async fn run(store: &EmbeddedStore) -> usize {
    let mut acked = 0;
    for (n, batch) in script().into_iter().enumerate() {
        if store.commit(batch).await.is_err() {
            break;
        }
        acked += 1;
        if n == 2 && store.checkpoint().await.is_err() {
            break;
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
        assert_eq!(run(&store).await, script().len());
        assert_eq!(dump(&store).await, *expected.last().unwrap());
        opened_at..disk.ops()
    };
    for op in first_op.start + 1..=first_op.end {
        power_cut(&expected, op, op % 2).await;
    }
}

async fn power_cut(expected: &[String], op: u64, seed: u64) {
    let (disk, dir) = (FaultDisk::new(), tempfile::tempdir().unwrap());
    let before = tempfile::tempdir().unwrap();
    let store = open(&disk, dir.path()).await.unwrap();
    copy_dir(dir.path(), before.path());
    disk.stop_at(op, seed);
    let acked = run(&store).await;
    store.close().await;
    // In some runs the engine loses everything since its first sync, too. The journal still has all of it, unless a
    // checkpoint came in between.
    if seed == 1 && acked < 3 {
        replace_state(dir.path(), before.path());
    }
    let disk = disk.crash(seed);
    let store = open(&disk, dir.path()).await.unwrap_or_else(|| panic!("op {op} seed {seed}: does not open"));
    let found = dump(&store).await;
    let fits = expected.iter().skip(acked).take(2).any(|dump| *dump == found);
    assert!(fits, "op {op} seed {seed}, {acked} acknowledged, found\n{found}\nexpected\n{}", expected[acked]);
    let report = store.verify(|_, _| {}).await.unwrap();
    assert!(report.is_clean(), "op {op} seed {seed}: {report:?}");
}
