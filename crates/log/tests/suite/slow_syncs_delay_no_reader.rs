//! A disk with slow syncs: only callers that need a sync wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use promethean_log::disk::Disk;
use promethean_log::{Log, LogBatch, LogOptions, NewEvent, NewId, OpenArgs};
use promethean_model::Durability;
use promethean_testkit::GateDisk;

use super::reports_name_the_damage::look_around;
use super::world::*;

/// Far longer than any step here takes, unless it waits for the gate.
const PATIENCE: Duration = Duration::from_secs(20);

fn open(options: LogOptions, slow: &str) -> (GateDisk, Log) {
    open_gated(&World::with(options), |disk| GateDisk::new(disk, slow))
}

fn open_gated(world: &World, gate: impl Fn(Arc<dyn Disk>) -> GateDisk) -> (GateDisk, Log) {
    let disk = gate(Arc::new(world.disk.clone()));
    let log = Log::open(OpenArgs { disk: Arc::new(disk.clone()), ..world.args() }).unwrap().0;
    (disk, log)
}

/// Fails the test, instead of hanging it, if `work` waits for the gate.
fn must_not_wait(what: &str, disk: &GateDisk, log: &Log, work: fn(&Log)) {
    let (done, finished) = sync_channel(1);
    let log = log.clone();
    let worker = std::thread::spawn(move || {
        work(&log);
        done.send(()).unwrap();
    });
    let waited = finished.recv_timeout(PATIENCE).is_err();
    if waited {
        disk.open_gate();
    }
    worker.join().unwrap();
    assert!(!waited, "{what} waited for a sync");
}

#[test]
fn reads_lookups_and_health_go_on_while_a_sync_is_stuck() {
    let (disk, log) = open(LogOptions { threads: true, ..small() }, "journal");
    for n in 0..50 {
        append(&log, ["t", "u"][n as usize % 2], event(n, Some("k"), "x")).unwrap();
    }
    disk.close();
    let publisher = {
        let log = log.clone();
        std::thread::spawn(move || append(&log, "t", event(100, Some("k"), "late")))
    };
    disk.wait_until_stuck();
    must_not_wait("health", &disk, &log, |log| assert_eq!(log.health().poisoned, None));
    must_not_wait("a reader", &disk, &log, look_around);
    must_not_wait("a submit", &disk, &log, |log| {
        let topic = log.topic(&name("u")).unwrap();
        let mut batch = LogBatch::new();
        batch.push(&topic, event(101, Some("k"), "queued")).unwrap();
        log.submit(&batch, Durability::Fsync, Box::new(|result| drop(result.unwrap()))).unwrap();
    });
    assert_eq!(log.topic(&name("t")).unwrap().end(), 25, "nothing is shown before it is durable");
    disk.open_gate();
    assert_eq!(publisher.join().unwrap().unwrap(), 25);
    log.close().unwrap();
    assert_eq!(payloads(&log, "u", 25), [(25, "queued".to_owned())]);
}

#[test]
fn reads_lookups_and_health_go_on_while_a_checkpoint_is_stuck() {
    let (disk, log) = open(LogOptions { threads: true, ..small() }, "segments");
    append(&log, "t", event(0, Some("k"), "x")).unwrap();
    disk.close();
    let checkpoint = {
        let log = log.clone();
        std::thread::spawn(move || log.checkpoint())
    };
    disk.wait_until_stuck();
    must_not_wait("health", &disk, &log, |log| assert_eq!(log.health().poisoned, None));
    must_not_wait("a reader", &disk, &log, look_around);
    must_not_wait("a publisher", &disk, &log, |log| {
        append(log, "t", event(1, Some("k"), "y")).unwrap();
    });
    disk.open_gate();
    checkpoint.join().unwrap().unwrap();
}

