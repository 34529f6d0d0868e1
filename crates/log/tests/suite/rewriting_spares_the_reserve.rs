//! Index merges and compaction rewrite files that can stay as they are: they keep out of the disk's reserve, and space that
//! they lack refuses no publisher. Row 9 of the fault model.

use promethean_log::{Log, LogNeed, LogNotice, LogOptions, MaintenanceError, TopicPolicy};
use promethean_testkit::{DiskFailure, Matcher, OpKind};

use super::world::*;

const RESERVE: u64 = 64 * 1024;
const EVENTS: u64 = 400;

fn world() -> World {
    World::with(LogOptions {
        checkpoint_bytes: 1 << 20,
        index_bytes: 1 << 20,
        reserve_bytes: RESERVE,
        ..small()
    })
}

/// Appends events whose index runs should be merged and whose topic should be compacted.
fn fill(log: &Log) {
    let topic = log.create_topic(&name("t")).unwrap();
    log.set_policy(&topic, compacted());
    for n in 0..EVENTS {
        append(log, "t", event(n, Some(&format!("k{}", n % 9)), "some text, so that there are segments"))
            .unwrap();
        if n % 100 == 99 {
            log.checkpoint().unwrap();
        }
    }
}

fn compacted() -> TopicPolicy {
    TopicPolicy { compacted: true, ..TopicPolicy::default() }
}

fn records(log: &Log) -> u64 {
    log.topic(&name("t")).unwrap().info().records
}

fn used(world: &World) -> u64 {
    world.disk.files().iter().map(|file| world.disk.len(file).unwrap_or(0)).sum()
}

#[test]
fn row_9_merges_and_compaction_wait_for_space_beside_the_reserve() {
    let world = world();
    let (log, notices) = open_heard(&world);
    fill(&log);
    assert_eq!((log.health().merges, records(&log)), (0, EVENTS));
    world.disk.set_capacity(Some(used(&world) + RESERVE + 1024));
    for _ in 0..3 {
        log.maintain().unwrap();
    }
    assert_eq!((log.health().merges, records(&log)), (0, EVENTS), "neither was done");
    assert!(!log.health().full);
    append(&log, "t", event(EVENTS, Some("k0"), "x")).unwrap();
    let both = [LogNeed::MergeSpace, LogNeed::CompactionSpace];
    assert_eq!(notices.take(), both.map(LogNotice::ShortOf), "told once");
    world.disk.set_capacity(None);
    log.maintain().unwrap();
    assert!(log.health().merges > 0 && records(&log) < EVENTS / 2, "{} records", records(&log));
    assert_eq!(notices.take(), both.map(LogNotice::EnoughOf));
}

#[test]
fn row_9_a_rewrite_that_finds_no_space_refuses_no_publisher() {
    // The next tick of upkeep, which ends a shortage, is an hour away.
    let patient = LogOptions { threads: true, maintenance_interval_ms: 3_600_000, ..world().options };
    for (op, path, need) in [
        (OpKind::Create, "index", LogNeed::MergeSpace),
        (OpKind::Write, "index", LogNeed::MergeSpace),
        (OpKind::Create, "-1.", LogNeed::CompactionSpace),
        (OpKind::Write, "-1.", LogNeed::CompactionSpace),
    ] {
        for failure in [DiskFailure::ENOSPC, DiskFailure::EDQUOT] {
            let mut world = world();
            let log = world.open();
            fill(&log);
            drop(log);
            world.options = patient.clone();
            let (log, notices) = open_heard(&world);
            log.set_policy(&log.topic(&name("t")).unwrap(), compacted());
            let before = world.disk.files();
            world.disk.fail_next(Matcher::op(op).path(path), failure);
            let failed = log.maintain();
            assert!(matches!(failed, Err(MaintenanceError::NoSpace { .. })), "{op:?} {path}: {failed:?}");
            assert!(!log.health().full, "{op:?} {path}");
            append(&log, "t", event(EVENTS, Some("k0"), "x")).unwrap();
            assert_eq!(notices.take(), [LogNotice::ShortOf(need)], "{op:?} {path}");
            if need == LogNeed::MergeSpace {
                assert_eq!(world.disk.files(), before, "{op:?} {path}: what was written is removed");
            }
            log.maintain().unwrap();
            assert_eq!(notices.take(), [LogNotice::EnoughOf(need)], "{op:?} {path}");
            assert!(log.health().merges > 0 && records(&log) < EVENTS / 2, "{op:?} {path}");
        }
    }
}
