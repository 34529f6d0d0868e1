//! Reports of the log: its health, its damage, and errors that say what to do.

use promethean_log::{Log, LogOpenError, LogOptions, ReadLimit};

use super::world::*;

/// Flips a bit of the first journal frame that holds these bytes.
fn damage_journal(world: &World, holds: &[u8]) {
    for file in world.disk.files().into_iter().filter(|file| file.starts_with("journal/")) {
        let bytes = world.disk.read_file(&file).unwrap();
        if let Some(at) = bytes.windows(holds.len()).position(|window| window == holds) {
            return world.disk.flip_bit(&file, at as u64, 1).unwrap();
        }
    }
    panic!("no journal file holds it");
}

#[test]
fn a_segment_that_lost_its_end_is_in_the_health_from_the_start() {
    let mut world = World::new();
    let log = world.open();
    for n in 0..10 {
        append(&log, "t", event(n, None, "some payload")).unwrap();
    }
    log.close().unwrap();
    drop(log);
    world.disk = world.disk.kill();
    let file = world.disk.files().into_iter().find(|file| file.ends_with(".seg")).unwrap();
    let len = world.disk.len(&file).unwrap();
    world.disk.truncate(&file, len - 5).unwrap();
    let (log, report) = world.try_open().unwrap();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    assert_eq!(log.health().damage, report.damage);
    assert_eq!(log.health().damage[0].file, file);
}

#[test]
fn a_refusal_names_the_command_that_repairs() {
    let check = |damage: &dyn Fn(&World)| {
        let mut world = World::new();
        let log = world.open();
        for n in 0..10 {
            append(&log, "t", event(n, None, &n.to_string())).unwrap();
        }
        drop(log);
        world.disk = world.disk.kill();
        damage(&world);
        let refused = world.try_open().unwrap_err();
        assert!(refused.to_string().contains("promethean verify --repair"), "{refused}");
        assert!(!world.repair(false).is_clean());
        world.open();
    };
    check(&|world| damage_journal(world, id(4).as_bytes()));
    check(&|world| damage_journal(world, b"PJRNL001"));
    check(&|world| world.disk.flip_bit("manifest", 20, 1).unwrap());
    check(&|world| world.disk.remove_file("manifest").unwrap());
}

type Change = fn(&mut LogOptions);

#[test]
fn options_that_cannot_work_are_refused_and_say_what_would() {
    let cases: [(&str, Change); 9] = [
        ("journal_file_bytes", |options| options.journal_file_bytes = 100),
        ("checkpoint_bytes", |options| options.checkpoint_bytes = 0),
        ("segment_bytes", |options| options.segment_bytes = 0),
        ("segment_bytes", |options| options.segment_bytes = 1 << 40),
        ("tail_bytes", |options| options.tail_bytes = u64::MAX),
        ("index_bytes", |options| options.index_bytes = 0),
        ("queue_bytes", |options| options.queue_bytes = 0),
        ("open_files", |options| options.open_files = 0),
        ("topics", |options| options.topics = 0),
    ];
    for (wrong, change) in cases {
        let mut world = World::new();
        change(&mut world.options);
        let refused = world.try_open().unwrap_err();
        assert!(matches!(&refused, LogOpenError::Options { option, .. } if *option == wrong), "{refused}");
        assert!(refused.to_string().contains("set it to at "), "{refused}");
        assert!(world.disk.files().is_empty(), "nothing was made");
    }
}

/// Calls every kind of read, so that a test can check that none of them waits.
pub(super) fn look_around(log: &Log) {
    for topic in log.topics() {
        let page = log.read(&topic, topic.info().earliest, ReadLimit { events: 100, bytes: 10_000 }).unwrap();
        for view in page.iter() {
            assert!(log.find_id(&topic, view.id).unwrap().is_some());
            if let Some(key) = view.key {
                assert!(log.latest_by_key(&topic, key).unwrap().is_some());
            }
        }
        log.offset_at(&topic, 0).unwrap();
    }
    assert_eq!(log.health().poisoned, None);
}
