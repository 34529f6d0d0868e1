//! Regressions: faults that coincided at a bad moment, one test each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use promethean_log::{
    Log, LogBatch, LogOptions, LogSubmission, NewEvent, NewId, ReadLimit, Topic, TopicPolicy,
};
use promethean_model::Durability;
use promethean_testkit::fault_state::encode_puts;
use promethean_testkit::{DiskFailure, Matcher, OpKind};

use super::world::*;

const LONG: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

/// A world whose log takes checkpoints only when a test asks for one.
fn patient() -> World {
    World::with(LogOptions { checkpoint_bytes: 1 << 20, index_bytes: 1 << 20, ..small() })
}

fn compacted(log: &Log) -> Topic {
    let topic = log.create_topic(&name("t")).unwrap();
    log.set_policy(&topic, TopicPolicy { compacted: true, ..TopicPolicy::default() });
    topic
}

/// Publishes events of which every second has a key of its own and survives compaction.
fn fill(log: &Log, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let key = if n % 2 == 0 { "hot".to_owned() } else { format!("u{n}") };
        append(log, "t", event(n, Some(&key), &format!("{n}"))).unwrap();
    }
}

fn fill_and_keep_one(log: &Log, count: u64) -> Topic {
    for n in 0..count {
        append(log, "t", event(n, None, LONG)).unwrap();
    }
    log.checkpoint().unwrap();
    let topic = log.topic(&name("t")).unwrap();
    log.set_policy(&topic, TopicPolicy { count: Some(1), ..TopicPolicy::default() });
    topic
}

#[test]
fn holes_of_a_compacted_topic_are_not_damage() {
    let world = World::new();
    let log = world.open();
    let topic = compacted(&log);
    fill(&log, 0..200);
    log.checkpoint().unwrap();
    log.maintain().unwrap();
    assert!(log.find_id(&topic, id(4)).unwrap().is_none());
    assert!(log.key_history(&topic, b"hot", 0..u64::MAX, 1000).unwrap().len() < 100);
    assert_eq!(append(&log, "t", event(4, Some("hot"), "4")).unwrap(), 4, "known by its ghost");
    assert!(log.health().damage.is_empty());
}

#[test]
fn a_failed_manifest_is_not_completed_by_a_merge_or_a_compaction() {
    for compact in [false, true] {
        let mut world = patient();
        let log = world.open();
        if compact {
            compacted(&log);
        }
        for round in 0..6 {
            fill(&log, round * 10..round * 10 + 10);
            if round < 5 {
                log.checkpoint().unwrap();
            }
        }
        world.disk.fail_next(Matcher::op(OpKind::Sync).path("manifest"), DiskFailure::EIO);
        assert!(log.checkpoint().is_err());
        let before = world.disk.ops();
        assert!(log.maintain().is_err());
        assert_eq!(world.disk.ops(), before, "nothing is written after a failed sync");
        drop(log);
        world.disk = world.disk.crash(1);
        let log = world.open();
        assert_eq!(log.topic(&name("t")).unwrap().end(), 60);
        assert_eq!(append(&log, "t", event(5000, Some("k"), "new")).unwrap(), 60);
    }
}

#[test]
fn compaction_leaves_an_unfinished_checkpoint_alone() {
    let world = patient();
    let log = world.open();
    compacted(&log);
    fill(&log, 0..200);
    world.disk.fail_next(Matcher::op(OpKind::Create).path("index"), DiskFailure::ENOSPC);
    assert!(log.checkpoint().is_err());
    log.maintain().unwrap();
    log.checkpoint().unwrap();
    let before = payloads(&log, "t", 0);
    drop(log);
    assert_eq!(payloads(&world.open(), "t", 0), before);
}

