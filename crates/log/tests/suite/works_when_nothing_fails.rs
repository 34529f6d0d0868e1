//! Appends, reads, lookups and maintenance of a log without faults.

use promethean_log::{AppendError, Log, LogBatch, LogReadError, NewEvent, NewId, ReadLimit, TopicPolicy};
use promethean_model::Durability;

use super::world::*;

#[test]
fn events_come_back_in_order_with_their_bytes_after_every_kind_of_restart() {
    let world = World::new();
    let log = world.open();
    let expected: Vec<(u64, String)> = (0..500).map(|n| (n, format!("{{\"n\":{n}}}"))).collect();
    for (n, payload) in &expected {
        assert_eq!(append(&log, "a.b", event(*n, Some(&format!("k{}", n % 17)), payload)).unwrap(), *n);
    }
    assert!(log.health().checkpoints > 2);
    assert_eq!(payloads(&log, "a.b", 0), expected);
    log.close().unwrap();
    drop(log);
    let log = world.open();
    assert_eq!(payloads(&log, "a.b", 0), expected);
    assert_eq!(payloads(&log, "a.b", 333), expected[333..]);
    let topic = log.topic(&name("a.b")).unwrap();
    for n in 0..500u64 {
        let found = log.find_id(&topic, id(n)).unwrap().expect("by id");
        assert_eq!(found.view().offset, n);
    }
    assert!(log.find_id(&topic, id(9999)).unwrap().is_none());
    for k in 0..17u64 {
        let key = format!("k{k}");
        let history = log.key_history(&topic, key.as_bytes(), 0..u64::MAX, usize::MAX).unwrap();
        let offsets: Vec<u64> = history.iter().map(|record| record.view().offset).collect();
        assert_eq!(offsets, (0..500).filter(|n| n % 17 == k).collect::<Vec<_>>());
        let latest = log.latest_by_key(&topic, key.as_bytes()).unwrap().unwrap();
        assert_eq!(Some(&latest.view().offset), offsets.last());
    }
    assert!(log.verify(&mut |_, _| {}).is_clean(), "{:?}", log.verify(&mut |_, _| {}));
}

#[test]
fn time_finds_the_lowest_offset_whatever_the_order_of_stamps() {
    let world = World::new();
    let log = world.open();
    let topic = log.topic_or_create(&name("t")).unwrap();
    let stamps: Vec<i64> = (0..400).map(|n: i64| (n * 7919) % 1000 + n).collect();
    for (n, ts) in stamps.iter().enumerate() {
        let mut batch = LogBatch::new();
        batch.push(&topic, NewEvent { ts: Some(*ts), ..event(n as u64, None, "{}") }).unwrap();
        log.append(batch, Durability::Fsync).unwrap();
    }
    for ts in (-5..1500).step_by(13) {
        let expected = stamps.iter().position(|stamp| *stamp >= ts).map(|offset| offset as u64);
        assert_eq!(log.offset_at(&topic, ts).unwrap(), expected, "at {ts}");
    }
}

#[test]
fn a_repeated_id_is_a_duplicate_and_another_content_is_refused_with_its_whole_batch() {
    let world = World::new();
    let log = world.open();
    assert_eq!(append(&log, "t", event(1, Some("k"), "1")).unwrap(), 0);
    let repeat = |log: &Log| {
        let mut batch = LogBatch::new();
        batch.push(&log.topic(&name("t")).unwrap(), event(1, Some("k"), "1")).unwrap();
        let placed = log.append(batch, Durability::Fsync).unwrap().events[0];
        assert_eq!((placed.offset, placed.duplicate), (0, true));
    };
    repeat(&log);
    drop(log);
    let log = world.open();
    repeat(&log);
    let topic = log.topic(&name("t")).unwrap();
    let mut batch = LogBatch::new();
    batch.push(&topic, event(2, None, "2")).unwrap();
    batch.push(&topic, event(1, Some("k"), "other")).unwrap();
    let refused = log.append(batch, Durability::Fsync).unwrap_err();
    assert!(matches!(refused, AppendError::IdConflict { offset: 0, .. }), "{refused}");
    assert_eq!(topic.end(), 1);
    let mut batch = LogBatch::new();
    batch.push(&topic, event(3, None, "3")).unwrap();
    batch.push(&topic, event(3, None, "3")).unwrap();
    let receipt = log.append(batch, Durability::Fsync).unwrap();
    assert_eq!((receipt.events[0].offset, receipt.events[1].offset), (1, 1));
    assert!(!receipt.events[0].duplicate && receipt.events[1].duplicate);
    let mut batch = LogBatch::new();
    batch.push(&topic, event(4, None, "4")).unwrap();
    batch.push(&topic, event(4, None, "five")).unwrap();
    assert!(matches!(log.append(batch, Durability::Fsync), Err(AppendError::IdConflict { .. })));
    assert_eq!(topic.end(), 2);
}

