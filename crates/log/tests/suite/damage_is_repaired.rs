//! A repair sets damage aside, keeps what verifies at its offsets, and names what is lost.

use promethean_log::{LogOpenError, LogReadError, ReadLimit};

use super::world::*;

/// The file whose name has this text and whose bytes hold these, and where.
fn find(world: &World, folder: &str, holds: &[u8]) -> (String, u64) {
    for file in world.disk.files().into_iter().filter(|file| file.starts_with(folder)) {
        let bytes = world.disk.read_file(&file).unwrap();
        if let Some(at) = bytes.windows(holds.len()).position(|window| window == holds) {
            return (file, at as u64);
        }
    }
    panic!("no file of {folder} holds it");
}

fn quarantined(world: &World) -> usize {
    world.disk.files().iter().filter(|file| file.starts_with("quarantine/")).count()
}

#[test]
fn one_damaged_header_hides_one_event_even_without_samples() {
    let mut world = World::with(promethean_log::LogOptions { segment_bytes: 1 << 20, ..small() });
    let log = world.open();
    for n in 0..100 {
        append(&log, "t", event(n, None, &n.to_string())).unwrap();
    }
    log.close().unwrap();
    drop(log);
    world.disk = world.disk.kill();
    for file in world.disk.files().into_iter().filter(|file| file.ends_with(".idx")) {
        world.disk.remove_file(&file).unwrap();
    }
    let (file, at) = find(&world, "segments/", id(40).as_bytes());
    world.disk.flip_bit(&file, at, 1).unwrap();
    let log = world.open();
    let topic = log.topic(&name("t")).unwrap();
    let limit = ReadLimit { events: 1000, bytes: 100_000 };
    assert_eq!(log.read(&topic, 0, limit).unwrap().len(), 40);
    let error = log.read(&topic, 40, limit).unwrap_err();
    let LogReadError::CorruptRange(damage) = &error else { panic!("{error}") };
    assert_eq!((damage.from_offset, damage.to_offset), (40, 41));
    assert_eq!(log.read(&topic, 41, limit).unwrap().len(), 59);
    drop(log);
    let report = world.repair(false);
    assert_eq!(
        report.lost.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["topic `t`: offsets 40..41"]
    );
    assert!(quarantined(&world) >= 1);
    let log = world.open();
    assert!(log.verify(&mut |_, _| {}).is_clean());
    let kept = payloads(&log, "t", 0);
    let wanted: Vec<_> = (0..100).filter(|n| *n != 40).map(|n| (n, n.to_string())).collect();
    assert_eq!(kept, wanted, "readers pass the hole");
    assert_eq!(append(&log, "t", event(1000, None, "new")).unwrap(), 100);
}

#[test]
fn a_damaged_body_in_a_segment_is_named_with_its_id() {
    let mut world = World::new();
    let log = world.open();
    for n in 0..10 {
        append(&log, "t", event(n, None, &format!("payload {n}"))).unwrap();
    }
    log.close().unwrap();
    drop(log);
    world.disk = world.disk.kill();
    let (file, at) = find(&world, "segments/", b"payload 4");
    world.disk.flip_bit(&file, at, 1).unwrap();
    // A copy may still be in the journal; it is taken from there.
    let copies = world.disk.files().into_iter().filter(|file| file.starts_with("journal/"));
    copies.for_each(|file| {
        let empty = vec![0; world.disk.len(&file).unwrap() as usize];
        let mut header = world.disk.read_file(&file).unwrap();
        header.truncate(512);
        let rest = [header.as_slice(), &empty[512..]].concat();
        world.disk.write_file(&file, &rest).unwrap();
    });
    let planned = world.repair(true);
    assert_eq!(quarantined(&world), 0, "a dry run changes nothing");
    let report = world.repair(false);
    assert_eq!(planned, report);
    assert_eq!((report.lost.len(), &report.lost[0].ids), (1, &vec![id(4)]));
    assert_eq!(payloads(&world.open(), "t", 0).len(), 9);
    assert!(world.repair(true).is_clean());
}

