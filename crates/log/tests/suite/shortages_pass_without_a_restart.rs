//! Shortages of space, inodes, quota and descriptors: the log refuses what it cannot do, writes on when the
//! shortage ends, and never stops for good.
//!
//! Rows 9 (no space) and 11 (no descriptors) of the fault model.

use promethean_log::{AppendError, Log, LogOptions};
use promethean_testkit::{DiskFailure, Matcher, OpKind, SeededRng, seeds};

use super::simulation::Simulation;
use super::world::*;

/// More topics than files that the log keeps open.
const TOPICS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
const FOLDERS: [&str; 4] = ["journal", "segments", "index", "manifest"];

/// How often the log takes checkpoints. Checkpoints free journal files, so with many no new file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upkeep {
    Often,
    Rare,
}

/// Publishes and maintains under a fault. Returns the accepted events; every other event must be refused for
/// the shortage.
fn work_under_shortage(
    log: &Log,
    numbers: std::ops::Range<u64>,
    upkeep: Upkeep,
    what: &str,
) -> (Vec<u64>, usize) {
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for n in numbers {
        match append(log, TOPICS[n as usize % TOPICS.len()], event(n, Some("k"), &format!("{n:0>200}"))) {
            Ok(_) => accepted.push(n),
            Err(AppendError::StorageFull { .. } | AppendError::Busy { .. }) => refused += 1,
            Err(error) => panic!("{what}: {error}"),
        }
        if n % 10 == 9 && upkeep == Upkeep::Often {
            // Failures are tried again, as the log's threads do.
            let _ = (log.maintain(), log.checkpoint());
        }
        let health = log.health();
        assert_eq!(health.poisoned, None, "{what}");
        refused += usize::from(health.full || health.lacks_descriptors);
    }
    (accepted, refused)
}

fn numbers(log: &Log) -> Vec<u64> {
    let events = TOPICS.iter().flat_map(|topic| payloads(log, topic, 0));
    let mut all: Vec<u64> = events.map(|(_, payload)| payload.parse().unwrap()).collect();
    all.sort_unstable();
    all
}

/// Works before, under and after a shortage, without a restart, and then looks after a kill and a power cut.
fn passes(what: &str, upkeep: Upkeep, begin: impl Fn(&World), end: impl Fn(&World)) {
    let mut world = match upkeep {
        Upkeep::Often => World::new(),
        Upkeep::Rare => World::with(LogOptions { checkpoint_bytes: 1 << 20, ..small() }),
    };
    let log = world.open();
    let (mut accepted, none) = work_under_shortage(&log, 0..60, upkeep, what);
    assert_eq!(none, 0, "{what}");
    begin(&world);
    let (under, met) = work_under_shortage(&log, 60..400, upkeep, what);
    assert!(met > 0, "{what}: the shortage was not met");
    end(&world);
    log.maintain().unwrap_or_else(|error| panic!("{what}: {error}"));
    let (after, none) = work_under_shortage(&log, 400..500, upkeep, what);
    assert_eq!((after.len(), none), (100, 0), "{what}: all is well again");
    accepted.extend(under.into_iter().chain(after));
    assert_eq!(numbers(&log), accepted, "{what}");
    log.checkpoint().unwrap();
    assert!(log.verify(&mut |_, _| {}).is_clean(), "{what}");
    drop(log);
    for seed in 0..4 {
        if seed == 0 {
            world.disk = world.disk.kill();
        } else {
            world.disk = world.disk.crash(seed);
        }
        let log = world.open();
        assert_eq!(numbers(&log), accepted, "{what}, start {seed}");
        assert!(log.verify(&mut |_, _| {}).is_clean(), "{what}, start {seed}");
    }
}

