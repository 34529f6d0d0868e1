//! Every wrong bit and every missing byte of a run is noticed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::mem_disk::MemDisk;
use crate::disk::Disk;
use crate::index::{
    EntryKind, EventIndex, GhostEntry, IndexRun, IndexRunError, Insert, run_number, run_path,
};

const EVENTS: u64 = 400;

/// Makes an index with one run of ids, number 1, and one of keys, number 2.
fn small() -> (Arc<MemDisk>, EventIndex) {
    let disk = Arc::new(MemDisk::default());
    let index = EventIndex::open(Arc::clone(&disk) as Arc<dyn Disk>, &[], 1).map_err(|err| err.1).unwrap();
    for offset in 0..EVENTS {
        let (topic, pos, id_hash, key_hash) = (1, offset as u32, offset % 100, Some(offset));
        index.insert_pair(&Insert { topic, pos, offset, id_hash, id_ms: None, key_hash, appended_ms: 0 });
    }
    let table = index.freeze().unwrap();
    let runs = index.spill(&table).unwrap();
    index.install(runs, &[], true);
    (disk, index)
}

fn find_all(run: &IndexRun) -> Result<Vec<(u64, u32)>, IndexRunError> {
    let mut found = Vec::new();
    for hash in 0..100 {
        run.find(1, hash, &mut found)?;
    }
    Ok(found)
}

#[test]
fn a_flipped_bit_is_reported_with_its_place() {
    let (disk, _) = small();
    let file = disk.file(&run_path(1));
    let len = file.bytes.lock().unwrap().len();
    let truth = find_all(&IndexRun::open(&*disk, 1, 0).unwrap()).unwrap();
    for at in 0..len {
        let bit = 1 << (at % 8);
        file.bytes.lock().unwrap()[at] ^= bit;
        let err = match IndexRun::open(&*disk, 1, 0) {
            Err(err) => err,
            Ok(run) => {
                if let Ok(found) = find_all(&run) {
                    assert_eq!(found, truth, "wrong answer with byte {at} flipped");
                }
                Arc::new(run).verify().unwrap_err()
            }
        };
        let IndexRunError::Damaged { from_byte, to_byte, .. } = err else { panic!("byte {at}: {err}") };
        assert!((from_byte..to_byte).contains(&(at as u64)), "byte {at} reported in {from_byte}..{to_byte}");
        file.bytes.lock().unwrap()[at] ^= bit;
    }
    Arc::new(IndexRun::open(&*disk, 1, 0).unwrap()).verify().unwrap();
}

#[test]
fn a_file_cut_anywhere_does_not_open() {
    let (disk, _) = small();
    let file = disk.file(&run_path(1));
    while file.bytes.lock().unwrap().pop().is_some() {
        assert!(matches!(IndexRun::open(&*disk, 1, 0), Err(IndexRunError::Damaged { .. })));
    }
}

#[test]
fn a_file_cut_while_open_is_reported() {
    let (disk, index) = small();
    disk.file(&run_path(1)).bytes.lock().unwrap().truncate(5_000);
    let mut found = Vec::new();
    let failed = index.candidates(EntryKind::Id, 1, 99, None, &mut found);
    assert!(matches!(failed, Err(IndexRunError::Damaged { .. })), "{failed:?}");
    assert_eq!(index.verify().len(), 1);
}

#[test]
fn swapped_pages_and_files_are_noticed() {
    let (disk, _) = small();
    let bytes = |number| disk.file(&run_path(number));
    bytes(1).bytes.lock().unwrap()[..8192].rotate_left(4096);
    assert!(Arc::new(IndexRun::open(&*disk, 1, 0).unwrap()).verify().is_err());
    disk.rename(&run_path(2), &run_path(1)).unwrap();
    assert!(matches!(IndexRun::open(&*disk, 1, 0), Err(IndexRunError::Damaged { .. })));
}

#[test]
fn open_names_the_run_that_is_not_what_the_manifest_says() {
    let (disk, _) = small();
    let open = |named: &[(u64, EntryKind, u8)]| {
        EventIndex::open(Arc::clone(&disk) as Arc<dyn Disk>, named, 1)
            .map(|_| ())
            .map_err(|(number, _)| number)
    };
    assert_eq!(open(&[(1, EntryKind::Id, 0), (2, EntryKind::Key, 0)]), Ok(()));
    assert_eq!(open(&[(1, EntryKind::Id, 0), (2, EntryKind::Id, 0)]), Err(2));
    assert_eq!(open(&[(1, EntryKind::Id, 0), (7, EntryKind::Id, 0)]), Err(7));
    assert_eq!(open(&[(1, EntryKind::Id, 0), (1, EntryKind::Id, 1)]), Err(1));
}

#[test]
fn an_unfinished_or_empty_run_leaves_no_file() {
    let (disk, index) = small();
    let files = || disk.list("index").unwrap().len();
    assert!(index.write_ghosts([], 0).unwrap().is_none());
    assert_eq!(files(), 2);
    for nth in 0..4 {
        let ghost = GhostEntry { topic: 1, id: [nth; 16], offset: 0, ts: 0, content: 0 };
        let run = index.write_ghosts([ghost], 0).unwrap().unwrap();
        index.install(vec![run], &[], false);
    }
    let task = index.pick_merge().unwrap();
    index.merge(&task, &|_, _, _| true, &AtomicBool::new(true)).unwrap();
    index.merge(&task, &|_, _, _| false, &AtomicBool::new(false)).unwrap();
    assert_eq!(files(), 6);
    disk.file(&task.inputs[2].path()).bytes.lock().unwrap()[100] ^= 1;
    assert!(index.merge(&task, &|_, _, _| true, &AtomicBool::new(false)).is_err());
    assert_eq!(files(), 6);
}

#[test]
fn names_of_runs_are_recognised() {
    for number in [0, 1, 0xABCDEF, u64::MAX] {
        assert_eq!(run_number(run_path(number).strip_prefix("index/").unwrap()), Some(number));
    }
    for name in ["", ".run", "1.run", "0000000000000001.tmp", "00000000000000AB.run", "+000000000000001.run"]
    {
        assert_eq!(run_number(name), None, "{name}");
    }
}