#[test]
fn events_that_stand_alone_share_a_batch_and_are_refused_alone() {
    let world = World::new();
    let log = world.open();
    let (plain, keyed) =
        (log.topic_or_create(&name("plain")).unwrap(), log.topic_or_create(&name("keyed")).unwrap());
    log.set_policy(&keyed, TopicPolicy { compacted: true, ..TopicPolicy::default() });
    append(&log, "plain", event(1, None, "1")).unwrap();
    let mut batch = LogBatch::each();
    for (topic, event) in [
        (&plain, event(2, None, "2")),
        (&plain, event(1, None, "other")),
        (&keyed, event(3, None, "3")),
        (&plain, event(1, None, "1")),
        (&keyed, event(4, Some("k"), "4")),
        (&plain, event(2, None, "2")),
        (&plain, event(2, None, "other")),
    ] {
        batch.push(topic, event).unwrap();
    }
    let receipt = log.append(batch, Durability::Fsync).unwrap();
    let outcomes: Vec<String> = receipt
        .outcomes()
        .map(|outcome| match outcome {
            Ok(placed) => format!("{}{}", placed.offset, if placed.duplicate { " again" } else { "" }),
            Err(AppendError::IdConflict { .. }) => "conflict".to_owned(),
            Err(AppendError::KeyRequired { .. }) => "keyless".to_owned(),
            Err(error) => panic!("{error}"),
        })
        .collect();
    assert_eq!(outcomes, ["1", "conflict", "keyless", "0 again", "0", "1 again", "conflict"]);
    let written = |topic: &str| payloads(&log, topic, 0).into_iter().map(|(_, payload)| payload);
    assert_eq!(written("plain").collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(written("keyed").collect::<Vec<_>>(), ["4"]);

    let mut batch = LogBatch::each();
    batch.push(&plain, event(1, None, "1")).unwrap();
    batch.push(&keyed, event(5, None, "5")).unwrap();
    let receipt = log.append(batch, Durability::Fsync).unwrap();
    assert_eq!((receipt.lsn, receipt.refused.len()), (0, 1), "nothing is written for it");
}

#[test]
fn expectations_hold_or_refuse() {
    let world = World::new();
    let log = world.open();
    append(&log, "t", event(1, Some("k"), "1")).unwrap();
    let topic = log.topic(&name("t")).unwrap();
    let with = |number: u64, expect: &dyn Fn(&mut LogBatch)| {
        let mut batch = LogBatch::new();
        batch.push(&topic, event(number, Some("k"), "x")).unwrap();
        expect(&mut batch);
        log.append(batch, Durability::Fsync)
    };
    let wrong_end = with(2, &|batch| batch.expect_end(&topic, 0));
    assert!(matches!(wrong_end, Err(AppendError::Conflict { expected: 0, actual: 1, .. })));
    let wrong_key = with(2, &|batch| batch.expect_key(&topic, b"k", None));
    assert!(matches!(wrong_key, Err(AppendError::KeyConflict { expected: None, actual: Some(0), .. })));
    let right = with(2, &|batch| {
        batch.expect_end(&topic, 1);
        batch.expect_key(&topic, b"k", Some(0));
        batch.expect_key(&topic, b"other", None);
    });
    assert_eq!(right.unwrap().events[0].offset, 1);
}

#[test]
fn server_stamps_never_decrease_even_over_a_restart() {
    let world = World::new();
    let log = world.open();
    append(&log, "t", event(1, None, "1")).unwrap();
    world.clock.advance_wall(-3_600_000);
    append(&log, "t", event(2, None, "2")).unwrap();
    drop(log);
    world.clock.advance_wall(-3_600_000);
    let log = world.open();
    append(&log, "t", event(3, None, "3")).unwrap();
    let topic = log.topic(&name("t")).unwrap();
    let page = log.read(&topic, 0, ReadLimit { events: 10, bytes: 10_000 }).unwrap();
    let stamps: Vec<i64> = page.iter().map(|view| view.ts).collect();
    assert_eq!(stamps, vec![1_700_000_000_000; 3]);
}

#[test]
fn retention_by_count_bytes_and_age_leaves_the_rest_and_remembers_ids() {
    for policy in [
        TopicPolicy { count: Some(50), ..TopicPolicy::default() },
        TopicPolicy { bytes: Some(16 * 1024), ..TopicPolicy::default() },
        TopicPolicy { age_ms: Some(10_000), ..TopicPolicy::default() },
    ] {
        let world = World::new();
        let log = world.open();
        let topic = log.topic_or_create(&name("t")).unwrap();
        log.set_policy(&topic, policy.clone());
        for n in 0..600 {
            append(&log, "t", event(n, Some("k"), &format!("{n}"))).unwrap();
            world.clock.advance(100);
        }
        log.maintain().unwrap();
        let earliest = topic.info().earliest;
        assert!(earliest > 100 && earliest < 595, "{policy:?}: {earliest}");
        let gone = log.read(&topic, 0, ReadLimit { events: 1, bytes: 1 });
        assert!(
            matches!(gone, Err(LogReadError::OutOfRange { requested: 0, earliest: e, .. }) if e == earliest)
        );
        assert_eq!(payloads(&log, "t", earliest).len() as u64, 600 - earliest);
        let files = world.disk.files().into_iter().filter(|file| file.ends_with(".seg")).count();
        assert!(files < 40, "{files} segment files are left");
        drop(log);
        let log = world.open();
        let topic = log.topic(&name("t")).unwrap();
        assert_eq!(topic.info().earliest, earliest);
        // The event is removed, and its id is still recognised.
        assert_eq!(append(&log, "t", event(3, Some("k"), "3")).unwrap(), 3);
        assert!(matches!(
            append(&log, "t", event(4, Some("k"), "x")),
            Err(AppendError::IdConflict { offset: 4, .. })
        ));
        assert_eq!(append(&log, "t", event(1000, Some("k"), "new")).unwrap(), 600);
    }
}

#[test]
fn everything_goes_when_everything_is_too_old() {
    let world = World::new();
    let log = world.open();
    let topic = log.topic_or_create(&name("t")).unwrap();
    log.set_policy(&topic, TopicPolicy { age_ms: Some(1000), ..TopicPolicy::default() });
    for n in 0..10 {
        append(&log, "t", event(n, None, "x")).unwrap();
    }
    log.checkpoint().unwrap();
    world.clock.advance(2000);
    log.maintain().unwrap();
    log.maintain().unwrap();
    assert_eq!(topic.info().earliest, 10);
    assert!(payloads(&log, "t", 10).is_empty());
    assert_eq!(append(&log, "t", event(100, None, "y")).unwrap(), 10);
    assert_eq!(payloads(&log, "t", 10), vec![(10, "y".to_owned())]);
    drop(log);
    assert_eq!(payloads(&world.open(), "t", 10), vec![(10, "y".to_owned())]);
}

#[test]
fn a_compacted_topic_keeps_the_latest_of_each_key() {
    let world = World::new();
    let log = world.open();
    let topic = log.topic_or_create(&name("t")).unwrap();
    log.set_policy(&topic, TopicPolicy { compacted: true, ..TopicPolicy::default() });
    let keyless = append(&log, "t", event(9999, None, "x"));
    assert!(matches!(keyless, Err(AppendError::KeyRequired { .. })));
    for n in 0..800u64 {
        let payload = if n % 10 == 9 && n > 700 { "null".to_owned() } else { format!("{n}") };
        append(&log, "t", event(n, Some(&format!("k{}", n % 10)), &payload)).unwrap();
    }
    log.checkpoint().unwrap();
    log.maintain().unwrap();
    let left = payloads(&log, "t", 0);
    assert!(left.len() < 150, "{} records are left", left.len());
    for k in 0..10u64 {
        let latest = log.latest_by_key(&topic, format!("k{k}").as_bytes()).unwrap().unwrap();
        assert_eq!(latest.view().offset, 790 + k);
        assert_eq!(latest.view().tombstone, k == 9);
    }
    assert_eq!(append(&log, "t", event(5, Some("k5"), "5")).unwrap(), 5, "still a duplicate");
    drop(log);
    let log = world.open();
    let after = payloads(&log, "t", 0);
    assert_eq!(after, left);
    assert!(log.verify(&mut |_, _| {}).is_clean());
    let topic = log.topic(&name("t")).unwrap();
    assert!(log.key_history(&topic, b"k3", 0..u64::MAX, 100).unwrap().len() < 20);
}

#[test]
fn a_deleted_topic_starts_anew() {
    let world = World::new();
    let log = world.open();
    for n in 0..100 {
        append(&log, "t", event(n, None, "old")).unwrap();
    }
    let topic = log.topic(&name("t")).unwrap();
    log.delete_topic(&topic).unwrap();
    assert!(log.topic(&name("t")).is_none());
    assert_eq!(append(&log, "t", event(0, None, "new")).unwrap(), 0);
    drop(log);
    let log = world.open();
    assert_eq!(payloads(&log, "t", 0), vec![(0, "new".to_owned())]);
    log.checkpoint().unwrap();
    assert!(world.disk.files().iter().filter(|file| file.ends_with(".seg")).count() == 1);
    drop(log);
    assert_eq!(payloads(&world.open(), "t", 0), vec![(0, "new".to_owned())]);
}

#[test]
fn a_batch_that_cannot_fit_is_refused() {
    let world = World::new();
    let log = world.open();
    let big = "x".repeat(9000);
    assert!(matches!(append(&log, "t", event(1, None, &big)), Err(AppendError::TooLarge { .. })));
    assert_eq!(append(&log, "t", event(2, None, &"y".repeat(7000))).unwrap(), 0);
    assert_eq!(payloads(&log, "t", 0)[0].1.len(), 7000);
}

#[test]
fn os_batches_are_seen_once_they_are_synced() {
    let world = World::new();
    let log = world.open();
    let topic = log.topic_or_create(&name("t")).unwrap();
    let mut batch = LogBatch::new();
    batch.push(&topic, NewEvent { id: NewId::Minted(id(1)), ..event(1, None, "1") }).unwrap();
    let receipt = log.append(batch, Durability::Os).unwrap();
    assert_eq!((receipt.events[0].offset, receipt.durability), (0, Durability::Os));
    assert_eq!(topic.end(), 0);
    let _ = log.sync();
    assert_eq!(payloads(&log, "t", 0).len(), 1);
}