fn passes_fault(op: OpKind, path: &str, failure: DiskFailure) {
    let upkeep = if path.contains("jrn") { Upkeep::Rare } else { Upkeep::Often };
    passes(
        &format!("{failure:?} at {op:?} of {path}"),
        upkeep,
        |world| world.disk.fail_from(Matcher::op(op).path(path), failure),
        |world| world.disk.clear_faults(),
    );
}

#[test]
fn row_9_a_file_that_cannot_be_created_for_lack_of_space_stops_nothing_for_good() {
    for failure in [DiskFailure::ENOSPC, DiskFailure::EDQUOT] {
        for path in [".jrn", "segments", "index", ""] {
            passes_fault(OpKind::Create, path, failure);
        }
    }
}

#[test]
fn row_9_a_write_that_finds_no_space_stops_nothing_for_good() {
    for failure in [DiskFailure::ENOSPC, DiskFailure::EDQUOT] {
        // Journal files are filled before they are used, so frames are written over bytes that are there.
        for path in [".jrn.new", "segments", "index", "manifest"] {
            passes_fault(OpKind::Write, path, failure);
        }
    }
}

#[test]
fn row_9_exhausted_inodes_refuse_publishing_and_pass() {
    passes(
        "no inodes",
        Upkeep::Often,
        |world| world.disk.set_files_max(Some(world.disk.files().len() as u64)),
        |world| world.disk.set_files_max(None),
    );
}

#[test]
fn row_9_inodes_are_kept_in_reserve_as_bytes_are() {
    let world = World::with(LogOptions { reserve_files: 4, ..small() });
    let log = world.open();
    append(&log, "t", event(0, None, "x")).unwrap();
    world.disk.set_files_max(Some(world.disk.files().len() as u64 + 3));
    log.maintain().unwrap();
    let refused = append(&log, "t", event(1, None, "x")).unwrap_err();
    assert!(refused.to_string().contains("3 files can still be created, 4 are kept"), "{refused}");
    assert!(log.health().full);
    world.disk.set_files_max(None);
    append(&log, "t", event(1, None, "x")).unwrap();
    assert!(!log.health().full);
}

#[test]
fn row_11_a_file_that_cannot_be_opened_for_lack_of_descriptors_stops_nothing_for_good() {
    for failure in [DiskFailure::EMFILE, DiskFailure::ENFILE] {
        for path in [".jrn", "segments", "index", ""] {
            passes_fault(OpKind::Create, path, failure);
        }
        passes_fault(OpKind::Open, "segments", failure);
    }
}

#[test]
fn row_11_descriptors_that_others_have_taken_are_waited_for() {
    passes(
        "no descriptors",
        Upkeep::Often,
        |world| world.disk.set_descriptors_max(Some(world.disk.open_files())),
        |world| world.disk.set_descriptors_max(None),
    );
}

/// A large manifest is written anew by a checkpoint.
#[test]
fn a_manifest_that_cannot_be_written_anew_is_tried_again() {
    for (op, failure) in [
        (OpKind::Create, DiskFailure::ENOSPC),
        (OpKind::Create, DiskFailure::EMFILE),
        (OpKind::Write, DiskFailure::EDQUOT),
        (OpKind::Rename, DiskFailure::ENOSPC),
    ] {
        let world = World::with(LogOptions { checkpoint_bytes: 1 << 20, ..small() });
        let log = world.open();
        let long = "x".repeat(170);
        for n in 0..1500 {
            log.create_topic(&name(&format!("{long}{n}"))).unwrap();
        }
        log.checkpoint().unwrap();
        append(&log, "t", event(1, None, "1")).unwrap();
        world.disk.fail_from(Matcher::op(op).path("manifest.tmp"), failure);
        assert!(log.checkpoint().is_err(), "{op:?}");
        assert_eq!(log.health().poisoned, None, "{op:?}");
        world.disk.clear_faults();
        append(&log, "t", event(2, None, "2")).unwrap();
        log.checkpoint().unwrap();
        drop(log);
        let log = world.open();
        assert_eq!(payloads(&log, "t", 0).len(), 2, "{op:?}");
        assert_eq!(log.topics().len(), 1501, "{op:?}");
        assert!(log.verify(&mut |_, _| {}).is_clean(), "{op:?}");
    }
}

