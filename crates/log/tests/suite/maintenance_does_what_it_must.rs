//! Maintenance does as much as it must and no more.

use std::sync::atomic::{AtomicBool, Ordering};

use promethean_log::{Log, LogBatch, LogOptions, MaintenanceError, Topic, TopicPolicy};
use promethean_model::Durability;
use promethean_testkit::{DiskFailure, Matcher, OpKind};

use super::world::*;

const LONG: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

fn patient() -> World {
    World::with(LogOptions { checkpoint_bytes: 1 << 20, index_bytes: 1 << 20, ..small() })
}

fn topic_with(log: &Log, policy: TopicPolicy) -> Topic {
    let topic = log.create_topic(&name("t")).unwrap();
    log.set_policy(&topic, policy);
    topic
}

fn runs(world: &World) -> Vec<String> {
    world.disk.files().into_iter().filter(|file| file.ends_with(".run")).collect()
}

#[test]
fn a_topic_that_keeps_a_number_of_events_takes_no_checkpoint_for_each_of_them() {
    let world = patient();
    let log = world.open();
    let topic = topic_with(&log, TopicPolicy { count: Some(10), ..TopicPolicy::default() });
    for n in 0..200 {
        append(&log, "t", event(n, None, LONG)).unwrap();
        log.maintain().unwrap();
        assert_eq!(topic.info().earliest, (n + 1).saturating_sub(10), "exact for readers all the same");
    }
    let segments = 200 * 91 / small().segment_bytes;
    let taken = log.health().checkpoints;
    assert!(taken > 0 && taken <= 3 * (segments + 1), "{taken} checkpoints for {segments} segments");
    assert!(topic.info().segments <= 2);
    log.close().unwrap();
    drop(log);
    assert_eq!(world.open().topic(&name("t")).unwrap().info().earliest, 190, "and it lasts");
}

#[test]
fn what_is_held_stays_until_the_reserve_is_reached() {
    let world = World::with(LogOptions { reserve_bytes: 64 * 1024, ..small() });
    let log = world.open();
    let topic = topic_with(&log, TopicPolicy { count: Some(10), ..TopicPolicy::default() });
    log.holds().set(&name("t"), "reader", Some(30));
    for n in 0..100 {
        append(&log, "t", event(n, None, LONG)).unwrap();
    }
    log.maintain().unwrap();
    assert_eq!((topic.info().earliest, topic.info().held), (30, 60));
    log.checkpoint().unwrap();
    assert_eq!(topic.info().earliest, 30, "nor does a checkpoint take it");
    let used: u64 = world.disk.files().iter().map(|file| world.disk.len(file).unwrap_or(0)).sum();
    world.disk.set_capacity(Some(used + 32 * 1024));
    log.maintain().unwrap();
    assert_eq!((topic.info().earliest, topic.info().held), (90, 0));
}

#[test]
fn refused_batches_leave_no_topics_behind() {
    let world = World::with(LogOptions { topics: 10, ..small() });
    let log = world.open();
    let held = log.topic_or_create(&name("held")).unwrap();
    append(&log, "real", event(0, None, "x")).unwrap();
    for n in 0..100 {
        let topic = log.topic_or_create(&name(&format!("refused-{n}"))).unwrap();
        let mut batch = LogBatch::new();
        batch.push(&topic, event(n, None, "x")).unwrap();
        batch.expect_end(&topic, 7);
        assert!(log.append(batch, Durability::Fsync).is_err());
    }
    for n in 0..8 {
        append(&log, &format!("more-{n}"), event(n, None, "x")).unwrap();
    }
    assert!(log.topic_or_create(&name("one.too.many")).is_err());
    let mut batch = LogBatch::new();
    batch.push(&held, event(500, None, "late")).unwrap();
    log.append(batch, Durability::Fsync).unwrap();
    drop(log);
    let log = world.open();
    assert_eq!(log.topics().len(), 10);
    assert_eq!(payloads(&log, "held", 0), [(0, "late".to_owned())]);
    for n in 0..8 {
        assert_eq!(payloads(&log, &format!("more-{n}"), 0).len(), 1);
    }
}

#[test]
fn processes_that_die_young_do_not_make_the_journal_grow_for_ever() {
    let mut world = World::new();
    for life in 0..10 {
        let log = world.open();
        for n in 0..40 {
            append(&log, "t", event(life * 100 + n, None, LONG)).unwrap();
        }
        assert!(log.health().journal_bytes < 3 * small().checkpoint_bytes, "life {life}: {:?}", log.health());
        drop(log);
        world.disk = world.disk.kill();
    }
}

