//! The operator hears of each kind of shortage once, and once when it is over, however many publishers meet it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use promethean_log::{Log, LogNeed, LogNotice, LogOptions, OpenArgs};
use promethean_testkit::{DiskFailure, GateDisk, Matcher, OpKind};

use super::world::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// Publishes under a shortage. The outcome does not matter here.
fn publish(log: &Log, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let _ = append(log, &format!("t{}", n % 12), event(n, None, &format!("{n:0>200}")));
    }
}

fn told_of(need: LogNeed, begin: impl Fn(&World), end: impl Fn(&World)) {
    let world = World::new();
    let (log, notices) = open_heard(&world);
    publish(&log, 0..100);
    log.maintain().unwrap();
    assert_eq!(notices.take(), [], "{need:?}");
    begin(&world);
    publish(&log, 100..300);
    assert_eq!(notices.take(), [LogNotice::ShortOf(need)], "{need:?}");
    end(&world);
    log.maintain().unwrap();
    publish(&log, 300..400);
    log.maintain().unwrap();
    assert_eq!(notices.take(), [LogNotice::EnoughOf(need)], "{need:?}");
}

#[test]
fn row_9_a_full_disk_is_told_once() {
    told_of(
        LogNeed::Space,
        |world| world.disk.fail_from(Matcher::op(OpKind::Create), DiskFailure::ENOSPC),
        |world| world.disk.clear_faults(),
    );
}

#[test]
fn row_9_a_disk_below_its_reserve_is_told_once() {
    let world = World::with(LogOptions { reserve_bytes: 1 << 20, ..small() });
    let (log, notices) = open_heard(&world);
    world.disk.set_capacity(Some(1 << 20));
    for n in 0..3 {
        log.maintain().unwrap();
        append(&log, "t", event(n, None, "x")).unwrap_err();
    }
    assert_eq!(notices.take(), [LogNotice::ShortOf(LogNeed::Space)]);
    world.disk.set_capacity(None);
    log.maintain().unwrap();
    assert_eq!(notices.take(), [LogNotice::EnoughOf(LogNeed::Space)]);
}

#[test]
fn row_9_a_start_below_the_reserve_is_told_once() {
    let world = World::with(LogOptions { reserve_bytes: 1 << 20, ..small() });
    open_heard(&world).0.close().unwrap();
    world.disk.set_capacity(Some(1 << 20));
    let (log, notices) = open_heard(&world);
    assert_eq!(notices.take(), [LogNotice::ShortOf(LogNeed::Space)], "at the open");
    log.maintain().unwrap();
    append(&log, "t", event(0, None, "x")).unwrap_err();
    assert_eq!(notices.take(), []);
    world.disk.set_capacity(None);
    log.maintain().unwrap();
    assert_eq!(notices.take(), [LogNotice::EnoughOf(LogNeed::Space)]);
}

#[test]
fn row_11_missing_descriptors_are_told_once() {
    told_of(
        LogNeed::Descriptors,
        |world| world.disk.fail_from(Matcher::op(OpKind::Create), DiskFailure::EMFILE),
        |world| world.disk.clear_faults(),
    );
}

/// The thread that writes hangs, so another one tells.
#[test]
#[expect(clippy::disallowed_methods, reason = "bounds a wait for another thread")]
fn row_12_a_slow_disk_is_told_once() {
    let world = World::with(LogOptions { threads: true, maintenance_interval_ms: 5, ..small() });
    let disk = GateDisk::new(Arc::new(world.disk.clone()), "journal");
    let notices = Arc::new(Notices::default());
    let args = OpenArgs { disk: Arc::new(disk.clone()), observer: Arc::clone(&notices) as _, ..world.args() };
    let log = Log::open(args).unwrap().0;
    append(&log, "t", event(0, None, "x")).unwrap();
    let wait_until = |what: &str, holds: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !holds() {
            if began.elapsed() > PATIENCE {
                // The writer must go on, or the test would wait for it.
                disk.open_gate();
                panic!("stalled: {what}");
            }
            std::thread::yield_now();
        }
    };
    // Upkeep makes a spare file; after that only the writer syncs files of the journal.
    let is_journal = |file: &String| file.starts_with("journal/") && file.ends_with(".jrn");
    wait_until("a spare is made", &|| world.disk.files().iter().filter(|file| is_journal(file)).count() > 1);
    disk.close();
    let hears = |notice| {
        wait_until("a notice is told", &|| !notices.peek().is_empty());
        assert_eq!(notices.take(), [notice]);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| append(&log, "t", event(1, None, "x")).unwrap());
        disk.wait_until_stuck();
        world.clock.advance(6_000);
        hears(LogNotice::ShortOf(LogNeed::Speed));
        disk.open_gate();
        hears(LogNotice::EnoughOf(LogNeed::Speed));
    });
    log.close().unwrap();
    assert_eq!(notices.take(), []);
}
