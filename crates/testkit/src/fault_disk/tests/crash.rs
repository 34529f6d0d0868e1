//! What a power cut and a kill leave of files' bytes.

use std::collections::BTreeSet;

use promethean_log::disk::Disk;

use crate::fault_disk::{FaultDisk, SECTOR};

const SEEDS: u64 = 300;

/// A disk with a synced file `f` of these bytes.
fn with_file(bytes: &[u8]) -> FaultDisk {
    let disk = FaultDisk::new();
    disk.create("f").unwrap().write_at(bytes, 0).unwrap();
    disk.sync_all().unwrap();
    disk
}

/// Contents of `f` after the same power cut with many seeds.
fn outcomes(disk: &FaultDisk) -> BTreeSet<Vec<u8>> {
    (0..SEEDS).map(|seed| disk.crash(seed).read_file("f").unwrap()).collect()
}

#[test]
fn synced_bytes_survive() {
    let disk = with_file(b"");
    let file = disk.open("f").unwrap();
    file.write_at(&[7; 3_000], 0).unwrap();
    file.sync().unwrap();
    assert_eq!(outcomes(&disk), BTreeSet::from([vec![7; 3_000]]));
}

#[test]
fn any_subset_of_unsynced_sectors_survives() {
    let disk = with_file(&[0; 3 * SECTOR]);
    disk.open("f").unwrap().write_at(&[1; 3 * SECTOR], 0).unwrap();
    let subsets: BTreeSet<Vec<u8>> = outcomes(&disk)
        .into_iter()
        .map(|bytes| bytes.chunks(SECTOR).map(|sector| sector[0]).collect())
        .collect();
    assert_eq!(subsets.len(), 8, "all subsets, not only prefixes: {subsets:?}");
    for bytes in outcomes(&disk) {
        assert!(
            bytes.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])),
            "sectors are whole"
        );
    }
}

#[test]
fn an_unsynced_sector_may_be_at_any_of_its_versions() {
    let disk = with_file(&[0; SECTOR]);
    let file = disk.open("f").unwrap();
    file.write_at(&[1; SECTOR], 0).unwrap();
    file.write_at(&[2; SECTOR], 0).unwrap();
    let seen: BTreeSet<u8> = outcomes(&disk).iter().map(|bytes| bytes[0]).collect();
    assert_eq!(seen, BTreeSet::from([0, 1, 2]));
}

#[test]
fn an_unsynced_length_survives_or_not_and_missing_bytes_are_zero() {
    let disk = with_file(b"abc");
    disk.open("f").unwrap().write_at(&[9; 2 * SECTOR], SECTOR as u64).unwrap();
    let outcomes = outcomes(&disk);
    let lengths: BTreeSet<usize> = outcomes.iter().map(Vec::len).collect();
    assert_eq!(lengths, BTreeSet::from([3, 3 * SECTOR]));
    for bytes in &outcomes {
        assert_eq!(&bytes[..3], b"abc");
        assert!(bytes[3..].iter().all(|byte| [0, 9].contains(byte)));
    }
    assert!(outcomes.iter().any(|bytes| bytes.len() > 3 && bytes[3..].iter().all(|byte| *byte == 0)));
}

#[test]
fn bytes_from_before_a_cut_never_come_back_behind_it() {
    let disk = with_file(&[1; 2 * SECTOR]);
    let file = disk.open("f").unwrap();
    file.set_len(100).unwrap();
    file.set_len(2 * SECTOR as u64).unwrap();
    file.write_at(&[2; 10], SECTOR as u64).unwrap();
    for bytes in outcomes(&disk) {
        let uncut = bytes == [1; 2 * SECTOR];
        let cut = bytes[..100] == [1; 100] && bytes[100..].iter().all(|byte| [0, 2].contains(byte));
        assert!(uncut || cut, "{bytes:?}");
    }
    let disk = disk.kill();
    disk.open("f").unwrap().sync().unwrap();
    let bytes = disk.crash(1).read_file("f");
    assert_eq!(bytes.unwrap()[..SECTOR + 10], [&[1; 100][..], &[0; SECTOR - 100], &[2; 10]].concat());
}

#[test]
fn a_kill_keeps_unsynced_bytes_readable_and_not_durable() {
    let disk = with_file(b"old");
    disk.open("f").unwrap().write_at(b"new", 0).unwrap();
    let killed = disk.kill();
    assert_eq!(killed.read_file("f").unwrap(), b"new");
    assert_eq!(killed.read_synced("f").unwrap(), b"old");
    assert_eq!(outcomes(&killed).len(), 2);
}

#[test]
fn nothing_of_the_old_disk_works_after_a_crash_and_the_lock_is_free() {
    let disk = with_file(b"x");
    let file = disk.open("f").unwrap();
    let guard = disk.lock("LOCK").unwrap();
    assert_eq!(disk.lock("LOCK").err().unwrap().kind(), std::io::ErrorKind::WouldBlock);
    let after = disk.crash(3);
    assert!(file.write_at(b"y", 0).is_err() && file.read_at(&mut [0], 0).is_err() && file.sync().is_err());
    assert!(disk.create("g").is_err() && disk.open("f").is_err() && disk.list("").is_err());
    let _new = after.lock("LOCK").unwrap();
    drop(guard);
    assert!(after.lock("LOCK").is_err(), "the old guard does not release the new lock");
    assert_eq!(after.read_file("f").unwrap(), b"x");
}

#[test]
fn the_same_seed_gives_the_same_crash() {
    let build = || {
        let disk = with_file(&[0; 4_096]);
        disk.open("f").unwrap().write_at(&[1; 9_000], 0).unwrap();
        disk.create("g").unwrap();
        disk
    };
    for seed in 0..50 {
        let (a, b) = (build().crash(seed), build().crash(seed));
        assert_eq!((a.files(), a.read_file("f").unwrap()), (b.files(), b.read_file("f").unwrap()));
    }
}

#[test]
fn a_snapshot_is_not_touched_by_what_comes_after() {
    let disk = with_file(b"one");
    disk.open("f").unwrap().write_at(b"two", 0).unwrap();
    let snapshot = disk.snapshot();
    disk.flip_bit("f", 0, 0).unwrap();
    disk.remove("f").unwrap();
    let again = FaultDisk::restore(&snapshot);
    assert_eq!(again.read_file("f").unwrap(), b"two");
    assert_eq!(again.read_synced("f").unwrap(), b"one");
    again.truncate("f", 1).unwrap();
    assert_eq!(FaultDisk::restore(&snapshot).len("f").unwrap(), 3);
}

#[test]
fn decay_shows_at_once_and_after_a_crash() {
    let disk = with_file(&[0; 1_000]);
    disk.flip_bit("f", 999, 7).unwrap();
    disk.truncate("f", 2_000).unwrap();
    assert_eq!(disk.read_file("f").unwrap()[999], 0x80);
    disk.write_file("a/b/g", b"made").unwrap();
    disk.remove_file("f").unwrap();
    let after = disk.crash(0);
    assert_eq!(after.files(), ["a/b/g"]);
    assert!(disk.flip_bit("a/b/g", 4, 0).is_err() && disk.flip_bit("a/b/g", 0, 8).is_err());
}