#[test]
fn a_stuck_sync_bounds_what_publishers_can_queue() {
    const QUEUE: usize = 16 * 1024;
    const PUBLISHERS: u64 = 4;
    const EVENTS: u64 = 200;
    let sizes = LogOptions { threads: true, queue_bytes: QUEUE, ..small() };
    let roomy = LogOptions { tail_bytes: 1 << 20, checkpoint_bytes: 1 << 20, ..sizes };
    let (disk, log) = open(LogOptions { journal_file_bytes: 1 << 20, ..roomy }, "journal");
    append(&log, "t", event(9999, None, "first")).unwrap();
    disk.close();
    let payload = "x".repeat(1000);
    let accepted = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for publisher in 0..PUBLISHERS {
            let (log, accepted, done, payload) = (&log, &accepted, &done, payload.as_str());
            scope.spawn(move || {
                let topic = log.topic(&name("t")).unwrap();
                for n in 0..EVENTS {
                    let mut batch = LogBatch::new();
                    let new = event(publisher * EVENTS + n, None, payload);
                    let new = NewEvent { id: NewId::Minted(id(publisher * EVENTS + n)), ..new };
                    batch.push(&topic, new).unwrap();
                    let done = Arc::clone(done);
                    let count = Box::new(move |result: Result<_, _>| {
                        drop(result.unwrap());
                        done.fetch_add(1, Ordering::SeqCst);
                    });
                    log.submit(&batch, Durability::Fsync, count).unwrap();
                    accepted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        disk.wait_until_stuck();
        // One group is stuck and one is open; each ends with the batch that exceeds the bound.
        let most = 2 * (QUEUE as u64 / 1000 + 1) + PUBLISHERS;
        while accepted.load(Ordering::SeqCst) < QUEUE as u64 / 1100 {
            std::thread::yield_now();
        }
        for _ in 0..10_000 {
            std::thread::yield_now();
            let taken = accepted.load(Ordering::SeqCst);
            assert!(taken <= most, "{taken} batches were taken, at most {most} fit");
        }
        assert_eq!(done.load(Ordering::SeqCst), 0, "none is acknowledged");
        assert!(log.health().tail_bytes <= most * 1100);
        disk.open_gate();
    });
    log.close().unwrap();
    assert_eq!(done.load(Ordering::SeqCst), PUBLISHERS * EVENTS);
}

/// Takes many checkpoints while a read of a segment is stuck.
fn checkpoints_go_on_beside(work: fn(&Log), prepare: fn(&World)) {
    let world = World::with(LogOptions { threads: true, ..small() });
    let (disk, log) = open_gated(&world, |disk| GateDisk::of_reads(disk, ".seg"));
    for n in 0..100 {
        append(&log, "t", event(n, Some(&format!("k{}", n % 7)), "x")).unwrap();
    }
    log.checkpoint().unwrap();
    prepare(&world);
    disk.close();
    let reader = {
        let log = log.clone();
        std::thread::spawn(move || work(&log))
    };
    disk.wait_until_stuck();
    must_not_wait("a publisher", &disk, &log, |log| {
        let topic = log.topic(&name("t")).unwrap();
        for n in 100..600 {
            let mut batch = LogBatch::new();
            let new = NewEvent { id: NewId::Minted(id(n)), ..event(n, None, "xxxxxxxxxxxxxxxxxxxxxxxxx") };
            batch.push(&topic, new).unwrap();
            log.append(batch, Durability::Fsync).unwrap();
            if n % 100 == 0 {
                log.checkpoint().unwrap();
            }
        }
    });
    disk.open_gate();
    reader.join().unwrap();
    assert!(log.verify(&mut |_, _| {}).is_clean());
    let topic = log.topic(&name("t")).unwrap();
    for n in 0..600 {
        assert_eq!(log.find_id(&topic, id(n)).unwrap().map(|record| record.view().offset), Some(n));
    }
    assert_eq!(log.key_history(&topic, b"k3", 0..1000, 1000).unwrap().len(), 14);
    log.close().unwrap();
    drop(log);
    let log = world.open();
    let topic = log.topic(&name("t")).unwrap();
    assert!((0..600).all(|n| log.find_id(&topic, id(n)).unwrap().is_some()));
    assert!(log.verify(&mut |_, _| {}).is_clean());
}

#[test]
fn checkpoints_go_on_while_everything_is_verified() {
    checkpoints_go_on_beside(|log| assert!(log.verify(&mut |_, _| {}).is_clean()), |_| {});
}

#[test]
fn checkpoints_go_on_while_the_index_is_rebuilt() {
    let look = |log: &Log| {
        let topic = log.topic(&name("t")).unwrap();
        assert!(log.find_id(&topic, id(3)).unwrap().is_some());
    };
    checkpoints_go_on_beside(look, |world| {
        for run in world.disk.files().into_iter().filter(|file| file.ends_with(".run")) {
            world.disk.flip_bit(&run, 5, 1).unwrap();
        }
    });
}

/// A checkpoint names a journal file as the journal's start. Before the checkpoint is done, that file may be
/// full and all its frames below the checkpoint.
#[test]
fn the_journal_file_that_a_checkpoint_names_is_not_used_again_before_the_next() {
    (0..10).for_each(|_| fill_the_named_file());
}

fn fill_the_named_file() {
    let options = LogOptions { threads: true, checkpoint_bytes: 1 << 20, tail_bytes: 1 << 20, ..small() };
    let mut world = World::with(options);
    let (disk, log) = open_gated(&world, |disk| GateDisk::new(disk, "manifest"));
    for n in 0..10 {
        append(&log, "t", event(n, None, "x")).unwrap();
    }
    // The writer has written its durable mark, so no frame comes between the next checkpoint and the large
    // event.
    log.checkpoint().unwrap();
    disk.close();
    let checkpoint = {
        let log = log.clone();
        std::thread::spawn(move || log.checkpoint())
    };
    disk.wait_until_stuck();
    let large = "x".repeat(7200);
    append(&log, "t", event(10, None, &large)).unwrap();
    disk.open_gate();
    checkpoint.join().unwrap().unwrap();
    for n in 11..18 {
        append(&log, "t", event(n, None, &large)).unwrap();
    }
    drop(log);
    world.disk = world.disk.kill();
    assert_eq!(payloads(&world.open(), "t", 0).len(), 18);
}