#[test]
fn a_damaged_frame_loses_only_the_damaged_event_and_no_offset_is_used_again() {
    let mut world = World::new();
    let log = world.open();
    for n in 0..10 {
        append(&log, "t", event(n, None, &format!("{n}"))).unwrap();
    }
    append(&log, "other", event(100, None, "x")).unwrap();
    drop(log);
    world.disk = world.disk.kill();
    let (file, at) = find(&world, "journal/", id(5).as_bytes());
    world.disk.flip_bit(&file, at, 1).unwrap();
    let refused = world.try_open().unwrap_err();
    assert!(matches!(&refused, LogOpenError::CorruptRange(damage) if damage.file == file), "{refused}");
    let report = world.repair(false);
    assert_eq!(report.lost.len(), 1, "{report:?}");
    let log = world.open();
    let kept = payloads(&log, "t", 0);
    assert_eq!(kept.len(), 9, "{kept:?}");
    assert!(kept.iter().all(|(offset, payload)| offset.to_string() == *payload), "{kept:?}");
    assert_eq!(append(&log, "t", event(200, None, "new")).unwrap(), 10);
    assert_eq!(append(&log, "t", event(3, None, "3")).unwrap(), 3, "ids are still known");
    log.close().unwrap();
    drop(log);
    assert_eq!(payloads(&world.open(), "t", 0).len(), kept.len() + 1);
}

#[test]
fn the_end_of_the_journal_is_not_used_again() {
    let mut world = World::new();
    let log = world.open();
    for n in 0..10 {
        append(&log, "t", event(n, None, &format!("{n}"))).unwrap();
    }
    drop(log);
    world.disk = world.disk.kill();
    let (file, at) = find(&world, "journal/", id(7).as_bytes());
    world.disk.truncate(&file, at).unwrap();
    assert!(world.try_open().is_err());
    let report = world.repair(false);
    assert!(report.lost.iter().any(|lost| lost.from_offset == 7 && !lost.is_certain), "{report:?}");
    let log = world.open();
    assert_eq!(payloads(&log, "t", 0).len(), 7);
    assert!(append(&log, "t", event(200, None, "new")).unwrap() >= 10);
}

#[test]
fn events_of_a_topic_whose_name_is_lost_are_served() {
    let mut world = World::new();
    let log = world.open();
    append(&log, "kept", event(0, None, "x")).unwrap();
    for n in 1..8 {
        append(&log, "lost.topic", event(n, None, "x")).unwrap();
    }
    let number = log.topic(&name("lost.topic")).unwrap().id();
    drop(log);
    world.disk = world.disk.kill();
    let (file, at) = find(&world, "journal/", b"lost.topic");
    world.disk.flip_bit(&file, at, 1).unwrap();
    let report = world.repair(false);
    let served = format!("recovered.{number:08x}");
    assert!(report.notes.iter().any(|note| note.contains(&served)), "{report:?}");
    let log = world.open();
    assert_eq!(payloads(&log, &served, 0).len(), 7, "the records of the damaged frame verify");
    assert!(log.create_topic(&name("new")).unwrap().id() > number, "its number stays taken");
}

#[test]
fn a_manifest_that_lost_its_last_edits_removes_no_segment() {
    for cut in [true, false] {
        let mut world = World::new();
        let log = world.open();
        for n in 0..300 {
            append(&log, "t", event(n, Some(&format!("k{}", n % 3)), &n.to_string())).unwrap();
        }
        let topic = log.topic(&name("t")).unwrap();
        log.checkpoint().unwrap();
        let before = world.disk.len("manifest").unwrap();
        log.set_policy(&topic, promethean_log::TopicPolicy { compacted: true, ..Default::default() });
        log.maintain().unwrap();
        let kept = payloads(&log, "t", 0);
        assert!(kept.len() < 300, "it was compacted");
        drop(log);
        world.disk = world.disk.kill();
        if cut {
            world.disk.truncate("manifest", before).unwrap();
        } else {
            world.disk.flip_bit("manifest", before + 30, 3).unwrap();
        }
        let refused = world.try_open().unwrap_err();
        assert!(refused.to_string().contains("verify --repair"), "{refused}");
        let report = world.repair(false);
        assert!(report.lost.iter().all(|lost| !lost.is_certain), "{report:?}");
        let log = world.open();
        let found = payloads(&log, "t", 0);
        assert!(kept.iter().all(|event| found.contains(event)), "{found:?}\n{kept:?}");
    }
}

#[test]
fn a_manifest_cut_to_its_first_edit_is_refused() {
    let mut world = World::new();
    let log = world.open();
    for n in 0..300 {
        append(&log, "t", event(n, None, &n.to_string())).unwrap();
    }
    log.close().unwrap();
    drop(log);
    world.disk = world.disk.kill();
    world.disk.truncate("manifest", 8 + 20 + 36).unwrap();
    assert!(world.try_open().is_err());
    world.repair(false);
    let log = world.open();
    let found = log.topics().into_iter().map(|topic| payloads(&log, topic.name().as_str(), 0).len()).max();
    assert_eq!(found, Some(300));
}
