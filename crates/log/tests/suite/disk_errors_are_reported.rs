//! Errors of the disk and of the state engine, as a user of the log sees them.

use promethean_log::{AppendError, LogBatch, LogOpenError, LogOptions};
use promethean_model::Durability;
use promethean_testkit::fault_state::encode_puts;
use promethean_testkit::{DiskFailure, Matcher, OpKind};

use super::world::*;

#[test]
fn a_failed_sync_stops_the_writer_and_says_that_the_outcome_is_unknown() {
    let mut world = World::new();
    let log = world.open();
    append(&log, "t", event(1, None, "1")).unwrap();
    world.disk.fail_next(Matcher::op(OpKind::Sync).path("journal"), DiskFailure::EIO);
    let unknown = append(&log, "t", event(2, None, "2"));
    assert!(matches!(unknown, Err(AppendError::UnknownOutcome { .. })), "{unknown:?}");
    let after = append(&log, "t", event(3, None, "3"));
    assert!(matches!(after, Err(AppendError::Poisoned { .. })), "{after:?}");
    assert!(log.health().poisoned.unwrap().contains("syncing the journal"));
    assert_eq!(payloads(&log, "t", 0).len(), 1, "reads go on, up to what is durable");
    assert!(log.close().is_err());
    drop(log);
    world.disk = world.disk.crash(1);
    world.state = std::sync::Arc::new(world.state.crash(1));
    let log = world.open();
    assert_eq!(payloads(&log, "t", 0)[0].1, "1");
    assert!(payloads(&log, "t", 0).iter().all(|(_, payload)| payload != "3"));
}

#[test]
fn a_sync_is_never_tried_again() {
    let world = World::new();
    let log = world.open();
    append(&log, "t", event(1, None, "1")).unwrap();
    world.disk.fail_next(Matcher::op(OpKind::Sync).path("journal"), DiskFailure::EIO);
    let _ = append(&log, "t", event(2, None, "2"));
    let before = world.disk.ops();
    let _ = append(&log, "t", event(3, None, "3"));
    let _ = log.sync();
    let _ = log.checkpoint();
    let _ = log.maintain();
    assert_eq!(world.disk.ops(), before, "{:?}", world.disk.trace());
}

#[test]
fn a_failed_write_of_the_journal_stops_the_writer() {
    let world = World::new();
    let log = world.open();
    world.disk.fail_next(Matcher::op(OpKind::Write).path("journal"), DiskFailure::EIO);
    assert!(matches!(append(&log, "t", event(1, None, "1")), Err(AppendError::UnknownOutcome { .. })));
    assert!(matches!(append(&log, "t", event(2, None, "2")), Err(AppendError::Poisoned { .. })));
    drop(log);
    world.disk.clear_faults();
    assert!(payloads(&world.open(), "t", 0).is_empty());
}

#[test]
fn short_writes_are_completed() {
    let world = World::new();
    world.disk.short_writes(7, 60);
    let log = world.open();
    for n in 0..200 {
        append(&log, "t", event(n, Some("k"), &format!("{n}"))).unwrap();
    }
    drop(log);
    let log = world.open();
    assert_eq!(payloads(&log, "t", 0).len(), 200);
    assert!(log.verify(&mut |_, _| {}).is_clean());
}

#[test]
fn a_failed_sync_of_the_checkpoint_keeps_the_journal() {
    for (op, path) in [
        (OpKind::Sync, "segments"),
        (OpKind::SyncDir, "segments"),
        (OpKind::Sync, "manifest"),
        (OpKind::Sync, "index"),
    ] {
        let mut world = World::new();
        let log = world.open();
        for n in 0..20 {
            append(&log, "t", event(n, Some("k"), "x")).unwrap();
        }
        world.disk.fail_next(Matcher::op(op).path(path), DiskFailure::EIO);
        assert!(log.checkpoint().is_err(), "{path}");
        assert!(matches!(append(&log, "t", event(99, None, "y")), Err(AppendError::Poisoned { .. })));
        drop(log);
        world.disk = world.disk.crash(3);
        world.state = std::sync::Arc::new(world.state.crash(3));
        let log = world.open();
        assert_eq!(payloads(&log, "t", 0).len(), 20, "{path}");
        assert!(log.verify(&mut |_, _| {}).is_clean(), "{path}");
    }
}