#[test]
fn expired_events_leave_the_disk_though_they_were_in_memory_when_they_expired() {
    let world = World::new();
    let log = world.open();
    append(&log, "t", event(1, None, "secret")).unwrap();
    let topic = log.topic(&name("t")).unwrap();
    log.set_policy(&topic, TopicPolicy { age_ms: Some(1000), dedupe_window_ms: 0, ..TopicPolicy::default() });
    for _ in 0..3 {
        world.clock.advance(100_000);
        log.maintain().unwrap();
    }
    assert!(world.disk.files().iter().all(|file| !file.ends_with(".seg")), "{:?}", world.disk.files());
}

#[test]
fn retention_without_space_is_tried_again_and_forgets_no_id_meanwhile() {
    let world = World::new();
    let log = world.open();
    fill_and_keep_one(&log, 60);
    world.disk.fail_next(Matcher::op(OpKind::Create).path("index"), DiskFailure::ENOSPC);
    assert!(log.maintain().is_err());
    assert_eq!(log.health().poisoned, None);
    assert_eq!(append(&log, "t", event(0, None, LONG)).unwrap(), 0, "a duplicate of a trimmed event");
    log.maintain().unwrap();
    log.checkpoint().unwrap();
    assert_eq!(append(&log, "t", event(0, None, LONG)).unwrap(), 0, "a duplicate of a removed event");
}

#[test]
fn events_after_repaired_damage_are_readable() {
    let mut world = World::new();
    let log = world.open();
    append(&log, "other", event(500, None, "x")).unwrap();
    for n in 0..10 {
        append(&log, "t", event(n, None, &format!("{n}"))).unwrap();
    }
    drop(log);
    world.disk = world.disk.kill();
    let file = world.disk.files().into_iter().find(|file| file.starts_with("journal/")).unwrap();
    let bytes = world.disk.read_file(&file).unwrap();
    let at = bytes.windows(16).position(|window| window == id(5).as_bytes()).unwrap();
    world.disk.flip_bit(&file, at as u64, 1).unwrap();
    assert!(!world.repair(false).is_clean());
    world.open().close().unwrap();
    let log = world.open();
    let at = append(&log, "other", event(600, None, "new")).unwrap();
    log.checkpoint().unwrap();
    let topic = log.topic(&name("other")).unwrap();
    let page = log.read(&topic, 1, ReadLimit { events: 10, bytes: 1000 }).unwrap();
    assert_eq!(page.iter().next().map(|view| view.offset), Some(at));
}

#[test]
fn damaged_ghosts_are_given_up_and_nothing_else() {
    let world = World::new();
    let log = world.open();
    fill_and_keep_one(&log, 200);
    let before = world.disk.files();
    append(&log, "t", NewEvent { id: NewId::Minted(id(1000)), ..event(1000, None, "y") }).unwrap();
    log.checkpoint().unwrap();
    for run in world.disk.files().into_iter().filter(|file| file.ends_with(".run") && !before.contains(file))
    {
        world.disk.flip_bit(&run, 5, 1).unwrap();
    }
    for n in 2000..2005 {
        append(&log, "t", event(n, None, "y")).unwrap();
    }
    log.maintain().unwrap();
    assert!(!log.health().damage.is_empty());
    drop(log);
    let log = world.open();
    append(&log, "t", event(3000, None, "y")).unwrap();
    let topic = log.topic(&name("t")).unwrap();
    assert_eq!(log.find_id(&topic, id(2004)).unwrap().unwrap().view().offset, 205);
}

#[test]
fn journal_files_of_another_size_are_not_reused() {
    for count in (0..900u64).step_by(45) {
        let mut world = World::with(LogOptions { checkpoint_bytes: 64 * 1024, ..small() });
        let log = world.open();
        for n in 0..5 {
            append(&log, "t", event(n, None, "x")).unwrap();
        }
        log.close().unwrap();
        drop(log);
        world.options.journal_file_bytes = 16 * 1024;
        let log = world.open();
        for n in 0..count {
            append(&log, "t", event(1000 + n, None, LONG)).unwrap();
        }
        log.close().unwrap();
        drop(log);
        assert_eq!(payloads(&world.open(), "t", 0).len() as u64, count + 5);
    }
}

