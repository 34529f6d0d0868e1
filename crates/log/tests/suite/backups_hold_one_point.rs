//! The files of a backup point open as the log was at that moment, whatever the log does while they are read.

use std::sync::Arc;

use promethean_log::{Log, LogBackup, LogBackupError};
use promethean_testkit::{FaultDisk, FaultState, ObservedTopics};

use super::simulation::{Simulation, observe};
use super::world::*;

/// What a backup took: the point, and what readers saw and the state held at it.
struct Taken {
    point: LogBackup,
    seen: ObservedTopics,
    state: FaultState,
}

fn begin(log: &Log, state: &FaultState) -> Result<Taken, LogBackupError> {
    let mut noted = None;
    let point = log.begin_backup(&mut || {
        noted = Some((observe(log)?, state.copy()));
        Ok(())
    })?;
    let (seen, state) = noted.expect("the state was noted");
    Ok(Taken { point, seen, state })
}

/// A world with the files of the point, as a restore makes it.
fn restore(log: &Log, taken: Taken, of: &World) -> World {
    let disk = FaultDisk::new();
    for file in &taken.point.files {
        let mut bytes = log.read_backup(&file.path, 0, file.bytes as usize).unwrap();
        bytes.resize(file.length as usize, 0);
        disk.write_file(&file.path, &bytes).unwrap();
    }
    World { disk, state: Arc::new(taken.state), clock: Arc::clone(&of.clock), options: of.options.clone() }
}

fn staged(disk: &FaultDisk) -> Vec<String> {
    disk.files().into_iter().filter(|path| path.starts_with("backup/")).collect()
}

/// Works, takes a backup, works on while it is read, and compares.
fn run(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let log = simulation.world.open();
    simulation.work(&log, 20 + (seed as usize * 13) % 90);
    let taken = begin(&log, &simulation.world.state).unwrap();
    simulation.work(&log, 120);
    log.checkpoint().unwrap();
    log.maintain().unwrap();
    let (point, seen, state) = (taken.point.clone(), taken.seen.clone(), taken.state.snapshot());
    let restored = restore(&log, taken, &simulation.world);
    log.end_backup().unwrap();
    assert_eq!(staged(&simulation.world.disk), Vec::<String>::new(), "seed {seed}");

    let (copy, report) = restored.try_open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(report.index_rebuilt, None, "seed {seed}");
    assert_eq!(observe(&copy).unwrap(), seen, "seed {seed}");
    assert_eq!(restored.state.snapshot(), state, "seed {seed}");
    let verified = copy.verify(&mut |_, _| {});
    assert!(verified.is_clean(), "seed {seed}: {verified:?}");
    for topic in &point.topics {
        let there = copy.topic(&topic.name).unwrap_or_else(|| panic!("seed {seed}: {}", topic.name));
        assert_eq!((there.id(), there.end()), (topic.number, topic.end), "seed {seed}");
        for event in &seen[topic.name.as_str()].events {
            let found = copy.find_id(&there, event.id.parse().unwrap()).unwrap().expect("by id");
            assert_eq!(found.view().offset, event.offset, "seed {seed}");
        }
    }
    // The copy goes on by itself.
    let (mut other, end) = (Simulation::new(seed + 1000), point.lsn);
    other.work(&copy, 30);
    copy.close().unwrap();
    assert!(begin(&log, &simulation.world.state).unwrap().point.lsn >= end);
}

#[test]
fn a_restored_point_is_the_log_as_it_was() {
    (0..40).for_each(run);
}

#[test]
fn power_cuts_during_a_backup_lose_nothing_and_leave_no_staged_files() {
    for seed in 0..6 {
        let run = |stop: Option<u64>| {
            let mut simulation = Simulation::new(seed);
            let log = simulation.world.open();
            simulation.work(&log, 60);
            let before = simulation.world.disk.ops();
            if let Some(stop) = stop {
                simulation.world.disk.stop_at(before + stop, seed);
            }
            // With a power cut this fails somewhere.
            let _ = begin(&log, &simulation.world.state).and_then(|_| log.end_backup());
            let operations = simulation.world.disk.ops() - before;
            drop(log);
            (simulation, operations)
        };
        let (_, operations) = run(None);
        for stop in 1..=operations {
            let (mut simulation, _) = run(Some(stop));
            simulation.cut_power(seed * 1000 + stop);
            let log = simulation.world.open();
            simulation.check(&log).unwrap_or_else(|what| panic!("seed {seed}, operation {stop}: {what}"));
            assert_eq!(staged(&simulation.world.disk), Vec::<String>::new(), "seed {seed}, operation {stop}");
        }
    }
}

#[test]
fn one_backup_is_under_way_at_a_time() {
    let world = World::new();
    let log = world.open();
    append(&log, "t", event(1, None, "1")).unwrap();
    begin(&log, &world.state).unwrap();
    assert!(matches!(begin(&log, &world.state), Err(LogBackupError::Running)));
    log.end_backup().unwrap();
    let taken = begin(&log, &world.state).unwrap();
    assert_eq!(taken.point.topics.len(), 1);
    assert_eq!((taken.point.topics[0].earliest, taken.point.topics[0].end), (0, 1));
    assert!(matches!(log.read_backup("segments/none.seg", 0, 1), Err(LogBackupError::Io { .. })));
    let manifest = taken.point.files.iter().find(|file| file.path == "manifest").unwrap();
    let beyond = log.read_backup("manifest", 0, manifest.bytes as usize + 1);
    assert!(matches!(beyond, Err(LogBackupError::Short { .. })));
    // A failure to note the state ends the backup.
    log.end_backup().unwrap();
    assert!(matches!(log.begin_backup(&mut || Err("no".into())), Err(LogBackupError::State(_))));
    assert!(staged(&world.disk).is_empty());
    begin(&log, &world.state).unwrap();
}
