//! Compacted topics are compacted below the size of a segment: by the share of new bytes, and by age.

use promethean_log::{Log, LogOptions, Topic, TopicPolicy};
use promethean_model::{Clock, SystemClock, TopicName};

use super::world::*;

/// How long the threads may take; only a stalled one takes longer.
const PATIENCE_MS: u64 = 120_000;
const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// The sizes and times of a server.
fn server() -> LogOptions {
    LogOptions { threads: false, reserve_bytes: 0, reserve_files: 0, ..LogOptions::default() }
}

fn compacted(log: &Log, text: &str) -> Topic {
    let topic = log.create_topic(&name(text)).unwrap();
    log.set_policy(&topic, TopicPolicy { compacted: true, ..TopicPolicy::default() });
    topic
}

fn offsets(log: &Log, topic: &str) -> Vec<u64> {
    payloads(log, topic, 0).iter().map(|(offset, _)| *offset).collect()
}

#[test]
fn seven_events_over_two_keys_become_two() {
    let world = World::with(server());
    let log = world.open();
    let topic = compacted(&log, "t");
    for n in 0..7 {
        append(&log, "t", event(n, Some(&format!("k{}", n % 2)), "x")).unwrap();
    }
    log.maintain().unwrap();
    assert_eq!(offsets(&log, "t").len(), 7, "not at once");
    world.clock.advance(MINUTE_MS);
    log.maintain().unwrap();
    assert_eq!(offsets(&log, "t"), [5, 6]);
    assert_eq!(append(&log, "t", event(0, Some("k0"), "x")).unwrap(), 0, "its id is remembered");
    let key = log.latest_by_key(&topic, b"k0").unwrap().unwrap();
    assert_eq!(key.view().offset, 6);
    // Later events go to another segment, also after a restart.
    assert_eq!(append(&log, "t", event(7, Some("k1"), "y")).unwrap(), 7);
    log.close().unwrap();
    drop(log);
    let log = world.open();
    let topic = log.topic(&name("t")).unwrap();
    log.set_policy(&topic, TopicPolicy { compacted: true, ..TopicPolicy::default() });
    assert_eq!(append(&log, "t", event(8, Some("k1"), "z")).unwrap(), 8);
    assert_eq!(offsets(&log, "t"), [5, 6, 7, 8]);
    world.clock.advance(MINUTE_MS);
    log.maintain().unwrap();
    assert_eq!(offsets(&log, "t"), [6, 8]);
    assert_eq!(append(&log, "t", event(7, Some("k1"), "y")).unwrap(), 7, "its id is remembered");
    let report = log.verify(&mut |_, _| {});
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn a_log_with_threads_compacts_a_small_topic_by_itself() {
    let world = World::with(LogOptions {
        threads: true,
        maintenance_interval_ms: 1,
        compaction_age_ms: 1,
        ..server()
    });
    let log = world.open();
    compacted(&log, "t");
    for n in 0..7 {
        append(&log, "t", event(n, Some(&format!("k{}", n % 2)), "x")).unwrap();
    }
    world.clock.advance(10);
    let real = SystemClock::new();
    let began = real.monotonic_ms();
    while offsets(&log, "t") != [5, 6] {
        assert!(real.monotonic_ms() - began < PATIENCE_MS, "{:?}", offsets(&log, "t"));
        std::thread::yield_now();
    }
}

#[test]
fn a_quiet_topic_is_compacted_once() {
    let world = World::with(server());
    let log = world.open();
    let topic = compacted(&log, "t");
    for n in 0..7 {
        append(&log, "t", event(n, Some("k"), "x")).unwrap();
    }
    world.clock.advance(MINUTE_MS);
    log.maintain().unwrap();
    let (before, checkpoints) = (world.disk.ops(), log.health().checkpoints);
    for _ in 0..10 {
        world.clock.advance(MINUTE_MS);
        log.maintain().unwrap();
    }
    assert_eq!((topic.info().records, log.health().checkpoints), (1, checkpoints));
    assert_eq!(world.disk.ops(), before, "nothing is written for nothing");
}

#[test]
fn a_busy_topic_stays_near_its_live_size() {
    // 40 MB over 10 keys of 200 kB: live are 2 MB.
    let options = LogOptions { checkpoint_bytes: 1 << 20, tail_bytes: 1 << 18, ..server() };
    let world = World::with(options);
    let log = world.open();
    let topic = compacted(&log, "t");
    let payload = format!("\"{}\"", "x".repeat(200_000));
    let live = 10 * payload.len() as u64;
    let mut most = 0;
    for n in 0..200 {
        append(&log, "t", event(n, Some(&format!("k{}", n % 10)), &payload)).unwrap();
        world.clock.advance(100);
        log.maintain().unwrap();
        most = most.max(topic.info().bytes);
    }
    assert!(most < 2 * live + 2 * (1 << 20) + (1 << 18), "{most} bytes, {live} of them live");
    world.clock.advance(MINUTE_MS);
    log.maintain().unwrap();
    let bytes = topic.info().bytes;
    assert!(bytes < live + live / 10, "{bytes} bytes, {live} of them live");
}

#[test]
fn few_new_events_do_not_rewrite_a_large_table() {
    let world = World::with(LogOptions { compaction_bytes_min: 4096, ..server() });
    let log = world.open();
    let topic = compacted(&log, "t");
    for n in 0..200 {
        append(&log, "t", event(n, Some(&format!("k{n}")), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"))
            .unwrap();
    }
    world.clock.advance(MINUTE_MS);
    log.maintain().unwrap();
    for n in 200..210 {
        append(&log, "t", event(n, Some("k0"), "x")).unwrap();
        world.clock.advance(MINUTE_MS);
        log.maintain().unwrap();
    }
    assert_eq!(topic.info().records, 210);
    for n in 210..510 {
        append(&log, "t", event(n, Some("k0"), "x")).unwrap();
    }
    world.clock.advance(MINUTE_MS);
    log.maintain().unwrap();
    assert_eq!(topic.info().records, 200);
}

#[test]
fn tombstones_end_although_the_topic_is_compacted_all_the_time() {
    let world = World::with(server());
    let log = world.open();
    let topic = compacted(&log, "t");
    append(&log, "t", event(0, Some("gone"), "x")).unwrap();
    append(&log, "t", event(1, Some("gone"), "null")).unwrap();
    for n in 2..200 {
        append(&log, "t", event(n, Some("k"), "x")).unwrap();
        world.clock.advance(DAY_MS / 80);
        log.maintain().unwrap();
        let tombstone = log.latest_by_key(&topic, b"gone").unwrap().is_some();
        assert!(tombstone || n > 80, "a tombstone is kept for a day");
        assert!(!tombstone || n < 80 * 3 / 2, "and not for ever");
        assert!(topic.info().segments < 8, "{:?}", topic.info());
    }
}

#[test]
fn age_retention_ends_keys_that_are_not_written_again() {
    let world = World::with(server());
    let log = world.open();
    let topic = log.create_topic(&name("t")).unwrap();
    let policy = TopicPolicy { compacted: true, age_ms: Some(DAY_MS), ..TopicPolicy::default() };
    log.set_policy(&topic, policy);
    append(&log, "t", event(0, Some("old"), "x")).unwrap();
    for n in 1..200 {
        append(&log, "t", event(n, Some("k"), "x")).unwrap();
        world.clock.advance(DAY_MS / 80);
        log.maintain().unwrap();
        let old = log.latest_by_key(&topic, b"old").unwrap().is_some();
        assert!(old || n > 79);
        assert!(!old || n < 80 * 5 / 4, "{n}");
    }
}

#[test]
fn a_slow_holder_does_not_make_many_segments() {
    let world = World::with(server());
    let log = world.open();
    let topic = compacted(&log, "t");
    let held: TopicName = name("t");
    log.holds().set(&held, "reader", Some(0));
    for n in 0..50 {
        append(&log, "t", event(n, Some("k"), "x")).unwrap();
        world.clock.advance(MINUTE_MS);
        log.checkpoint().unwrap();
        log.maintain().unwrap();
    }
    assert_eq!(topic.info().records, 50);
    assert!(topic.info().segments <= 2, "{:?}", topic.info());
    log.holds().set(&held, "reader", None);
    log.maintain().unwrap();
    assert_eq!(offsets(&log, "t"), [49]);
}