#[test]
fn recovery_applies_nothing_that_is_not_durable() {
    let mut world = World::new();
    let log = world.open();
    append(&log, "t", event(1, None, "1")).unwrap();
    world.disk.fail_next(Matcher::op(OpKind::Sync).path("journal"), DiskFailure::EIO);
    let mut batch = LogBatch::new();
    batch.redo(&encode_puts(&[(b"k", b"v")]));
    assert!(log.append(batch, Durability::Fsync).is_err());
    drop(log);
    world.disk = world.disk.kill();
    world.state = Arc::new(world.state.kill());
    world.disk.fail_next(Matcher::op(OpKind::Sync).path("journal"), DiskFailure::EIO);
    assert!(world.try_open().is_err());
    assert_eq!(world.state.get(b"k"), None);
    for seed in 0..6 {
        world.disk = world.disk.crash(seed);
        assert_eq!(payloads(&world.open(), "t", 0).len(), 1);
    }
}

#[test]
fn a_batch_that_is_there_already_meets_its_expectations_again() {
    let world = World::new();
    let log = world.open();
    let topic = log.topic_or_create(&name("t")).unwrap();
    for _ in 0..2 {
        let mut batch = LogBatch::new();
        batch.push(&topic, event(1, Some("k"), "1")).unwrap();
        batch.expect_end(&topic, 0);
        batch.expect_key(&topic, b"k", None);
        assert_eq!(log.append(batch, Durability::Fsync).unwrap().events[0].offset, 0);
    }
}

/// After a failed sync the page cache shows bytes that no later sync writes. The next process must not rely on
/// them.
#[test]
fn what_a_failed_sync_left_in_the_page_cache_is_written_again() {
    for (path, seed) in ["journal", "manifest"].into_iter().flat_map(|path| (0..8).map(move |s| (path, s))) {
        let mut world = patient();
        let log = world.open();
        append(&log, "t", event(1, None, "1")).unwrap();
        world.disk.fail_next(Matcher::op(OpKind::Sync).path(path), DiskFailure::EIO);
        let unknown = append(&log, "t", event(2, None, "2"));
        assert_eq!(unknown.is_err(), path == "journal");
        assert!(log.checkpoint().is_err());
        drop(log);
        world.disk = world.disk.kill();
        world.state = Arc::new(world.state.kill());
        let log = world.open();
        let shown = payloads(&log, "t", 0);
        append(&log, "u", event(3, None, "3")).unwrap();
        if path == "manifest" {
            log.checkpoint().unwrap();
        }
        drop(log);
        world.disk = world.disk.crash(seed);
        world.state = Arc::new(world.state.crash(seed));
        let log = world.try_open().unwrap_or_else(|error| panic!("{path} {seed}: {error}")).0;
        assert_eq!(payloads(&log, "t", 0), shown, "{path} {seed}");
        assert_eq!(payloads(&log, "u", 0).len(), 1, "{path} {seed}");
    }
}

#[test]
fn given_ids_are_found_in_a_large_group_without_a_scan() {
    const COUNT: u64 = 15_000;
    let world = World::with(LogOptions { threads: false, ..LogOptions::default() });
    let log = world.open();
    let topic = log.create_topic(&name("t")).unwrap();
    let duplicates = Arc::new(AtomicU64::new(0));
    let submission = |number: u64| {
        let mut batch = LogBatch::new();
        batch.push(&topic, event(number, Some(&format!("k{}", number % 100)), "x")).unwrap();
        let duplicates = Arc::clone(&duplicates);
        let done = Box::new(move |result: Result<promethean_log::LogReceipt, _>| {
            let placed = result.unwrap().events[0];
            assert_eq!(placed.offset, number);
            duplicates.fetch_add(u64::from(placed.duplicate), Ordering::Relaxed);
        });
        LogSubmission { batch, durability: Durability::Fsync, done }
    };
    log.submit_all((0..COUNT).chain(0..COUNT).map(submission).collect());
    assert_eq!(duplicates.load(Ordering::Relaxed), COUNT);
    assert_eq!(topic.end(), COUNT);
}