#[test]
fn runs_of_failed_maintenance_are_removed() {
    // A checkpoint fails: the first run is written, the second is not.
    for nth in 1..3 {
        let world = patient();
        let log = world.open();
        for n in 0..20 {
            append(&log, "t", event(n, Some("k"), LONG)).unwrap();
        }
        world.disk.fail_next(Matcher::op(OpKind::Create).path("index").nth(nth), DiskFailure::ENOSPC);
        assert!(matches!(log.checkpoint(), Err(MaintenanceError::NoSpace { .. })));
        assert_eq!(runs(&world), Vec::<String>::new());
        log.checkpoint().unwrap();
        assert_eq!(runs(&world).len(), 2);
    }
    // Retention fails: the ghosts of one segment are written, those of the next are not.
    let world = patient();
    let log = world.open();
    let topic = topic_with(&log, TopicPolicy::default());
    for n in 0..120 {
        append(&log, "t", event(n, None, LONG)).unwrap();
    }
    log.checkpoint().unwrap();
    let before = runs(&world);
    log.set_policy(&topic, TopicPolicy { count: Some(1), ..TopicPolicy::default() });
    world.disk.fail_next(Matcher::op(OpKind::Create).path("index").nth(2), DiskFailure::ENOSPC);
    assert!(log.maintain().is_err());
    assert_eq!(runs(&world), before);
}

#[test]
fn files_of_a_failed_compaction_are_removed() {
    for (kind, path) in [(OpKind::Create, "index"), (OpKind::Write, "index"), (OpKind::Write, "-1.")] {
        let world = patient();
        let log = world.open();
        let topic = topic_with(&log, TopicPolicy { compacted: true, ..TopicPolicy::default() });
        for n in 0..200 {
            append(&log, "t", event(n, Some(&format!("k{}", n % 9)), LONG)).unwrap();
        }
        log.checkpoint().unwrap();
        let before = world.disk.files();
        world.disk.fail_next(Matcher::op(kind).path(path), DiskFailure::ENOSPC);
        assert!(matches!(log.maintain(), Err(MaintenanceError::NoSpace { .. })), "{path}");
        assert_eq!(world.disk.files(), before, "{kind:?} {path}");
        log.maintain().unwrap();
        assert!(topic.info().records < 100);
    }
}

#[test]
fn ids_of_removed_events_survive_an_open_whose_owner_has_not_told_the_policies_yet() {
    const WEEK_MS: u64 = 7 * 24 * 60 * 60 * 1000;
    let world = patient();
    let log = world.open();
    let policy = TopicPolicy { count: Some(1), dedupe_window_ms: WEEK_MS, ..TopicPolicy::default() };
    topic_with(&log, policy.clone());
    for n in 0..120 {
        append(&log, "t", event(n, None, LONG)).unwrap();
    }
    log.checkpoint().unwrap();
    log.maintain().unwrap();
    log.close().unwrap();
    drop(log);
    world.clock.advance(WEEK_MS / 2);
    let log = world.open();
    log.checkpoint().unwrap();
    log.set_policy(&log.topic(&name("t")).unwrap(), policy.clone());
    assert_eq!(append(&log, "t", event(0, None, LONG)).unwrap(), 0, "a duplicate within its window");
    world.clock.advance(WEEK_MS);
    log.checkpoint().unwrap();
    assert_eq!(append(&log, "t", event(0, None, LONG)).unwrap(), 120, "and a new event after it");
}

#[test]
fn two_who_compact_at_once_do_not_remove_each_others_segments() {
    const KEYS: u64 = 9;
    let world = World::with(LogOptions { threads: true, maintenance_interval_ms: 1, ..small() });
    let log = world.open();
    topic_with(&log, TopicPolicy { compacted: true, ..TopicPolicy::default() });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    log.maintain().unwrap();
                }
            });
        }
        for n in 0..3000 {
            append(&log, "t", event(n, Some(&format!("k{}", n % KEYS)), LONG)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    let found = payloads(&log, "t", 0);
    assert!(found.len() < 1000, "{} are kept", found.len());
    assert!((3000 - KEYS..3000).all(|offset| found.iter().any(|(at, _)| *at == offset)));
    let report = log.verify(&mut |_, _| {});
    assert!(report.is_clean(), "{report:?}");
}
