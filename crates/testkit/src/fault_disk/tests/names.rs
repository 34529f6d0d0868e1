//! What a power cut leaves of created, renamed and removed names.

use std::collections::BTreeSet;

use promethean_log::disk::Disk;

use crate::fault_disk::FaultDisk;

fn put(disk: &FaultDisk, path: &str, bytes: &[u8]) {
    let file = disk.create(path).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

/// Every outcome of this power cut, as `path=contents` lines.
fn outcomes(disk: &FaultDisk) -> BTreeSet<String> {
    let print = |disk: FaultDisk| {
        let line =
            |path: &String| format!("{path}={}", String::from_utf8(disk.read_file(path).unwrap()).unwrap());
        disk.files().iter().map(line).collect::<Vec<_>>().join(" ")
    };
    (0..400).map(|seed| print(disk.crash(seed))).collect()
}

fn check(disk: &FaultDisk, expected: &[&str]) {
    assert_eq!(outcomes(disk), expected.iter().map(|line| (*line).to_owned()).collect());
}

#[test]
fn a_created_file_is_certain_only_after_its_folder_is_synced() {
    let disk = FaultDisk::new();
    put(&disk, "a", b"1");
    check(&disk, &["", "a=1"]);
    let disk = FaultDisk::new();
    put(&disk, "a", b"1");
    disk.sync_dir("").unwrap();
    check(&disk, &["a=1"]);
}

#[test]
fn syncing_one_folder_says_nothing_about_another() {
    let disk = FaultDisk::new();
    disk.make_dir("d").unwrap();
    disk.sync_dir("").unwrap();
    put(&disk, "d/a", b"1");
    put(&disk, "b", b"2");
    disk.sync_dir("d").unwrap();
    check(&disk, &["d/a=1", "b=2 d/a=1"]);
}

#[test]
fn a_folder_that_was_not_synced_into_its_parent_takes_its_files_along() {
    let disk = FaultDisk::new();
    disk.make_dir("d").unwrap();
    put(&disk, "d/a", b"1");
    disk.sync_dir("d").unwrap();
    check(&disk, &["", "d/a=1"]);
    let disk = FaultDisk::restore(&disk.snapshot());
    disk.sync_dir("").unwrap();
    check(&disk, &["d/a=1"]);
}

#[test]
fn a_removed_file_may_come_back_until_its_folder_is_synced() {
    let disk = FaultDisk::new();
    put(&disk, "a", b"1");
    disk.sync_dir("").unwrap();
    disk.remove("a").unwrap();
    check(&disk, &["", "a=1"]);
    let disk = disk.kill();
    assert!(disk.files().is_empty());
    disk.sync_dir("").unwrap();
    check(&disk, &[""]);
}

#[test]
fn a_rename_is_atomic_and_replaces() {
    let disk = FaultDisk::new();
    put(&disk, "m", b"old");
    put(&disk, "m.tmp", b"new");
    disk.sync_dir("").unwrap();
    disk.rename("m.tmp", "m").unwrap();
    check(&disk, &["m=old m.tmp=new", "m=new"]);
    let disk = disk.kill();
    disk.sync_dir("").unwrap();
    check(&disk, &["m=new"]);
}

#[test]
fn what_builds_on_a_rename_never_survives_without_it() {
    let disk = FaultDisk::new();
    put(&disk, "a", b"1");
    disk.sync_dir("").unwrap();
    disk.rename("a", "b").unwrap();
    put(&disk, "a", b"2");
    check(&disk, &["a=1", "b=1", "a=2 b=1"]);
    let disk = disk.kill();
    disk.rename("b", "c").unwrap();
    check(&disk, &["a=1", "b=1", "c=1", "a=2 b=1", "a=2 c=1"]);
}

#[test]
fn a_rename_between_folders_survives_in_both_or_in_none() {
    let disk = FaultDisk::new();
    disk.make_dir("from").unwrap();
    put(&disk, "from/x", b"1");
    disk.sync_all().unwrap();
    disk.make_dir("to").unwrap();
    disk.rename("from/x", "to/x").unwrap();
    check(&disk, &["from/x=1", "to/x=1"]);
    for dir in ["from", "to"] {
        let disk = FaultDisk::restore(&disk.snapshot());
        disk.sync_dir(dir).unwrap();
        check(&disk, &["to/x=1"]);
    }
}

#[test]
fn unsynced_names_survive_as_any_subset_and_as_prefixes() {
    let disk = FaultDisk::new();
    for name in ["a", "b", "c"] {
        put(&disk, name, b"");
    }
    check(&disk, &["", "a=", "b=", "c=", "a= b=", "a= c=", "b= c=", "a= b= c="]);
}

#[test]
fn a_replaced_name_shows_one_file_or_the_other() {
    let disk = FaultDisk::new();
    put(&disk, "a", b"1");
    disk.sync_all().unwrap();
    disk.remove("a").unwrap();
    put(&disk, "a", b"2");
    check(&disk, &["", "a=1", "a=2"]);
}

#[test]
fn a_renamed_file_whose_bytes_were_not_synced_may_be_empty() {
    let disk = FaultDisk::new();
    put(&disk, "m", b"old");
    disk.sync_all().unwrap();
    disk.create("t").unwrap().write_at(b"new", 0).unwrap();
    disk.rename("t", "m").unwrap();
    disk.sync_dir("").unwrap();
    let seen = outcomes(&disk);
    assert!(seen.contains("m=") && seen.contains("m=new") && !seen.contains("m=old"), "{seen:?}");
}

#[test]
fn names_behave_as_on_any_disk() {
    let disk = FaultDisk::new();
    assert_eq!(disk.create("d/a").unwrap_err().kind(), std::io::ErrorKind::NotFound);
    disk.make_dir("d").unwrap();
    disk.make_dir("d").unwrap();
    let held = disk.create("d/a").unwrap();
    assert_eq!(disk.create("d/a").unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    disk.create("b").unwrap();
    assert_eq!(
        (disk.list("").unwrap(), disk.list("d").unwrap()),
        (vec!["b".to_owned()], vec!["a".to_owned()])
    );
    disk.remove("d/a").unwrap();
    assert!(disk.open("d/a").is_err() && disk.rename("d/a", "b").is_err() && disk.list("x").is_err());
    held.write_at(b"still here", 0).unwrap();
    disk.sync_all().unwrap();
    assert_eq!(held.len().unwrap(), 10);
}