#[test]
fn a_full_disk_refuses_publishing_before_it_is_full_and_resumes_without_a_restart() {
    let options = LogOptions { reserve_bytes: 64 * 1024, ..small() };
    let world = World::with(options);
    world.disk.set_capacity(Some(256 * 1024));
    let log = world.open();
    let mut accepted = 0;
    let refused = loop {
        match append(&log, "t", event(accepted, Some("k"), &"x".repeat(500))) {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AppendError::StorageFull { .. }), "{refused}");
    assert!(refused.to_string().contains("65536 are kept in reserve"), "{refused}");
    assert!(accepted > 50);
    let topic = log.topic(&name("t")).unwrap();
    assert_eq!(payloads(&log, "t", 0).len() as u64, accepted, "reads go on");
    for n in 0..20u64 {
        let mut acks = LogBatch::new();
        acks.redo(&encode_puts(&[(b"cursor", &n.to_le_bytes())]));
        log.append(acks, Durability::Fsync).expect("acks go on");
    }
    assert!(log.health().full);
    assert!(log.health().poisoned.is_none());
    world.disk.set_capacity(Some(1024 * 1024));
    assert_eq!(append(&log, "t", event(10_000, None, "more")).unwrap(), topic.end() - 1);
    drop(log);
    let log = world.open();
    assert_eq!(payloads(&log, "t", 0).len() as u64, accepted + 1);
}

#[test]
fn a_checkpoint_without_space_is_finished_when_space_returns() {
    let world = World::new();
    let log = world.open();
    for n in 0..10 {
        append(&log, "t", event(n, Some("k"), "x")).unwrap();
    }
    world.disk.fail_next(Matcher::op(OpKind::Create).path("segments"), DiskFailure::ENOSPC);
    let error = log.checkpoint().unwrap_err();
    assert!(error.to_string().contains("no space"), "{error}");
    assert!(log.health().poisoned.is_none());
    append(&log, "t", event(100, Some("k"), "y")).unwrap();
    log.checkpoint().unwrap();
    drop(log);
    let log = world.open();
    assert_eq!(payloads(&log, "t", 0).len(), 11);
    assert!(log.verify(&mut |_, _| {}).is_clean());
}

#[test]
fn a_second_process_is_turned_away() {
    let world = World::new();
    let log = world.open();
    assert!(matches!(world.try_open(), Err(LogOpenError::Locked)));
    drop(log);
    assert!(world.try_open().is_ok());
}

#[test]
fn another_format_is_refused_and_left_alone() {
    let world = World::new();
    drop(world.open());
    world.disk.write_file("FORMAT", b"promethean-data 2\n").unwrap();
    let before = world.disk.files();
    let refused = world.try_open().unwrap_err();
    assert!(matches!(refused, LogOpenError::Format { .. }), "{refused}");
    assert!(refused.to_string().contains("promethean-data 2"));
    assert_eq!(world.disk.files(), before);
}

#[test]
fn a_state_from_another_time_is_refused() {
    let mut world = World::new();
    let log = world.open();
    for n in 0..5u64 {
        let mut batch = LogBatch::new();
        batch.redo(&encode_puts(&[(b"k", &n.to_le_bytes())]));
        log.append(batch, Durability::Fsync).unwrap();
    }
    log.checkpoint().unwrap();
    drop(log);
    let newer =
        std::mem::replace(&mut world.state, std::sync::Arc::new(promethean_testkit::FaultState::new()));
    assert!(matches!(world.try_open(), Err(LogOpenError::StateBehind { applied: 0, .. })));
    world.disk = promethean_testkit::FaultDisk::new();
    world.state = newer;
    assert!(matches!(world.try_open(), Err(LogOpenError::StateAhead { end: 0, .. })));
}

#[test]
fn redo_is_applied_once_more_after_the_state_lost_it() {
    let mut world = World::new();
    let log = world.open();
    for n in 0..30u64 {
        let mut batch = LogBatch::new();
        batch.redo(&encode_puts(&[(format!("k{n}").as_bytes(), &n.to_le_bytes())]));
        log.append(batch, Durability::Fsync).unwrap();
        if n == 10 {
            log.checkpoint().unwrap();
        }
    }
    drop(log);
    for seed in 0..20 {
        world.disk = world.disk.kill();
        world.state = std::sync::Arc::new(world.state.crash(seed));
        drop(world.open());
        for n in 0..30u64 {
            assert_eq!(world.state.get(format!("k{n}").as_bytes()), Some(n.to_le_bytes().to_vec()));
        }
    }
}
