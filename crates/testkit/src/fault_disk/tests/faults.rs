//! Injected errors, stops, short writes, full disks and lying syncs.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use promethean_log::disk::Disk;

use crate::fault_disk::{DiskFailure, FaultDisk, Matcher, OpKind, SECTOR};

/// The disk with an empty, durable file `f`.
fn disk() -> FaultDisk {
    let disk = FaultDisk::new();
    disk.write_file("f", b"").unwrap();
    disk
}

#[test]
fn the_nth_match_fails_once_and_leaves_nothing() {
    let disk = disk();
    let file = disk.open("f").unwrap();
    disk.fail_next(Matcher::op(OpKind::Write).path("f").nth(2), DiskFailure::EIO);
    file.write_at(b"1", 0).unwrap();
    assert_eq!(file.write_at(b"2", 1).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(disk.len("f").unwrap(), 1);
    file.write_at(b"3", 1).unwrap();
    disk.fail_next(Matcher::op(OpKind::Create).path("other"), DiskFailure::Kind(ErrorKind::PermissionDenied));
    disk.create("g").unwrap();
    assert_eq!(disk.create("other").unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(disk.files(), ["f", "g"]);
}

#[test]
fn a_lasting_failure_lasts_until_cleared() {
    let disk = disk();
    disk.fail_from(Matcher::op(OpKind::Read).nth(2), DiskFailure::EIO);
    let file = disk.open("f").unwrap();
    let reads: Vec<bool> = (0..4).map(|_| file.read_at(&mut [0], 0).is_ok()).collect();
    assert_eq!(reads, [true, false, false, false]);
    disk.clear_faults();
    file.read_at(&mut [0], 0).unwrap();
}

#[test]
fn a_failed_sync_loses_its_pages_for_good() {
    let disk = disk();
    let file = disk.open("f").unwrap();
    file.write_at(&[1; SECTOR], 0).unwrap();
    disk.fail_next(Matcher::op(OpKind::Sync), DiskFailure::EIO);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(disk.read_file("f").unwrap(), [1; SECTOR], "reads still see it");
    for seed in 0..50 {
        let after = disk.crash(seed).read_file("f").unwrap();
        assert_eq!(after, [0; SECTOR], "the retried sync wrote the length and no bytes");
    }
}

#[test]
fn a_failed_sync_of_everything_loses_all_pages_and_no_other_file_afterwards() {
    let disk = disk();
    let file = disk.open("f").unwrap();
    file.write_at(b"gone", 0).unwrap();
    disk.fail_next(Matcher::op(OpKind::SyncAll), DiskFailure::EIO);
    assert!(disk.sync_all().is_err());
    let other = disk.create("g").unwrap();
    other.write_at(b"kept", 0).unwrap();
    disk.sync_all().unwrap();
    let after = disk.crash(1);
    assert_eq!(
        (after.read_file("f").unwrap(), after.read_file("g").unwrap()),
        (vec![0; 4], b"kept".to_vec())
    );
}

#[test]
fn the_power_goes_at_the_chosen_operation() {
    let run = |disk: &FaultDisk| -> std::io::Result<()> {
        disk.make_dir("d")?;
        let file = disk.create("d/a")?;
        file.write_at(&[1; 2_000], 0)?;
        file.set_len(1_000)?;
        file.sync()?;
        disk.rename("d/a", "d/b")?;
        disk.sync_dir("d")?;
        disk.create("c")?;
        disk.remove("c")?;
        disk.sync_all()
    };
    let whole = FaultDisk::new();
    run(&whole).unwrap();
    assert_eq!(whole.ops(), 10);
    for op in 1..=whole.ops() {
        let mut seen = BTreeSet::new();
        for seed in 0..40 {
            let disk = FaultDisk::new();
            disk.stop_at(op, seed);
            assert_eq!(run(&disk).unwrap_err().to_string(), "power cut");
            assert_eq!(disk.ops(), op);
            assert!(disk.list("").is_err() && disk.sync_all().is_err());
            assert_eq!(disk.ops(), op, "nothing is counted after the cut");
            let killed = disk.kill();
            seen.insert((killed.files(), killed.len("d/a").unwrap_or(0)));
        }
        let kinds = seen.len();
        match op {
            3 => assert!(kinds > 3, "a write is cut anywhere: {seen:?}"),
            1 | 5 | 7 | 10 => assert_eq!(kinds, 1, "not visible: {seen:?}"),
            _ => assert_eq!(kinds, 2, "done or not: {seen:?}"),
        }
    }
    whole.stop_at(1, 0);
    assert!(whole.sync_all().is_err(), "a number that is past stops at once");
}

#[test]
fn a_sync_cut_by_the_power_may_have_worked() {
    let durable = |seed| {
        let disk = disk();
        disk.open("f").unwrap().write_at(b"x", 0).unwrap();
        disk.stop_at(2, seed);
        assert!(disk.sync_all().is_err());
        disk.read_synced("f").unwrap() == b"x"
    };
    let outcomes: BTreeSet<bool> = (0..40).map(durable).collect();
    assert_eq!(outcomes.len(), 2);
}

#[test]
fn short_writes_by_rule_and_by_chance() {
    let disk = disk();
    let file = disk.open("f").unwrap();
    disk.short_write(Matcher::op(OpKind::Write).nth(2), 3);
    let counts: Vec<usize> = (0..3).map(|_| file.write_at(b"hello", 0).unwrap()).collect();
    assert_eq!(counts, [5, 3, 5]);
    disk.short_writes(1, 50);
    let counts: BTreeSet<usize> = (0..200).map(|_| file.write_at(b"hello", 0).unwrap()).collect();
    assert_eq!(counts, BTreeSet::from([1, 2, 3, 4, 5]));
    disk.short_writes(1, 0);
    assert!((0..50).all(|_| file.write_at(b"hello", 0).unwrap() == 5));
}

#[test]
fn a_full_disk_takes_what_fits_and_recovers() {
    let disk = disk();
    let file = disk.open("f").unwrap();
    disk.set_capacity(Some(10));
    assert_eq!(file.write_at(&[1; 8], 0).unwrap(), 8);
    assert_eq!(disk.free_bytes().unwrap(), 2);
    assert_eq!(file.write_at(&[2; 8], 8).unwrap(), 2, "as much as fits");
    assert_eq!(file.write_at(&[3; 8], 10).unwrap_err().raw_os_error(), Some(28));
    assert_eq!(file.set_len(11).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.write_at(&[4; 10], 0).unwrap(), 10, "overwriting needs no space");
    let after = disk.kill();
    assert_eq!(after.free_bytes().unwrap(), 0, "the size of the disk stays");
    after.set_capacity(Some(12));
    assert_eq!(after.open("f").unwrap().write_at(&[5; 8], 10).unwrap(), 2);
    let held = after.open("f").unwrap();
    after.remove("f").unwrap();
    assert_eq!(after.free_bytes().unwrap(), 0, "an unlinked file takes space while it is open");
    drop(held);
    assert_eq!(after.free_bytes().unwrap(), 12);
}

#[test]
fn a_wild_offset_is_refused() {
    let file = disk().create("g").unwrap();
    assert_eq!(file.write_at(b"x", u64::MAX - 1).unwrap_err().kind(), ErrorKind::FileTooLarge);
    assert_eq!(file.read_at(&mut [0], u64::MAX).unwrap(), 0);
}

#[test]
fn ignored_syncs_report_success_and_keep_nothing() {
    let disk = disk();
    disk.write_file("g", b"").unwrap();
    disk.ignore_syncs(Matcher::any().path("f"));
    for path in ["f", "g"] {
        let file = disk.open(path).unwrap();
        file.write_at(b"x", 0).unwrap();
        file.sync().unwrap();
    }
    disk.sync_all().unwrap();
    let durable = |disk: &FaultDisk, path| disk.read_synced(path).unwrap().len();
    assert_eq!((durable(&disk, "f"), durable(&disk, "g")), (0, 1));
    let after = disk.kill();
    after.sync_all().unwrap();
    assert_eq!(durable(&after, "f"), 0, "the lie lasts");
}

#[test]
fn ignored_directory_syncs_keep_no_names() {
    let disk = FaultDisk::new();
    disk.ignore_dir_syncs();
    let file = disk.create("a").unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir("").unwrap();
    disk.sync_all().unwrap();
    assert!((0..50).any(|seed| disk.crash(seed).files().is_empty()));
}

#[test]
fn the_trace_tells_the_last_operations() {
    let disk = disk();
    let file = disk.open("f").unwrap();
    file.write_at(b"abc", 4).unwrap();
    disk.fail_next(Matcher::op(OpKind::Sync), DiskFailure::EIO);
    assert!(file.sync().is_err());
    disk.stop_at(3, 0);
    assert!(disk.remove("f").is_err());
    assert_eq!(
        disk.trace(),
        ["#1 Write \"f\" at 4 len 3: Done", "#2 Sync \"f\": Failed", "#3 Remove \"f\": Cut"]
    );
}