/// A sync that fails is no shortage, whatever its number: the pages may be lost.
#[test]
fn a_failed_sync_is_never_taken_for_a_shortage() {
    for failure in [DiskFailure::ENOSPC, DiskFailure::EDQUOT] {
        for path in FOLDERS {
            let world = World::new();
            let log = world.open();
            append(&log, "t", event(1, Some("k"), "1")).unwrap();
            world.disk.fail_next(Matcher::op(OpKind::Sync).path(path), failure);
            let failed = append(&log, "t", event(2, Some("k"), "2")).is_err() | log.checkpoint().is_err();
            assert!(failed && log.health().poisoned.is_some(), "{failure:?} at a sync of {path}");
        }
    }
}

/// Random shortages, one after the other and at once, over random work with compaction and retention.
/// `SHORTAGE_SEEDS=n` runs n seeds, `SHORTAGE_FRESH=n` n fresh ones, `SHORTAGE_SEED=s` one.
#[test]
fn random_shortages_lose_nothing_and_never_stop_the_log() {
    for seed in seeds("SHORTAGE", 40, &[], 20) {
        if let Err(what) = run_with_shortages(seed) {
            panic!("SHORTAGE_SEED={seed}: {what}");
        }
    }
}

fn run_with_shortages(seed: u64) -> Result<(), String> {
    let mut simulation = Simulation::new(seed);
    let mut rng = SeededRng::new(seed ^ 0x5407);
    let log = simulation.world.open();
    for round in 0..6 {
        for _ in 0..4 {
            brew(&simulation.world, &mut rng);
            for _ in 0..10 {
                simulation.step(&log);
                if let Some(reason) = log.health().poisoned {
                    return Err(format!("round {round}: stopped: {reason}"));
                }
            }
        }
        let disk = &simulation.world.disk;
        disk.clear_faults();
        disk.set_capacity(None);
        disk.set_files_max(None);
        disk.set_descriptors_max(None);
        log.maintain().map_err(|error| format!("round {round}: {error}"))?;
        simulation.check(&log).map_err(|what| format!("round {round}: {what}"))?;
    }
    drop(log);
    simulation.cut_power(seed);
    let (log, _) = simulation.world.try_open().map_err(|error| format!("open: {error}"))?;
    simulation.check(&log)
}

/// Begins or ends a shortage.
fn brew(world: &World, rng: &mut SeededRng) {
    let disk = &world.disk;
    let space = [DiskFailure::ENOSPC, DiskFailure::EDQUOT][rng.range(0..2) as usize];
    let descriptors = [DiskFailure::EMFILE, DiskFailure::ENFILE][rng.range(0..2) as usize];
    let folder = FOLDERS[rng.range(0..4) as usize];
    let nth = rng.range(1..4);
    match rng.range(0..8) {
        0 => disk.set_files_max(Some(disk.files().len() as u64 + rng.range(0..3))),
        1 => disk.set_descriptors_max(Some(disk.open_files() + rng.range(0..3) as usize)),
        2 => disk.fail_next(Matcher::op(OpKind::Create).path(folder).nth(nth), space),
        3 => disk.fail_next(Matcher::op(OpKind::Create).path(folder).nth(nth), descriptors),
        4 => disk.fail_next(Matcher::op(OpKind::Open).path("segments").nth(nth), descriptors),
        5 => {
            let path = ["segments", "index", "manifest", ".jrn.new"][rng.range(0..4) as usize];
            disk.fail_next(Matcher::op(OpKind::Write).path(path).nth(nth), space);
        }
        6 => {
            disk.set_files_max(None);
            disk.set_descriptors_max(None);
        }
        _ => disk.clear_faults(),
    }
}
